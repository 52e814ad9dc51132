"""Whether this task holds a database transaction: nothing external may be called meanwhile (always asserted)."""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar


class _Mark:
    """One transaction; a task that was started inside it, and outlives it, sees it closed."""

    __slots__ = ("is_open",)

    def __init__(self) -> None:
        """Begin."""
        self.is_open = True


_MARK: ContextVar[_Mark | None] = ContextVar("open_transaction", default=None)


@contextmanager
def mark_open_transaction() -> Generator[None]:
    """Mark the running task, and those it starts, for as long as the block lasts."""
    mark = _Mark()
    token = _MARK.set(mark)
    try:
        yield
    finally:
        mark.is_open = False
        _MARK.reset(token)


def holds_open_transaction() -> bool:
    """Say whether the running task is inside a transaction."""
    mark = _MARK.get()
    return mark is not None and mark.is_open
