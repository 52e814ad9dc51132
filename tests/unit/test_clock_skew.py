"""The engine measures the clock skew at most once a second, but immediately after somebody sets the host's clock."""

from datetime import UTC, datetime, timedelta

from fatura.usecases.clock_skew import ClockSkew


class _Clocks:
    """A host clock that is ahead by `set_by`, and a database clock. `asked` counts the reads of the database clock."""

    def __init__(self) -> None:
        self.set_by = timedelta()
        self.asked = 0

    def host(self) -> datetime:
        return datetime.now(UTC) + self.set_by

    async def database(self) -> datetime:
        self.asked += 1
        return datetime.now(UTC)


async def test_one_read_is_used_for_a_second() -> None:
    """[D-5]"""
    clocks, clock_skew = _Clocks(), ClockSkew()
    skews = [await clock_skew.get(clocks.host, clocks.database) for _ in range(100)]
    assert clocks.asked == 1
    assert all(abs(skew) < timedelta(seconds=1) for skew in skews)


async def test_a_clock_that_was_set_is_noticed_at_once() -> None:
    """[D-5]"""
    clocks, clock_skew = _Clocks(), ClockSkew()
    for years in (10, 0, -10):
        clocks.set_by = timedelta(days=365 * years)
        skew = await clock_skew.get(clocks.host, clocks.database)
        assert abs(skew + clocks.set_by) < timedelta(seconds=1)
    assert clocks.asked == 3
