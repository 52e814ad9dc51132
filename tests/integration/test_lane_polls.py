"""A lane that cannot poll for due work is reported by readiness, by metrics and by one log line (D-5, D-128)."""

import asyncio
from dataclasses import replace

import asyncpg
import pytest

from fatura.domain.account import Account
from fatura.usecases.deps import Deps
from fatura.usecases.lane_polls import STUCK_AFTER_SECONDS, LanePolls
from fatura.workers.lanes import Lane
from fatura.workers.loop import Loop
from tests.support.captured_logs import captured_logs
from tests.support.world import World, api_client, scrape

SECONDS = 2.5


class Watch:
    """A monotonic clock that tests set."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


async def _idle(_deps: Deps, _account: Account) -> int:
    return 0


async def readiness(deps: Deps) -> tuple[int, bool]:
    async with api_client(deps) as client:
        answer = await client.get("/health/ready")
    return answer.status_code, answer.json()["checks"]["workers"]


async def stuck_metric(deps: Deps, lane: str) -> str:
    text = await scrape(deps)
    return next(line for line in text.splitlines() if line.startswith(f'fatura_lane_stuck{{lane="{lane}"}}'))


@pytest.mark.faults
async def test_a_lane_that_cannot_poll_backs_off_and_is_reported(world: World) -> None:
    """[D-5, D-128, spec 4.1 GET /health/ready 200]"""
    watch, stop, polls = Watch(), asyncio.Event(), 0
    deps = replace(world.deps, lane_polls=LanePolls(watch))
    refuses = True

    async def poll(_deps: Deps) -> list[Account]:
        nonlocal polls
        polls += 1
        if refuses:
            raise RuntimeError("could not create distributed plan")
        return []

    loop = Loop(deps, [Lane("generation", poll, _idle, batches_at_once=1)])
    with captured_logs() as logs:
        running = asyncio.create_task(loop.run(stop))
        for _ in range(50):
            loop.notify("generation")
            await asyncio.sleep(SECONDS / 50)
        assert 2 <= polls <= 4
        assert await readiness(deps) == (200, True)
        watch.seconds = STUCK_AFTER_SECONDS
        await asyncio.sleep(SECONDS)
        assert await readiness(deps) == (200, False)
        assert await stuck_metric(deps, "generation") == 'fatura_lane_stuck{lane="generation"} 1.0'
        refuses = False
        async with asyncio.timeout(8):
            while deps.lane_polls.stuck():  # noqa: ASYNC110 - the lane polls again after a pause
                await asyncio.sleep(0.05)
        assert await readiness(deps) == (200, True)
        assert await stuck_metric(deps, "generation") == 'fatura_lane_stuck{lane="generation"} 0.0'
        stop.set()
        await running
    text = logs.getvalue()
    assert [text.count(each) for each in ("lane.poll_failed", "lane.stuck", "lane.polls_again")] == [1, 1, 1]


async def test_an_api_process_notices_that_no_lane_could_poll(world: World) -> None:
    """An API process runs no lanes, so it tries each lane's poll itself, every ten seconds.
    [D-5, spec 4.1 GET /health/ready 200]
    """
    watch = Watch()
    deps = replace(world.deps, lane_polls=LanePolls(watch))
    assert await readiness(deps) == (200, True)
    owner = world.database_url.replace("://fatura@", "://postgres@")
    await _as_owner(owner, "ALTER TABLE subscription RENAME COLUMN generate_at TO generate_then")
    for watch.seconds in (5, 11, 12, 60, 70):
        assert await readiness(deps) == (200, True)
    watch.seconds = 11 + STUCK_AFTER_SECONDS
    assert await readiness(deps) == (200, False)
    await _as_owner(owner, "ALTER TABLE subscription RENAME COLUMN generate_then TO generate_at")
    watch.seconds += 10
    assert await readiness(deps) == (200, True)


async def _as_owner(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(statement)
    await connection.close()
