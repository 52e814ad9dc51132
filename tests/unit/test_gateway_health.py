"""When a connection counts as failing, when it is probed, and how fast its charges are polled (D-55)."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from fatura.domain.charging import PollBudget
from fatura.domain.gateway_health import HEALTHY, NO_FAILED_READS, CallError, CallResult, ConnectionHealth

NOW = datetime(2033, 11, 20, 12, tzinfo=UTC)
FAILED = CallResult(CallError("timeout", "no answer within 20 s"))
ANSWERED = CallResult(None)
FAILED_READ = CallResult(CallError("unknown", "get_charge: it answered with an error"), is_read=True)
READ = CallResult(None, is_read=True)


def after(
    *results: CallResult,
    health: ConnectionHealth = HEALTHY,
    at: datetime = NOW,
    is_probe: bool = False,
    jitter: int = 0,
) -> ConnectionHealth:
    return health.after_calls(results, now=at, is_probe=is_probe, jitter_permille=jitter)


@pytest.mark.parametrize(
    ("results", "is_failing"),
    [
        ((FAILED, FAILED), False),
        ((FAILED, FAILED, FAILED), True),
        ((FAILED, FAILED, ANSWERED, FAILED, FAILED), False),
        ((FAILED, FAILED, FAILED, ANSWERED), False),
    ],
)
def test_three_failures_in_a_row_count(results: tuple[CallResult, ...], *, is_failing: bool) -> None:
    """[D-55 failing]"""
    assert after(*results).is_failing is is_failing
    one_by_one = HEALTHY
    for result in results:
        one_by_one = after(result, health=one_by_one)
    assert one_by_one.is_failing is is_failing


def test_the_pauses_between_probes_grow_to_a_quarter_of_an_hour() -> None:
    """One pause is shorter, because a probe is also sent when `connection.failing` is due.

    [D-55 failing, D-55 events]
    """
    health, at, pauses = after(FAILED, FAILED, FAILED), NOW, list[float]()
    for _ in range(11):
        assert health.next_probe_at is not None
        pauses.append((health.next_probe_at - at).total_seconds())
        at = health.next_probe_at
        assert health.should_emit_failing(now=at) is (at >= NOW + timedelta(hours=1))
        health = after(FAILED, health=health, at=at, is_probe=True)
    assert pauses == [30, 60, 120, 300, 600, 900, 900, 690, 900, 900, 900]


def test_jitter_shortens_a_pause() -> None:
    """[D-55 failing]"""
    assert after(FAILED, FAILED, FAILED, jitter=200).next_probe_at == NOW + timedelta(seconds=24)


def test_late_answers_of_other_calls_do_not_delay_the_probe() -> None:
    """Another call began before the connection was failing, and ends with an error later. [D-55 failing]"""
    failing = after(FAILED, FAILED, FAILED)
    later = after(FAILED, health=failing, at=NOW + timedelta(seconds=20))
    assert (later.next_probe_at, later.probes) == (failing.next_probe_at, failing.probes)
    assert not after(ANSWERED, health=later).is_failing


def reported(minutes: dict[int, CallResult], *, health: ConnectionHealth = HEALTHY) -> list[int]:
    """Return the minutes in which `connection.failing` is due.

    `minutes` has the result of each call by the minute in which the call ended.
    """
    due: list[int] = []
    for minute, result in minutes.items():
        at = NOW + timedelta(minutes=minute)
        health = after(result, health=health, at=at)
        if health.should_emit_failing(now=at):
            due.append(minute)
            health = replace(health, emitted=True)
    return due


@pytest.mark.parametrize(
    ("minutes", "expected"),
    [
        (
            {0: FAILED_READ, 20: FAILED_READ, 40: ANSWERED, 60: FAILED_READ, 61: ANSWERED, 90: FAILED_READ},
            [60],
        ),
        (
            {0: FAILED_READ, 20: FAILED_READ, 40: READ, 60: FAILED_READ, 99: FAILED_READ, 120: FAILED_READ},
            [120],
        ),
        ({0: FAILED_READ, 1: ANSWERED, 500: ANSWERED, 900: FAILED_READ, 901: ANSWERED}, []),
        ({0: FAILED_READ, 1: FAILED_READ, 2: ANSWERED, 3: FAILED_READ, 4: ANSWERED, 99: ANSWERED}, []),
        ({0: FAILED_READ, 1: FAILED_READ, 2: READ, 70: ANSWERED, 71: FAILED, 72: ANSWERED}, []),
    ],
)
def test_an_hour_of_failed_reads_is_reported_though_other_calls_succeed(
    minutes: dict[int, CallResult], expected: list[int]
) -> None:
    """`connection.failing` is due if at least three reads fail in a row, the last an hour or more after the first.

    [D-55 reads]
    """
    assert reported(minutes) == expected


def failing_reads() -> ConnectionHealth:
    health = HEALTHY
    for minute in (0, 30, 60):
        health = after(FAILED_READ, ANSWERED, health=health, at=NOW + timedelta(minutes=minute))
    return replace(health, emitted=True)


def test_only_a_read_ends_the_failure_of_reads() -> None:
    """Reads fail for an hour while other calls succeed. The connection is shown as failing, but no call waits.

    [D-55 reads, D-55 health]
    """
    health = failing_reads()
    for result in (ANSWERED, FAILED, ANSWERED):
        health = after(result, health=health)
        assert (health.shown_since, health.shown_error, health.emitted) == (NOW, FAILED_READ.error, True)
        assert not health.is_failing
    assert after(READ, health=health) == HEALTHY


def test_a_connection_recovers_when_both_reads_and_other_calls_work() -> None:
    """[D-55 reads, D-55 events]"""
    later = NOW + timedelta(hours=2)
    health = after(FAILED, FAILED, FAILED, health=failing_reads(), at=later)
    assert health.is_failing
    assert health.shown_since == NOW
    sends = after(ANSWERED, health=health)
    assert not sends.is_failing
    assert sends.emitted
    reads = after(READ, FAILED, FAILED, FAILED, health=health, at=later)
    assert (reads.emitted, reads.shown_since, reads.reads) == (True, later, NO_FAILED_READS)
    assert after(ANSWERED, health=reads) == HEALTHY


@pytest.mark.parametrize(("polls", "recovers"), [(2, True), (3, False)])
def test_a_created_charge_ends_no_reported_failure_while_three_polls_failed(
    polls: int, *, recovers: bool
) -> None:
    """The gateway of a connection that was reported as failing creates a charge.

    The connection recovers if two polls have just failed, but not if three have. [D-55 reads, D-55 events]
    """
    health = replace(after(FAILED, FAILED, FAILED), emitted=True)
    health = after(*[FAILED_READ] * polls, health=health, at=NOW + timedelta(hours=2))
    sends = after(ANSWERED, health=health, at=NOW + timedelta(hours=2, minutes=5))
    assert (sends.is_failing, sends.emitted, sends.shown_since is None) == (False, not recovers, recovers)
    assert after(READ, health=sends) == HEALTHY


def test_all_polls_of_a_second_may_be_made_at_its_start() -> None:
    """[D-55 budget]"""
    budget = PollBudget(120, NOW - timedelta(days=1))
    assert budget.room(real_now=NOW) == 2
    assert budget.free_after(2, real_now=NOW) == NOW + timedelta(seconds=1)
    spent, early = PollBudget(120, NOW + timedelta(seconds=1)), NOW + timedelta(seconds=0.4)
    assert (spent.room(real_now=early), spent.delay(real_now=early)) == (0, timedelta(seconds=0.6))


def test_polls_that_stay_due_are_made_in_their_turn() -> None:
    """[D-55 budget]"""
    at, budget, waiting = NOW, PollBudget(120, None), 5
    made: list[float] = []
    while waiting and at < NOW + timedelta(minutes=1):
        polls = min(waiting, budget.room(real_now=at))
        if polls:
            made += [(at - NOW).total_seconds()] * polls
            budget = PollBudget(120, budget.free_after(polls, real_now=at))
        waiting -= polls
        at += timedelta(seconds=0.05)
    assert made == [0, 0, 1, 1, 2]
