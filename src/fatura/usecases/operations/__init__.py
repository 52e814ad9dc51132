"""What operators observe of the engine: health, the age of due work, call counts and violated invariants.

Entry points: `health.check`, `lateness.measure`, `checks.findings`; use cases count calls in `call_counts`.
"""
