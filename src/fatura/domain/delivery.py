"""When an event is pushed again, when it is given up, and what an endpoint's answers say about it (D-39)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

DELAYS = (
    timedelta(seconds=5),
    timedelta(seconds=30),
    timedelta(minutes=2),
    timedelta(minutes=5),
    timedelta(minutes=30),
    timedelta(hours=2),
    timedelta(hours=5),
    timedelta(hours=10),
    timedelta(hours=14),
    timedelta(hours=20),
    timedelta(hours=24),
)
"""After each failure of an event, how long until it is tried again; jitter is added."""
MAX_ATTEMPTS = len(DELAYS) + 1
MAX_JITTER_PERMILLE = 100
PROBE_DELAYS = (*DELAYS[:4], timedelta(minutes=10))
"""After each failed round of an endpoint, how long until it is probed again; the last one repeats."""
MAX_CONCURRENT = 64
"""Most events that are sent to one endpoint beside each other."""
DISABLE_AFTER = timedelta(days=5)
"""How long everything has to fail before an endpoint is disabled."""
STALE_AFTER = timedelta(hours=30)
"""Longer than any open event waits: when nothing was tried for so long, older failures say nothing of an endpoint."""
assert DELAYS[-1] * (1000 + MAX_JITTER_PERMILLE) // 1000 < STALE_AFTER
LAST_RESORT_DELAY = timedelta(hours=24)
"""How often an event is tried after its last attempt, while its endpoint takes nothing at all."""
MAX_RETRY_AFTER = timedelta(hours=24)
"""How long a Retry-After may put an endpoint off."""
MIN_OUTAGE = PROBE_DELAYS[-1]
"""An endpoint that was down for so long may have made events wait that are fine themselves."""
HTTP_GONE = 410


class Outcome(StrEnum):
    """How one attempt ended."""

    DELIVERED = "delivered"
    TIMEOUT = "timeout"
    HTTP_ERROR = "http_error"


class DeliveryStatus(StrEnum):
    """What became of an event: `not_sent` was reported while no webhook was registered."""

    PENDING = "pending"
    DELIVERED = "delivered"
    GIVEN_UP = "given_up"
    NOT_SENT = "not_sent"


@dataclass(frozen=True, slots=True)
class Webhook:
    """Where an account's events are pushed; `disabled_at` is null while it is enabled."""

    url: str
    created_at: datetime
    disabled_at: datetime | None


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """What came of one attempt; `retry_after` is how long the endpoint asks to be left alone."""

    outcome: Outcome
    response_status: int | None
    latency_ms: int
    error: str | None
    response_body: str | None
    retry_after: timedelta | None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt as the log keeps it."""

    attempt: int
    url: str
    outcome: Outcome
    response_status: int | None
    latency_ms: int
    error: str | None
    response_body: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class EndpointHealth:
    """How an endpoint fares: `failing_since` is set while rounds fail whole, `next_attempt_at` puts it off."""

    at_once: int
    failures: int
    failing_since: datetime | None
    last_delivered_at: datetime | None
    next_attempt_at: datetime | None

    def without_stale_failures(self, *, now: datetime) -> "EndpointHealth":
        """Return what still counts: an endpoint that was due long ago and that nobody tried has not failed since."""
        if self.next_attempt_at is None or now - self.next_attempt_at < STALE_AFTER:
            return self
        return replace(self, failures=0, failing_since=None)

    def after_round(self, answers: Sequence[AttemptResult], *, now: datetime) -> "EndpointHealth":
        """Return how the endpoint fares after a round: any success brings it up, no success takes it down."""
        patience = [answer.retry_after for answer in answers if answer.retry_after is not None]
        if any(answer.outcome is Outcome.DELIVERED for answer in answers):
            more = max(self.at_once // 2, 1) if patience else min(self.at_once * 2, MAX_CONCURRENT)
            return EndpointHealth(more, 0, None, now, now + max(patience) if patience else None)
        before = self.without_stale_failures(now=now)
        delay = PROBE_DELAYS[min(before.failures, len(PROBE_DELAYS) - 1)]
        return replace(
            before,
            at_once=1,
            failures=before.failures + 1,
            failing_since=before.failing_since or now,
            next_attempt_at=now + max([delay, *patience]),
        )

    def recovered_from(self, before: "EndpointHealth", *, now: datetime) -> datetime | None:
        """Return since when an outage lasted that has ended in this round, or None when there was none."""
        since = before.failing_since
        return since if self.failures == 0 and since is not None and now - since >= MIN_OUTAGE else None

    def should_disable(self, answers: Sequence[AttemptResult], *, now: datetime) -> bool:
        """Say whether the endpoint is to be disabled: it is gone, or has failed everything for five days."""
        gone = any(answer.response_status == HTTP_GONE for answer in answers)
        return gone or (self.failing_since is not None and now - self.failing_since >= DISABLE_AFTER)


NEW_ENDPOINT = EndpointHealth(1, 0, None, None, None)


@dataclass(frozen=True, slots=True)
class Delivery:
    """Where one event stands: open until `next_attempt_at` is null; `failures` are those of its own schedule."""

    sequence: int
    attempts: int
    failures: int
    first_failed_at: datetime | None
    failed_at: datetime | None
    next_attempt_at: datetime | None
    delivered_at: datetime | None
    given_up_at: datetime | None

    @property
    def status(self) -> DeliveryStatus:
        """Return what became of the event."""
        if self.next_attempt_at is not None:
            return DeliveryStatus.PENDING
        return DeliveryStatus.DELIVERED if self.delivered_at is not None else DeliveryStatus.GIVEN_UP

    def delivered(self, *, now: datetime) -> "Delivery":
        """Return it after a success; one that was delivered before was delivered then, and in its turn."""
        return replace(
            self,
            attempts=self.attempts + 1,
            next_attempt_at=None,
            delivered_at=self.delivered_at or now,
            given_up_at=None,
        )

    def failed(
        self,
        result: AttemptResult,
        *,
        now: datetime,
        health: EndpointHealth,
        reserved_for: datetime,
        jitter_permille: int,
    ) -> "Delivery":
        """Return it after a failure; what was made due since it was `reserved_for` an instant stays so.

        `health` is the endpoint's after the round. An event that is closed stays closed.
        """
        if self.next_attempt_at is None:
            return replace(self, attempts=self.attempts + 1)
        after = replace(
            self,
            attempts=self.attempts + 1,
            failures=self.failures + 1,
            first_failed_at=self.first_failed_at or now,
            failed_at=now,
        )
        if self.next_attempt_at != reserved_for:
            return after
        next_at = _next_attempt_at(after, now, health=health, jitter_permille=jitter_permille)
        if next_at is None:
            return replace(after, next_attempt_at=None, given_up_at=now)
        return replace(after, next_attempt_at=max(next_at, now + (result.retry_after or timedelta())))


def _next_attempt_at(
    of: Delivery, now: datetime, *, health: EndpointHealth, jitter_permille: int
) -> datetime | None:
    """Return when it is tried again, or None: given up, though never while its endpoint takes nothing at all."""
    if of.failures < MAX_ATTEMPTS:
        delay = DELAYS[of.failures - 1]
        return now + delay + delay * jitter_permille // 1000
    assert of.first_failed_at is not None, "it has failed"
    if health.last_delivered_at is not None and health.last_delivered_at >= of.first_failed_at:
        return None
    assert health.failing_since is not None, "nothing was delivered, so the round failed whole"
    return min(now + LAST_RESORT_DELAY, health.failing_since + DISABLE_AFTER)
