"""Show operators the engine's health, the age of due work, call counts and violated invariants.

Entry points: `health.check`, `lateness.measure`, the functions of `checks`, and `EachAccount` for commands that handle
every account. Use cases count calls in `call_counts`.
"""
