"""The database's failures, for the API to answer: it does not import the store."""

from fatura.store.db import DatabaseUnavailableError, DeadlockError, LockTimeoutError

__all__ = ["DatabaseUnavailableError", "DeadlockError", "LockTimeoutError"]
