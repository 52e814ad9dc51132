"""Concurrent callers share one call, whose result is kept for a while (D-202)."""

import asyncio

from fatura.shared_call import SharedCall, SharedLookups


class Measurement:
    """Counts its calls. The calls end when `end` is set, and the first call raises ValueError."""

    def __init__(self) -> None:
        self.calls = 0
        self.end = asyncio.Event()

    async def __call__(self) -> int:
        self.calls += 1
        await self.end.wait()
        if self.calls == 1:
            raise ValueError
        return self.calls


async def test_concurrent_callers_share_one_call_whose_result_is_kept():
    """An error reaches every caller and is not kept. A canceled caller does not cancel the call. [D-202]"""
    seconds = 0.0
    shared, measure = SharedCall[int](keep_seconds=1, clock=lambda: seconds), Measurement()
    callers = [asyncio.create_task(shared.get(measure)) for _ in range(100)]
    await asyncio.sleep(0)
    callers[0].cancel()
    measure.end.set()
    results = await asyncio.gather(*callers, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError)
    assert {type(each) for each in results[1:]} == {ValueError}
    assert await asyncio.gather(*(shared.get(measure) for _ in range(100))) == [2] * 100
    seconds = 0.9
    assert await shared.get(measure) == 2
    seconds = 1.1
    assert await shared.get(measure) == 3


class Lookups:
    """Counts the look-ups that have begun, and those that are running. Look-ups end when `end` is set."""

    def __init__(self) -> None:
        self.begun = self.running = self.most = 0
        self.end = asyncio.Event()

    async def __call__(self) -> int:
        self.begun += 1
        number = self.begun
        self.running += 1
        self.most = max(self.most, self.running)
        await self.end.wait()
        self.running -= 1
        return number


async def test_callers_share_a_lookup_that_has_not_begun():
    """A caller gets the result of a look-up that began after the caller asked.

    Canceling one caller does not cancel the others. [D-241]
    """
    shared, lookups = SharedLookups(), Lookups()
    first = asyncio.create_task(shared.get(lookups, group="account", key="one"))
    await asyncio.sleep(0.01)
    later = [asyncio.create_task(shared.get(lookups, group="account", key="one")) for _ in range(100)]
    await asyncio.sleep(0.01)
    later[0].cancel()
    assert lookups.begun == 1
    lookups.end.set()
    assert await first == 1
    assert set(await asyncio.gather(*later[1:])) == {2}
    assert not shared._waiting


async def test_a_group_runs_one_lookup_at_a_time():
    """[D-241]"""
    shared, lookups = SharedLookups(), Lookups()
    calls = [
        asyncio.create_task(shared.get(lookups, group=group, key=(group, key)))
        for group in ("one", "other")
        for key in range(5)
    ]
    await asyncio.sleep(0.01)
    assert lookups.running == 2
    lookups.end.set()
    assert sorted(await asyncio.gather(*calls)) == list(range(1, 11))
    assert lookups.most == 2
    assert not shared._turns


async def test_a_failed_lookup_fails_for_its_callers_only():
    """[D-241]"""

    async def fail() -> int:
        raise ValueError

    shared, lookups = SharedLookups(), Lookups()
    lookups.end.set()
    results = await asyncio.gather(
        *(shared.get(fail, group="account", key="one") for _ in range(3)), return_exceptions=True
    )
    assert {type(each) for each in results} == {ValueError}
    assert await shared.get(lookups, group="account", key="one") == 1
