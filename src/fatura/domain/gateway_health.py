"""When a gateway connection counts as failing, and when it is probed (D-55).

A connection whose calls fail FAILURES_TO_FAIL times in a row is *failing* until a call succeeds. The engine makes only
two kinds of calls to a failing connection: single probes, and the calls that people request.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

FAILURES_TO_FAIL = 3
PROBE_DELAYS = (
    timedelta(seconds=30),
    timedelta(minutes=1),
    timedelta(minutes=2),
    timedelta(minutes=5),
    timedelta(minutes=10),
    timedelta(minutes=15),
)
"""Pause before each probe while the probes fail; the last pause repeats. Jitter only shortens a pause."""
MAX_JITTER_PERMILLE = 200
EMIT_AFTER = timedelta(hours=1)
"""`connection.failing` is emitted when the calls have failed for this long."""
CREDENTIALS_REFUSED = "credentials_refused"
CREDENTIALS_UNREADABLE = "credentials_unreadable"


class HealthState(StrEnum):
    """Whether a connection works, as the API shows it."""

    OK = "ok"
    FAILING = "failing"
    """The newest calls failed. The engine makes only probes and the calls that people request."""
    PAUSED = "paused"
    """A person made the connection inactive."""


@dataclass(frozen=True, slots=True)
class CallError:
    """Why a call failed: a stable code, and a text for people."""

    code: str
    detail: str


CallResult = CallError | None
"""What one call says about the health of its connection; None means that the provider answered."""


@dataclass(frozen=True, slots=True)
class ConnectionHealth:
    """The health of a connection; instants are on the account's clock.

    `failures` counts the failed calls since the last success. `failing_since` is when the first of these calls ended.
    A connection is failing while `next_probe_at` is set. `emitted` is true if `connection.failing` was emitted.
    """

    failures: int = 0
    failing_since: datetime | None = None
    next_probe_at: datetime | None = None
    probes: int = 0
    emitted: bool = False
    error: CallError | None = None

    @property
    def is_failing(self) -> bool:
        return self.next_probe_at is not None

    def after_calls(
        self, results: Sequence[CallResult], *, now: datetime, is_probe: bool, jitter_permille: int
    ) -> "ConnectionHealth":
        """Return the health after some calls. `results` has their results in the order in which the calls ended.

        While the connection is failing, only a failed probe delays the next probe; other failed calls do not.
        """
        health = self
        for result in results:
            health = HEALTHY if result is None else _after_failure(health, result, now=now)
        if health.failures < FAILURES_TO_FAIL:
            return health
        if health.is_failing and not is_probe:
            return health
        return _with_next_probe(health, now=now, jitter_permille=jitter_permille)

    def should_emit_failing(self, *, now: datetime) -> bool:
        """Return whether `connection.failing` is due: the connection has failed for EMIT_AFTER."""
        if not self.is_failing or self.emitted or self.failing_since is None:
            return False
        return now - self.failing_since >= EMIT_AFTER


HEALTHY = ConnectionHealth()


def _after_failure(health: ConnectionHealth, error: CallError, *, now: datetime) -> ConnectionHealth:
    since = health.failing_since or now
    return replace(health, failures=health.failures + 1, failing_since=since, error=error)


def _with_next_probe(health: ConnectionHealth, *, now: datetime, jitter_permille: int) -> ConnectionHealth:
    """Schedule the next probe after the usual pause, or when `connection.failing` is due if that is sooner."""
    assert 0 <= jitter_permille <= MAX_JITTER_PERMILLE, jitter_permille
    assert health.failing_since is not None, "it has failed"
    delay = PROBE_DELAYS[min(health.probes, len(PROBE_DELAYS) - 1)]
    at = now + delay - delay * jitter_permille // 1000
    due_at = health.failing_since + EMIT_AFTER
    next_probe_at = min(at, due_at) if now < due_at else at
    return replace(health, probes=health.probes + 1, next_probe_at=next_probe_at)
