"""Remember which lanes of this process fail to poll for due work, and since when."""

import asyncio
import time
from collections.abc import Callable, Sequence

from fatura.observability import gauge

STUCK_AFTER_SECONDS = 60
"""How long the polls of a lane must fail before the health check and the metrics report the failure."""

_stuck = gauge(
    "fatura_lane_stuck",
    f"1 while a lane has failed to look for due work for {STUCK_AFTER_SECONDS} s, else 0.",
    "lane",
)


class LanePolls:
    """The outcomes of this process's polls; each process has one instance."""

    __slots__ = ("_clock", "_failing_since", "_lanes", "tried_at", "trying")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lanes: set[str] = set()
        self._failing_since: dict[str, float] = {}
        self.tried_at: float | None = None
        """When this process last began to try the polls of all lanes; None in a worker, which runs the lanes."""
        self.trying: asyncio.Task[None] | None = None
        """The task that last tried the polls of all lanes; it may have ended. None in a worker."""

    def note_success(self, lane: str) -> bool:
        """Record a poll that succeeded; return whether the lane's previous poll failed."""
        self._lanes.add(lane)
        return self._failing_since.pop(lane, None) is not None

    def note_failure(self, lane: str) -> bool:
        """Record a poll that failed. Return False if the lane's previous poll failed too."""
        self._lanes.add(lane)
        is_first = lane not in self._failing_since
        self._failing_since.setdefault(lane, self._clock())
        return is_first

    def stuck(self) -> Sequence[str]:
        """Return the lanes whose polls have failed for STUCK_AFTER_SECONDS."""
        now = self._clock()
        return sorted(
            lane for lane, since in self._failing_since.items() if now - since >= STUCK_AFTER_SECONDS
        )

    def measure(self) -> None:
        """Set the metric of each lane that was polled."""
        stuck = self.stuck()
        for lane in self._lanes:
            _stuck.labels(lane).set(lane in stuck)

    def must_try(self, *, every_seconds: float) -> bool:
        """Return whether to try the polls of all lanes now; always False in a worker.

        If the result is True, store the time, so that the next try is at least `every_seconds` later.
        """
        now = self._clock()
        if self.tried_at is None and self._lanes:
            return False  # this process is a worker, whose lanes poll anyway
        if self.trying is not None and not self.trying.done():
            return False
        if self.tried_at is not None and now - self.tried_at < every_seconds:
            return False
        self.tried_at = now
        return True
