"""Match charges at the gateways with a database restored from a backup, so that nothing is charged twice (D-123).

`comparison.freeze` stops billing in an account; `comparison.compare` matches the account's charges and resumes billing.
"""
