"""Show operators the engine's health, the age of due work, call counts and violated invariants.

Entry points: `health.check`, `lateness.measure` and the functions of `checks`. Use cases count calls in
`call_counts`.
"""
