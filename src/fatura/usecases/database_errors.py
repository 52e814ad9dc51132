"""The store's exceptions, for layers that may not import the store."""

from fatura.store.db import DatabaseUnavailableError, DeadlockError, LockTimeoutError

__all__ = ["DatabaseUnavailableError", "DeadlockError", "LockTimeoutError"]
