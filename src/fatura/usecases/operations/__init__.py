"""What operators see of a running engine: health, overdue work, call counts and `fatura check`.

Doors: `health.check`, `lateness.measure`, `checks.findings`; use cases count calls in `call_counts`.
"""
