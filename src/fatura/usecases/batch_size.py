"""Adapt the size of the billing run's batches to the time that a batch takes."""

MOST = 1000
LEAST = 100
TARGET_SECONDS = 0.2
"""Wanted duration of a batch. Until a batch commits, its locks delay the account's other writers."""


class BatchSize:
    """How many subscriptions one transaction bills: fewer on a busy machine. Each process has one instance."""

    __slots__ = ("current",)

    def __init__(self) -> None:
        self.current = MOST

    def note(self, done: int, *, seconds: float) -> None:
        """Adapt the size to the speed of a batch of `done` subscriptions.

        Ignore a batch of fewer subscriptions than half of `current`.
        """
        if 2 * done < self.current or seconds <= 0:
            return
        wanted = done * TARGET_SECONDS / seconds
        self.current = round(min(max((self.current + wanted) / 2, LEAST), MOST))

    def note_failure(self) -> None:
        """Halve the size, because a batch of the same size may exceed the database's time limit again."""
        self.current = max(self.current // 2, LEAST)
