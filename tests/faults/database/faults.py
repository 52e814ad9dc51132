"""What is done to a PostgreSQL that is in use, one fault at a time, and how long the engine takes to get over each."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from time import monotonic

import asyncpg

from tests.faults.database.engine import Engine
from tests.faults.database.server import Server
from tests.faults.report import Report

AWAY_SECONDS = 8
"""How long a fault that should make the engine unready is kept up, if it does not."""
BUSY_WITHIN_SECONDS = 30
REFUSED_WITHIN_SECONDS = 30
STORM_SECONDS = 2
HOLD_SECONDS = 6
"""How long a stranger holds a lock that every write needs: longer than the engine waits for one."""
PATIENCE_SECONDS = 120
"""How long a run waits for what should take ten seconds: what takes longer is told with its figure."""


@dataclass(slots=True, eq=False)
class Scene:
    """Where faults take place, and the longest times that were seen."""

    engine: Engine
    chance: Random
    unready_after: list[float] = field(default_factory=list[float])
    ready_after: list[float] = field(default_factory=list[float])
    going_after: list[float] = field(default_factory=list[float])
    rates: list[float] = field(default_factory=list[float])
    problems: list[str] = field(default_factory=list[str])

    async def wait_for_load(self, writes_a_second: int) -> None:
        """Wait until that many writes were acknowledged in the last second, so that a fault meets them."""
        give_up_at = monotonic() + BUSY_WITHIN_SECONDS
        rate = 0
        while rate < writes_a_second and monotonic() < give_up_at:
            await asyncio.sleep(0.1)
            rate = self.engine.client.acknowledged_since(monotonic() - 1)
        self.rates.append(rate)

    async def refused(self, count: int) -> None:
        """Wait until that many requests more were answered 503."""
        wanted, give_up_at = self.engine.client.statuses[503] + count, monotonic() + REFUSED_WITHIN_SECONDS
        while self.engine.client.statuses[503] < wanted and monotonic() < give_up_at:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.05)
        if self.engine.client.statuses[503] < wanted:
            self.problems.append(f"fewer than {count} requests were refused: the fault was none")

    async def unready(self, since: float) -> None:
        """Keep the database away until readiness says so."""
        seconds = await self.engine.readiness.until(503, since=since, within_seconds=AWAY_SECONDS)
        self.unready_after.append(AWAY_SECONDS if seconds is None else seconds)

    async def recovered(self, what: str, *, since: float) -> None:
        """Wait until the engine is ready and all lanes go on, with no hand laid on it."""
        ready = await self.engine.readiness.until(200, since=since, within_seconds=PATIENCE_SECONDS)
        recovery = await recovered_after(self.engine, since=since)
        self.ready_after.append(PATIENCE_SECONDS if ready is None else ready)
        self.going_after.append(PATIENCE_SECONDS if recovery is None else recovery)
        if ready is None or recovery is None:
            self.problems.append(f"after {what} the engine did not go on within {PATIENCE_SECONDS} s")
        self.problems += [f"after {what}: {death}" for death in self.engine.dead()]

    def told(self, report: Report, *, slack: float, least_rate: int) -> None:
        """Add the figures; `slack` widens the times where the machine may be busy with others."""
        if self.rates:
            report.count(
                "writes acknowledged in the second before each fault, at least",
                min(self.rates),
                at_least=least_rate,
            )
        if self.unready_after:
            worst = max(self.unready_after)
            report.count("s until /health/ready said 503, at worst", worst, at_most=3 * slack)
        report.count("s until it said 200 again, at worst", max(self.ready_after), at_most=5 * slack)
        report.count("s until all lanes went on, at worst", max(self.going_after), at_most=10 * slack)
        report.problems += self.problems


Fault = Callable[[Scene, Server], Awaitable[None]]


async def kill_backend(scene: Scene, server: Server) -> None:
    """Kill one backend with -9: PostgreSQL ends all others and recovers."""
    killed = False
    while not killed:
        backends = await server.backends()
        with suppress(ProcessLookupError):  # it ended by itself in between
            os.kill(scene.chance.choice(sorted(backends)), signal.SIGKILL)
            killed = True


async def kill_postmaster(scene: Scene, server: Server) -> None:
    """Kill the main process with -9, and start the server again when the engine has noticed."""
    began = monotonic()
    await asyncio.to_thread(server.kill)
    await scene.unready(began)
    await asyncio.to_thread(server.start)


async def freeze(scene: Scene, server: Server) -> None:
    """Let the whole server stand still until the engine has noticed, and for seconds more."""
    with server.frozen():
        await scene.unready(monotonic())
        await asyncio.sleep(scene.chance.uniform(0.5, 3))


async def terminate_many(scene: Scene, server: Server) -> None:
    """End most of the engine's sessions at once, from inside, three times."""
    for _ in range(3):
        async with server.owner() as owner:
            await owner.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'fatura' AND random() < 0.8"
            )
        await asyncio.sleep(scene.chance.uniform(0.1, 0.5))


async def cancel_statements(scene: Scene, server: Server) -> None:
    """Cancel whatever statement runs, commits included, as a statement's time-out would."""
    until = monotonic() + STORM_SECONDS
    async with server.owner() as owner:
        while monotonic() < until:
            await owner.execute(
                "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE usename = 'fatura' AND state = 'active'"
            )


async def hold_lock(scene: Scene, server: Server) -> None:
    """Hold what every write of the account needs: requests wait, and take up all of the API's connections."""
    async with server.owner() as owner, owner.transaction():
        await owner.execute("SELECT FROM account_counter FOR UPDATE")
        await asyncio.sleep(HOLD_SECONDS)


async def take_all_connections(scene: Scene, server: Server) -> None:
    """Let strangers have every connection that the server gives, and end the engine's."""
    strangers: list[asyncpg.Connection[asyncpg.Record]] = []
    async with server.owner() as owner:
        until = monotonic() + STORM_SECONDS
        while monotonic() < until:
            with suppress(asyncpg.TooManyConnectionsError):
                strangers.append(await asyncpg.connect(server.url, timeout=10))
                continue
            await owner.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'fatura%'"
            )
    for stranger in strangers:
        stranger.terminate()


FAULTS: dict[str, Fault] = {
    "the main process killed": kill_postmaster,
    "a backend killed": kill_backend,
    "the server frozen": freeze,
    "all connections taken": take_all_connections,
    "a lock held": hold_lock,
    "statements canceled": cancel_statements,
    "sessions ended": terminate_many,
}
SHORT = ("the main process killed", "a backend killed", "the server frozen", "all connections taken")


async def recovered_after(engine: Engine, *, since: float) -> float | None:
    """Wait until a subscription that was acknowledged after an instant is billed, charged and told to its merchant.

    Returns after how many seconds that was; None: it was not within PATIENCE_SECONDS.
    """
    told: set[str] = set()
    read = len(engine.receiver.received)
    while monotonic() < since + PATIENCE_SECONDS:
        fresh, read = engine.receiver.received[read:], len(engine.receiver.received)
        events = [each.json for each in fresh]
        told |= {
            each["data"]["invoice"]["subscriptionId"] for each in events if each["type"] == "invoice.issued"
        }
        later = {
            write.answer["id"]
            for write in reversed(engine.client.journal)
            if write.kind == "subscription" and (write.acknowledged_at or 0) > since
        }
        if told & later:
            return monotonic() - since
        await asyncio.sleep(0.05)
    return None
