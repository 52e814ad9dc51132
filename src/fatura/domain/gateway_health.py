"""When a gateway connection counts as failing, and when it is probed (D-55).

A connection whose calls fail FAILURES_TO_FAIL times in a row is *failing* until a call succeeds. The engine makes only
two kinds of calls to a failing connection: single probes, and the calls that people request.

A *read* asks for a charge by the charge's id, as polls do. If all reads fail while other calls succeed, the engine sees
no payments. So the engine counts failed reads separately, until a read succeeds. If only reads fail, the engine delays
no call.
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
"""`connection.failing` is emitted when all calls, or all reads, have failed for this long."""
CREDENTIALS_REFUSED = "credentials_refused"
CREDENTIALS_UNREADABLE = "credentials_unreadable"


class HealthState(StrEnum):
    """Whether a connection works, as the API shows it."""

    OK = "ok"
    FAILING = "failing"
    """The newest calls failed, or all reads have failed for EMIT_AFTER."""
    PAUSED = "paused"
    """A person made the connection inactive."""


@dataclass(frozen=True, slots=True)
class CallError:
    """Why a call failed: a stable code, and a text for people."""

    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class CallResult:
    """What one call says about the health of its connection; without an `error`, the provider answered."""

    error: CallError | None
    is_read: bool = False


@dataclass(frozen=True, slots=True)
class FailedReads:
    """The failed reads of a connection since its last successful read.

    `since` is when the first of these reads ended. `is_reported` becomes true when at least three reads have failed,
    and the newest of them ended at least EMIT_AFTER after `since`. If `connection.failing` was emitted already,
    `is_reported` becomes true with the third failed read.
    """

    count: int = 0
    since: datetime | None = None
    is_reported: bool = False
    error: CallError | None = None

    def after(self, error: CallError | None, *, now: datetime) -> "FailedReads":
        if error is None:
            return NO_FAILED_READS
        count, since = self.count + 1, self.since or now
        is_reported = self.is_reported or (count >= FAILURES_TO_FAIL and now - since >= EMIT_AFTER)
        return FailedReads(count, since, is_reported, error)


NO_FAILED_READS = FailedReads()


@dataclass(frozen=True, slots=True)
class ConnectionHealth:
    """The health of a connection; instants are on the account's clock.

    `failures` counts the failed calls since the last success. `failing_since` is when the first of these calls ended.
    A connection is failing while `next_probe_at` is set. `emitted` is true from `connection.failing` until the
    connection and its reads work again.
    """

    failures: int = 0
    failing_since: datetime | None = None
    next_probe_at: datetime | None = None
    probes: int = 0
    emitted: bool = False
    error: CallError | None = None
    reads: FailedReads = NO_FAILED_READS

    @property
    def is_failing(self) -> bool:
        return self.next_probe_at is not None

    @property
    def shown_since(self) -> datetime | None:
        """Return the beginning of the failure that the API shows, or None if the API shows no failure."""
        calls = self.failing_since if self.is_failing else None
        reads = self.reads.since if self.reads.is_reported else None
        return min((since for since in (calls, reads) if since is not None), default=None)

    @property
    def shown_error(self) -> CallError | None:
        """Return the error that the API shows.

        If the API reports only failed reads, the result is the error of the newest failed read. Otherwise, the result
        is `error`. After one or two failed calls, `error` is set, but the API shows no failure yet: `shown_since` is
        None.
        """
        return self.reads.error if self.reads.is_reported and not self.is_failing else self.error

    def after_calls(
        self, results: Sequence[CallResult], *, now: datetime, is_probe: bool, jitter_permille: int
    ) -> "ConnectionHealth":
        """Return the health after some calls. `results` has their results in the order in which the calls ended.

        While the connection is failing, only a failed probe delays the next probe; other failed calls do not.
        """
        health = self
        for result in results:
            health = _after_call(health, result, now=now)
        if health.failures >= FAILURES_TO_FAIL and (is_probe or not health.is_failing):
            health = _with_next_probe(health, now=now, jitter_permille=jitter_permille)
        if health.emitted and health.reads.count >= FAILURES_TO_FAIL:
            # Otherwise one successful call of another kind would emit `connection.recovered`, although all reads fail.
            health = replace(health, reads=replace(health.reads, is_reported=True))
        return replace(health, emitted=health.emitted and health.shown_since is not None)

    def should_emit_failing(self, *, now: datetime) -> bool:
        """Return whether `connection.failing` is due: all calls, or all reads, have failed for EMIT_AFTER."""
        if self.emitted or self.shown_since is None:
            return False
        return self.reads.is_reported or now - self.shown_since >= EMIT_AFTER


HEALTHY = ConnectionHealth()


def _after_call(health: ConnectionHealth, result: CallResult, *, now: datetime) -> ConnectionHealth:
    reads = health.reads.after(result.error, now=now) if result.is_read else health.reads
    if result.error is None:
        return ConnectionHealth(emitted=health.emitted, reads=reads)
    since = health.failing_since or now
    return replace(health, failures=health.failures + 1, failing_since=since, error=result.error, reads=reads)


def _with_next_probe(health: ConnectionHealth, *, now: datetime, jitter_permille: int) -> ConnectionHealth:
    """Return the health with the instant of the next probe.

    The next probe is due after the usual pause, or when `connection.failing` is due if that is earlier. The result of
    the probe then decides whether this event is emitted.
    """
    assert 0 <= jitter_permille <= MAX_JITTER_PERMILLE, jitter_permille
    assert health.failing_since is not None, "it has failed"
    delay = PROBE_DELAYS[min(health.probes, len(PROBE_DELAYS) - 1)]
    at = now + delay - delay * jitter_permille // 1000
    due_at = health.failing_since + EMIT_AFTER
    next_probe_at = min(at, due_at) if now < due_at else at
    return replace(health, probes=health.probes + 1, next_probe_at=next_probe_at)
