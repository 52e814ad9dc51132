"""Tracks whether the current task has an open database transaction. External calls assert that there is none."""

from contextvars import ContextVar


class TransactionMark:
    """Marks the current task, and the tasks that it starts, as inside a transaction until `end` is called."""

    __slots__ = ("_token", "is_open")

    def __init__(self) -> None:
        self.is_open = True
        self._token = _MARK.set(self)

    def end(self) -> None:
        self.is_open = False
        _MARK.reset(self._token)


_MARK: ContextVar[TransactionMark | None] = ContextVar("open_transaction", default=None)


def holds_open_transaction() -> bool:
    mark = _MARK.get()
    return mark is not None and mark.is_open
