"""Tracks whether the current task has an open database transaction. External calls assert that there is none."""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar


class _Mark:
    """Whether a transaction is still open. Tasks that start during the transaction share this object."""

    __slots__ = ("is_open",)

    def __init__(self) -> None:
        self.is_open = True


_MARK: ContextVar[_Mark | None] = ContextVar("open_transaction", default=None)


@contextmanager
def mark_open_transaction() -> Generator[None]:
    """Mark the current task, and the tasks that it starts, as inside a transaction until the block ends."""
    mark = _Mark()
    token = _MARK.set(mark)
    try:
        yield
    finally:
        mark.is_open = False
        _MARK.reset(token)


def holds_open_transaction() -> bool:
    mark = _MARK.get()
    return mark is not None and mark.is_open
