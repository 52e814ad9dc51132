"""When deliveries are retried, how endpoint health changes, and what responses mean."""

from datetime import UTC, datetime, timedelta

import pytest

from fatura.domain.delivery import (
    MAX_ATTEMPTS,
    NEW_ENDPOINT,
    RETRY_DELAYS,
    AttemptResult,
    Delivery,
    DeliveryStatus,
    EndpointHealth,
    Outcome,
)
from fatura.outbound.http import Exchange, ExchangeOutcome
from fatura.outbound.webhook import parse_retry_after, read

NOW = datetime(2033, 11, 20, 15, tzinfo=UTC)
REAL = datetime(2026, 11, 27, 15, tzinfo=UTC)
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
GOOD = AttemptResult(Outcome.DELIVERED, 200, 5, None, None, None)
BAD = AttemptResult(Outcome.HTTP_ERROR, 500, 5, "answered 500", "", None)
OPEN = Delivery(1, 0, 0, None, None, NOW, None, None)


def with_retry_after(**duration: int) -> AttemptResult:
    """Return a failed attempt whose response has a Retry-After of this duration."""
    return AttemptResult(Outcome.HTTP_ERROR, 503, 5, "answered 503", "", timedelta(**duration))


def test_an_event_is_attempted_twelve_times():
    """Without jitter, the last attempt is 75 hours, 37 minutes and 35 seconds after the first. [D-39 schedule]"""
    assert MAX_ATTEMPTS == 12
    seconds = [int(delay.total_seconds()) for delay in RETRY_DELAYS]
    assert seconds == [5, 30, 120, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400]


@pytest.mark.parametrize("jitter_permille", [0, 100])
def test_an_event_is_given_up_after_the_schedule(jitter_permille: int):
    """[D-39 schedule]"""
    health = EndpointHealth(1, 1, NOW, NOW, NOW, REAL)
    each, at = OPEN, NOW
    for failures, delay in enumerate(RETRY_DELAYS, 1):
        each = each.failed(BAD, now=at, health=health, claimed_for=at, jitter_permille=jitter_permille)
        assert (each.attempts, each.failures, each.status) == (failures, failures, DeliveryStatus.PENDING)
        at += delay * (1000 + jitter_permille) // 1000
        assert each.next_attempt_at == at
    last = each.failed(BAD, now=at, health=health, claimed_for=at, jitter_permille=0)
    assert (last.attempts, last.status, last.given_up_at) == (12, DeliveryStatus.GIVEN_UP, at)


def test_an_event_is_not_given_up_while_all_deliveries_fail():
    """[D-39 schedule]"""
    tried = Delivery(1, 11, 11, NOW, NOW + 2 * DAY, NOW + 3 * DAY, None, None)
    dead = EndpointHealth(1, 400, NOW, NOW - HOUR, NOW + 3 * DAY, REAL)
    at = NOW + 3 * DAY
    once = tried.failed(BAD, now=at, health=dead, claimed_for=at, jitter_permille=100)
    assert (once.failures, once.next_attempt_at) == (12, at + DAY)
    at += DAY + 3 * HOUR
    again = once.failed(BAD, now=at, health=dead, claimed_for=NOW + 4 * DAY, jitter_permille=100)
    assert (again.failures, again.next_attempt_at) == (13, NOW + 5 * DAY)


def test_a_redelivery_requested_during_an_attempt_stays_due():
    """[D-39 redeliver]"""
    asked = Delivery(1, 3, 3, NOW, NOW, NOW + HOUR, None, None)
    after = asked.failed(BAD, now=NOW, health=NEW_ENDPOINT, claimed_for=NOW, jitter_permille=0)
    assert (after.attempts, after.failures, after.next_attempt_at) == (4, 4, NOW + HOUR)
    closed = OPEN.delivered(now=NOW)
    assert (closed.attempts, closed.status) == (1, DeliveryStatus.DELIVERED)
    late = closed.failed(BAD, now=NOW + HOUR, health=NEW_ENDPOINT, claimed_for=NOW, jitter_permille=0)
    assert (late.attempts, late.status, late.failures) == (2, DeliveryStatus.DELIVERED, 0)


def test_retry_after_only_lengthens_the_delay():
    """[D-39 Retry-After]"""
    for minutes, expected in ((10, timedelta(minutes=10)), (0, timedelta(seconds=5))):
        each = OPEN.failed(
            with_retry_after(minutes=minutes),
            now=NOW,
            health=NEW_ENDPOINT,
            claimed_for=NOW,
            jitter_permille=0,
        )
        assert each.next_attempt_at == NOW + expected


def test_an_endpoint_goes_down_and_up():
    """While all attempts fail, one probe at a time is sent, with growing delays. Each round with a success
    doubles the maximum number of concurrent pushes, up to 64. [D-39 probes]
    """
    health, at, waits = NEW_ENDPOINT, NOW, list[int]()
    for _ in range(7):
        health = health.after_round([BAD, BAD], now=at, real_now=at)
        assert (health.max_concurrent, health.failing_since) == (1, NOW)
        assert health.next_attempt_at is not None
        waits.append(int((health.next_attempt_at - at).total_seconds()))
        at = health.next_attempt_at
    assert waits == [5, 30, 120, 300, 600, 600, 600]
    sizes: list[int] = []
    for _ in range(8):
        health = health.after_round([GOOD, BAD], now=at, real_now=at)
        assert (health.failures, health.failing_since, health.next_attempt_at) == (0, None, None)
        assert health.real_failing_since is None
        sizes.append(health.max_concurrent)
    assert sizes == [2, 4, 8, 16, 32, 64, 64, 64]
    assert health.last_delivered_at == at


def test_an_endpoint_is_paused_for_the_longest_retry_after():
    """[D-39 Retry-After]"""
    busy = EndpointHealth(64, 0, None, None, None, None)
    pauses = [with_retry_after(seconds=30), with_retry_after(seconds=90)]
    slower = busy.after_round([GOOD, *pauses], now=NOW, real_now=REAL)
    assert (slower.max_concurrent, slower.next_attempt_at) == (32, NOW + timedelta(seconds=90))
    down = busy.after_round([with_retry_after(hours=2)], now=NOW, real_now=REAL)
    assert (down.max_concurrent, down.next_attempt_at) == (1, NOW + 2 * HOUR)


@pytest.mark.parametrize(
    ("health", "answers", "hopeless"),
    [
        (EndpointHealth(1, 9, NOW - 5 * DAY, None, NOW, REAL - 10 * MINUTE), [BAD], True),  # [D-39 disabling]
        (EndpointHealth(1, 9, NOW - 5 * DAY + SECOND, None, NOW, REAL - 5 * DAY), [BAD], False),
        (EndpointHealth(1, 9, NOW - 9 * DAY, None, NOW, REAL - 10 * MINUTE + SECOND), [BAD], False),  # [D-65]
        (
            EndpointHealth(8, 0, None, NOW, None, None),
            [GOOD, AttemptResult(Outcome.HTTP_ERROR, 410, 1, "", "", None)],
            True,
        ),
        (EndpointHealth(8, 0, None, NOW, None, None), [GOOD, BAD], False),
    ],
)
def test_an_endpoint_is_disabled_after_five_days_or_a_410(
    health: EndpointHealth, answers: list[AttemptResult], *, hopeless: bool
):
    """[D-39 disabling, D-39 gone]"""
    assert health.should_disable(answers, now=NOW, real_now=REAL) is hopeless


def test_an_endpoint_that_no_longer_has_to_be_disabled_soon_is_probed_daily():
    """All pushes have failed for six days on the test clock, but not yet for ten minutes of real time. [D-250]"""
    failing = EndpointHealth(1, 400, NOW - 6 * DAY, None, NOW, REAL)
    assert failing.after_round([BAD], now=NOW, real_now=REAL).next_attempt_at == NOW + DAY
    tried = Delivery(1, 20, 20, NOW - 6 * DAY, NOW - DAY, NOW, None, None)
    again = tried.failed(BAD, now=NOW, health=failing, claimed_for=NOW, jitter_permille=0)
    assert again.next_attempt_at == NOW + DAY


def test_failures_before_a_long_gap_do_not_count():
    """If an attempt is made 30 hours or more after it was due, the failures before it no longer count.

    [D-39 disabling]
    """
    failed = EndpointHealth(1, 9, NOW - 4 * DAY, NOW - 6 * DAY, NOW, REAL)
    assert failed.after_round([BAD], now=NOW + 27 * HOUR, real_now=REAL).failing_since == NOW - 4 * DAY
    later = NOW + 30 * DAY
    anew = failed.after_round([BAD], now=later, real_now=REAL + DAY)
    assert (anew.failures, anew.failing_since, anew.real_failing_since) == (1, later, REAL + DAY)
    assert anew.next_attempt_at == later + timedelta(seconds=5)
    assert not anew.should_disable([BAD], now=later, real_now=REAL + DAY)
    assert failed.without_stale_failures(now=later) == EndpointHealth(1, 0, None, NOW - 6 * DAY, NOW, None)


@pytest.mark.parametrize(
    ("ended", "status", "outcome", "error"),
    [
        (ExchangeOutcome.ANSWERED, 200, "delivered", None),
        (ExchangeOutcome.ANSWERED, 299, "delivered", None),
        (ExchangeOutcome.BROKEN_ANSWER, 200, "delivered", None),
        (ExchangeOutcome.TIMED_OUT, 204, "delivered", None),
        (ExchangeOutcome.ANSWERED, 199, "http_error", "answered 199"),
        (ExchangeOutcome.ANSWERED, 302, "http_error", "answered 302; redirects are not followed"),
        (ExchangeOutcome.ANSWERED, 500, "http_error", "answered 500"),
        (ExchangeOutcome.BROKEN_ANSWER, 500, "http_error", "too long"),
        (ExchangeOutcome.TIMED_OUT, None, "timeout", "too long"),
        (ExchangeOutcome.TIMED_OUT, 500, "timeout", "too long"),
        (ExchangeOutcome.UNREACHABLE, None, "http_error", "too long"),
    ],
)
def test_a_2xx_in_time_is_a_delivery(
    ended: ExchangeOutcome, status: int | None, outcome: str, error: str | None
):
    """[D-39 outcomes]"""
    exchange = Exchange(
        ended, status, b"body", 7, None if ended is ExchangeOutcome.ANSWERED else "too long", "60"
    )
    answer = read(exchange, real_now=NOW)
    assert (answer.outcome, answer.error, answer.latency_ms) == (outcome, error, 7)
    failed = outcome != "delivered"
    assert answer.retry_after == (timedelta(minutes=1) if failed else None)
    assert answer.response_body == ("body" if failed and status is not None else None)


@pytest.mark.parametrize(
    ("header", "waits"),
    [
        ("120", timedelta(minutes=2)),
        (" 0 ", timedelta()),
        ("86401", DAY),
        ("9" * 400, DAY),
        ("Sun, 20 Nov 2033 18:00:00 GMT", 3 * HOUR),
        ("Sun, 20 Nov 2033 14:00:00 GMT", timedelta()),
        ("Sun, 20 Nov 2043 14:00:00 GMT", DAY),
        ("Sun, 20 Nov 2033 18:00:00", 3 * HOUR),
        (None, None),
        ("", None),
        ("-5", None),
        ("1.5", None),
        ("٣", None),
        ("soon", None),
        ("Sun, 99 Nov 2033 18:00:00 GMT", None),
        ("\udcff" * 50, None),
    ],
)
def test_retry_after_is_seconds_or_a_date(header: str | None, waits: timedelta | None):
    """[D-39 Retry-After]"""
    assert parse_retry_after(header, real_now=NOW) == waits
