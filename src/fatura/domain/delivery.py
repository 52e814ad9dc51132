"""Rules for retrying webhook deliveries, giving them up, and rating an endpoint's health (D-39)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

RETRY_DELAYS = (
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
"""Pause after each failed attempt of a delivery; jitter is added."""
MAX_ATTEMPTS = len(RETRY_DELAYS) + 1
MAX_JITTER_PERMILLE = 100
PROBE_DELAYS = (*RETRY_DELAYS[:4], timedelta(minutes=10))
"""Pause after each failed round of requests before the endpoint is tried again.

The last pause repeats. Once the endpoint has failed for DISABLE_AFTER, the pause is LAST_RESORT_DELAY.
"""
MAX_CONCURRENT = 64
"""Maximum number of concurrent requests to one endpoint."""
DISABLE_AFTER = timedelta(days=5)
"""A webhook is disabled when every attempt has failed for this long on the account's clock."""
DISABLE_AFTER_REAL = timedelta(minutes=10)
"""A webhook is disabled only if every attempt has also failed for this long in real time (D-65).

This matters only with a test clock, which can pass five days while the receiver restarts.
"""
STALE_AFTER = timedelta(hours=30)
"""An endpoint's failures are forgotten if no attempt was made for this long after `next_attempt_at`.

This time is longer than every retry delay, so the failures of an endpoint with a pending delivery are kept.
"""
assert RETRY_DELAYS[-1] * (1000 + MAX_JITTER_PERMILLE) // 1000 < STALE_AFTER
LAST_RESORT_DELAY = timedelta(hours=24)
"""Maximum pause between further attempts of a delivery that has used up RETRY_DELAYS.

Further attempts are made only if the endpoint has accepted no event since the delivery's first failure. An endpoint
that has failed for DISABLE_AFTER but is not disabled yet is tried again after this pause.
"""
MAX_RETRY_AFTER = timedelta(hours=24)
MIN_OUTAGE = PROBE_DELAYS[-1]
"""When an outage of at least this length ends, the deliveries that it delayed are rescheduled."""
HTTP_GONE = 410


class Outcome(StrEnum):
    """How one attempt ended."""

    DELIVERED = "delivered"
    TIMEOUT = "timeout"
    HTTP_ERROR = "http_error"


class DeliveryStatus(StrEnum):
    """The state of an event's delivery; `not_sent` events were emitted while no webhook was registered."""

    PENDING = "pending"
    DELIVERED = "delivered"
    GIVEN_UP = "given_up"
    NOT_SENT = "not_sent"


@dataclass(frozen=True, slots=True)
class Webhook:
    """Where an account's events are delivered; `disabled_at` is null while the webhook is enabled."""

    url: str
    created_at: datetime
    disabled_at: datetime | None


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """The result of one request; `retry_after` is the pause from the response's Retry-After header."""

    outcome: Outcome
    response_status: int | None
    latency_ms: int
    error: str | None
    response_body: str | None
    retry_after: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One logged attempt to deliver the event with the number `sequence`."""

    sequence: int
    number: int
    url: str
    created_at: datetime
    result: AttemptResult


@dataclass(frozen=True, slots=True)
class EndpointHealth:
    """An endpoint's recent successes and failures.

    A worker sends the requests of a round at the same time. A round fails if no request in it succeeds. `failures`
    counts the rounds that failed since the last success. `failing_since` is when the first of these rounds ended, and
    `real_failing_since` is the same instant in real time. No event is sent before `next_attempt_at`.
    """

    max_concurrent: int
    failures: int
    failing_since: datetime | None
    last_delivered_at: datetime | None
    next_attempt_at: datetime | None
    real_failing_since: datetime | None

    def without_stale_failures(self, *, now: datetime) -> "EndpointHealth":
        """Return this health, without its failures if STALE_AFTER has passed since `next_attempt_at`."""
        if self.next_attempt_at is None or now - self.next_attempt_at < STALE_AFTER:
            return self
        return replace(self, failures=0, failing_since=None, real_failing_since=None)

    def after_round(
        self, results: Sequence[AttemptResult], *, now: datetime, real_now: datetime
    ) -> "EndpointHealth":
        """Return the health after a round of requests. If any request succeeded, the failures are cleared."""
        retry_after = [result.retry_after for result in results if result.retry_after is not None]
        if any(result.outcome is Outcome.DELIVERED for result in results):
            concurrent = self.max_concurrent // 2 if retry_after else self.max_concurrent * 2
            return EndpointHealth(
                max_concurrent=min(max(concurrent, 1), MAX_CONCURRENT),
                failures=0,
                failing_since=None,
                last_delivered_at=now,
                next_attempt_at=now + max(retry_after) if retry_after else None,
                real_failing_since=None,
            )
        before = self.without_stale_failures(now=now)
        delay = PROBE_DELAYS[min(before.failures, len(PROBE_DELAYS) - 1)]
        if before.failing_since is not None and now - before.failing_since >= DISABLE_AFTER:
            delay = LAST_RESORT_DELAY
        return replace(
            before,
            max_concurrent=1,
            failures=before.failures + 1,
            failing_since=before.failing_since or now,
            next_attempt_at=now + max([delay, *retry_after]),
            real_failing_since=before.real_failing_since or real_now,
        )

    def recovered_from(self, before: "EndpointHealth", *, now: datetime) -> datetime | None:
        """Return the start of the outage that has just ended; `before` is the health before the newest round.

        Return None if no outage ended, or if the outage was shorter than MIN_OUTAGE.
        """
        since = before.failing_since
        return since if self.failures == 0 and since is not None and now - since >= MIN_OUTAGE else None

    def should_disable(self, results: Sequence[AttemptResult], *, now: datetime, real_now: datetime) -> bool:
        """Return whether the endpoint answered 410 Gone, or failed too long in account time and in real time (D-65)."""
        if any(result.response_status == HTTP_GONE for result in results):
            return True
        if self.failing_since is None or self.real_failing_since is None:
            return False
        return (
            now - self.failing_since >= DISABLE_AFTER
            and real_now - self.real_failing_since >= DISABLE_AFTER_REAL
        )


NEW_ENDPOINT = EndpointHealth(
    max_concurrent=1,
    failures=0,
    failing_since=None,
    last_delivered_at=None,
    next_attempt_at=None,
    real_failing_since=None,
)


@dataclass(frozen=True, slots=True)
class Delivery:
    """The state of one event's delivery: pending while `next_attempt_at` is set, else closed.

    If a delivered event is sent again, its delivery becomes pending. When the new attempts end, the delivery is closed
    as delivered, even if all of them failed. `attempts` counts all requests. `failures` counts the failed requests
    since the start of the current retry schedule.
    """

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
        if self.next_attempt_at is not None:
            return DeliveryStatus.PENDING
        return DeliveryStatus.DELIVERED if self.delivered_at is not None else DeliveryStatus.GIVEN_UP

    def delivered(self, *, now: datetime) -> "Delivery":
        """Return the delivery after a success. `delivered_at` keeps the time of the first success."""
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
        claimed_for: datetime,
        jitter_permille: int,
    ) -> "Delivery":
        """Return the delivery after a failure; `health` is the endpoint's health after the round.

        `claimed_for` is the `next_attempt_at` that the worker read when it claimed the delivery. If another transaction
        has changed `next_attempt_at` since the claim, the changed value is kept. A closed delivery stays closed.
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
        if self.next_attempt_at != claimed_for:
            return after
        next_at = _next_attempt_at(after, now, health=health, jitter_permille=jitter_permille)
        if next_at is None:
            return replace(after, next_attempt_at=None, given_up_at=None if self.delivered_at else now)
        return replace(after, next_attempt_at=max(next_at, now + (result.retry_after or timedelta())))


def _next_attempt_at(
    of: Delivery, now: datetime, *, health: EndpointHealth, jitter_permille: int
) -> datetime | None:
    """Return when to retry, or None to give up.

    Give up only after MAX_ATTEMPTS failures, and only if the endpoint accepted another event since the delivery's first
    failure.
    """
    if of.failures < MAX_ATTEMPTS:
        delay = RETRY_DELAYS[of.failures - 1]
        return now + delay + delay * jitter_permille // 1000
    assert of.first_failed_at is not None, "it has failed"
    if health.last_delivered_at is not None and health.last_delivered_at >= of.first_failed_at:
        return None
    assert health.failing_since is not None, "the endpoint accepted nothing in this round"
    disabled_at = health.failing_since + DISABLE_AFTER
    return min(now + LAST_RESORT_DELAY, disabled_at) if disabled_at > now else now + LAST_RESORT_DELAY
