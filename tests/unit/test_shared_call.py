"""Concurrent callers share one call, whose result is kept for a while (D-202)."""

import asyncio

from fatura.shared_call import SharedCall


class Measurement:
    """Counts its calls. They end when `end` is set, and the first one raises ValueError."""

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
