"""Match charges at the gateways with a database restored from a backup, so that nothing is charged twice (D-123).

Entry points: `comparison.freeze` stops billing in an account, `comparison.record` adds the audit entry, and
`comparison.compare` matches the account's charges and lets billing continue.
"""
