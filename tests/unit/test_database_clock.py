"""The engine uses the database's time. About once a second, it measures how far the host's clock differs from it."""

from datetime import UTC, datetime, timedelta

import pytest

from fatura.usecases.database_clock import MAX_CLOCK_SKEW, DatabaseClock, WrongClockError


class _Clocks:
    """A host clock that is ahead by `set_by`, and a database clock. `asked` counts the reads of the database clock."""

    def __init__(self, *, set_by: timedelta = timedelta()) -> None:
        self.set_by = set_by
        self.asked = 0

    def host(self) -> datetime:
        return datetime.now(UTC) + self.set_by

    async def database(self) -> datetime:
        self.asked += 1
        return datetime.now(UTC)


def difference(clock: DatabaseClock) -> float:
    """Return the absolute difference between the engine's time and the database's time, in seconds."""
    return abs((clock() - datetime.now(UTC)).total_seconds())


async def test_one_read_is_used_for_a_second() -> None:
    """[D-5]"""
    clocks = _Clocks()
    clock = DatabaseClock(clocks.host)
    skews = [await clock.skew(clocks.database) for _ in range(100)]
    assert clocks.asked == 1
    assert all(abs(skew) < timedelta(seconds=1) for skew in skews)


async def test_a_clock_that_was_set_is_noticed_at_once() -> None:
    """[D-5]"""
    clocks = _Clocks()
    clock = DatabaseClock(clocks.host)
    for years in (10, 0, -10):
        clocks.set_by = timedelta(days=365 * years)
        skew = await clock.skew(clocks.database)
        assert abs(skew + clocks.set_by) < timedelta(seconds=1)
        assert difference(clock) < 1
    assert clocks.asked == 3


@pytest.mark.parametrize("seconds", [-29, 29])
async def test_hosts_with_different_clocks_have_the_same_time(seconds: int) -> None:
    """[D-5]"""
    clocks = _Clocks(set_by=timedelta(seconds=seconds))
    clock = DatabaseClock(clocks.host)
    await clock.check(clocks.database)
    assert difference(clock) < 1


async def test_a_slow_query_does_not_move_a_right_clock() -> None:
    """The database's answer arrives 5 s late, so the host's clock seems 5 s ahead. The engine ignores this. [D-5]"""

    async def ask() -> datetime:
        told = now
        clocks.set_by += timedelta(seconds=5)
        return told

    clocks = _Clocks()
    clock = DatabaseClock(clocks.host)
    now = clocks.host()
    assert await clock.skew(ask) < timedelta(seconds=-4)
    assert clock() - clocks.host() < timedelta(microseconds=1000)
    assert clocks.host() - clock() < timedelta(microseconds=1000)


async def test_a_wrong_clock_is_refused() -> None:
    """[D-5]"""
    clocks = _Clocks(set_by=MAX_CLOCK_SKEW + timedelta(seconds=1))
    with pytest.raises(WrongClockError):
        await DatabaseClock(clocks.host).check(clocks.database)
