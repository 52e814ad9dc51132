"""Limit how often a connection's refused webhooks are logged (D-241)."""

import time
from collections import OrderedDict
from collections.abc import Callable
from uuid import UUID

LOG_SECONDS = 60
"""Minimum time between two log lines about the refused webhooks of one connection."""
MOST_REMEMBERED = 10_000


class RefusedWebhooks:
    """Counts each connection's refused webhooks between two log lines."""

    __slots__ = ("_clock", "_lines")

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` returns the current time in seconds."""
        self._clock = clock
        # for each connection, when the next line is due, and how many webhooks came since the previous line
        self._lines = OrderedDict[UUID, tuple[float, int]]()

    def count(self, connection_id: UUID) -> int:
        """Count a webhook. If a log line is due, return the number of webhooks since the previous line, else 0."""
        now = self._clock()
        due_at, webhooks = self._lines.pop(connection_id, (now, 0))
        is_due = now >= due_at
        self._lines[connection_id] = (now + LOG_SECONDS, 0) if is_due else (due_at, webhooks + 1)
        if len(self._lines) > MOST_REMEMBERED:
            self._lines.popitem(last=False)
        return webhooks + 1 if is_due else 0
