"""The store's exceptions, re-exported for layers that must not import the store."""

from fatura.store.db import DatabaseUnavailableError, DeadlockError, LockTimeoutError

__all__ = ["DatabaseUnavailableError", "DeadlockError", "LockTimeoutError"]
