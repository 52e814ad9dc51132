"""The audit log: an entry for each change that a client or an operator makes (D-63).

Entry point: `log.read`. `Work.audit` of `usecases.transaction` adds the entries.
"""
