"""When a connection counts as failing, when it is probed, and how fast its charges are polled (D-55)."""

from datetime import UTC, datetime, timedelta

import pytest

from fatura.domain.charging import PollBudget
from fatura.domain.gateway_health import HEALTHY, CallError, CallResult, ConnectionHealth

NOW = datetime(2033, 11, 20, 12, tzinfo=UTC)
FAILED = CallError("timeout", "no answer within 20 s")


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
        ((FAILED, FAILED, None, FAILED, FAILED), False),
        ((FAILED, FAILED, FAILED, None), False),
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
    """A probe is also sent when `connection.failing` is due. [D-55 failing, D-55 events]"""
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
    """Calls that began before the connection was failing may end with an error later. [D-55 failing]"""
    failing = after(FAILED, FAILED, FAILED)
    later = after(FAILED, health=failing, at=NOW + timedelta(seconds=20))
    assert (later.next_probe_at, later.probes) == (failing.next_probe_at, failing.probes)
    assert not after(None, health=later).is_failing


def test_all_polls_of_a_second_may_be_made_at_its_start() -> None:
    """[D-55 budget]"""
    budget = PollBudget(2, NOW - timedelta(days=1))
    assert budget.room(real_now=NOW) == 2
    assert budget.free_after(2, real_now=NOW) == NOW + timedelta(seconds=1)
    spent, early = PollBudget(2, NOW + timedelta(seconds=1)), NOW + timedelta(seconds=0.4)
    assert (spent.room(real_now=early), spent.delay(real_now=early)) == (0, timedelta(seconds=0.6))


def test_polls_that_stay_due_are_made_in_their_turn() -> None:
    """[D-55 budget]"""
    at, budget, waiting = NOW, PollBudget(2, None), 5
    made: list[float] = []
    while waiting and at < NOW + timedelta(minutes=1):
        polls = min(waiting, budget.room(real_now=at))
        if polls:
            made += [(at - NOW).total_seconds()] * polls
            budget = PollBudget(2, budget.free_after(polls, real_now=at))
        waiting -= polls
        at += timedelta(seconds=0.05)
    assert made == [0, 0, 1, 1, 2]
