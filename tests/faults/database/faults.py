"""Inject faults into PostgreSQL while clients send writes, and measure how long the engine takes to recover."""

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
"""Time limit within which a fault must make the readiness probe fail."""
BUSY_WITHIN_SECONDS = 30
REFUSED_WITHIN_SECONDS = 30
STORM_SECONDS = 2
HOLD_SECONDS = 6
"""How long `hold_lock` holds its lock. The engine's lock time-out is shorter."""
PATIENCE_SECONDS = 120
"""Time limit of a recovery. The goal is ten seconds; slower recoveries are measured up to this limit."""


@dataclass(slots=True, eq=False)
class Scene:
    """The processes of the run, and the measurements so far: recovery times, in seconds, and rates of writes."""

    engine: Engine
    chance: Random
    unready_after: list[float] = field(default_factory=list[float])
    ready_after: list[float] = field(default_factory=list[float])
    working_after: list[float] = field(default_factory=list[float])
    rates: list[float] = field(default_factory=list[float])
    problems: list[str] = field(default_factory=list[str])

    async def wait_for_load(self, writes_a_second: int) -> None:
        """Wait until `writes_a_second` writes were acknowledged within the last second, and record this rate.

        After BUSY_WITHIN_SECONDS, stop waiting and record the lower rate. `report_times` compares the recorded rates
        with their bounds.
        """
        give_up_at = monotonic() + BUSY_WITHIN_SECONDS
        rate = 0
        while rate < writes_a_second and monotonic() < give_up_at:
            await asyncio.sleep(0.1)
            rate = self.engine.client.acknowledged_since(monotonic() - 1)
        self.rates.append(rate)

    async def refused(self, count: int) -> None:
        """Wait until the API has answered `count` more requests with 503.

        After REFUSED_WITHIN_SECONDS, stop waiting and record a problem.
        """
        wanted, give_up_at = self.engine.client.statuses[503] + count, monotonic() + REFUSED_WITHIN_SECONDS
        while self.engine.client.statuses[503] < wanted and monotonic() < give_up_at:  # noqa: ASYNC110 - another task counts
            await asyncio.sleep(0.05)
        if self.engine.client.statuses[503] < wanted:
            self.problems.append(f"fewer than {count} requests were refused: the fault had no effect")

    async def unready(self, since: float) -> None:
        """Wait at most AWAY_SECONDS until the readiness probe fails. Record how long this took.

        During this wait, the caller must keep the database unavailable.
        """
        seconds = await self.engine.readiness.until(503, since=since, within_seconds=AWAY_SECONDS)
        self.unready_after.append(AWAY_SECONDS if seconds is None else seconds)

    async def recovered(self, what: str, *, since: float) -> None:
        """Wait until the readiness probe succeeds and the engine bills a new subscription. Record both times.

        If the probe or the billing does not succeed within PATIENCE_SECONDS, record a problem.
        """
        ready = await self.engine.readiness.until(200, since=since, within_seconds=PATIENCE_SECONDS)
        recovery = await recovered_after(self.engine, since=since)
        self.ready_after.append(PATIENCE_SECONDS if ready is None else ready)
        self.working_after.append(PATIENCE_SECONDS if recovery is None else recovery)
        if ready is None or recovery is None:
            self.problems.append(f"after {what} the engine did not recover within {PATIENCE_SECONDS} s")
        self.problems += [f"after {what}: {failure}" for failure in self.engine.exited()]

    def report_times(self, report: Report, *, slack: float, least_rate: int) -> None:
        """Add the lowest rate of writes and the longest recovery times to the report.

        `slack` multiplies the time limits; it is above 1 on busy machines.
        """
        if self.rates:
            report.count(
                "fewest writes acknowledged in the second before a fault",
                min(self.rates),
                at_least=least_rate,
            )
        if self.unready_after:
            worst = max(self.unready_after)
            report.count("longest time until /health/ready was 503, s", worst, at_most=3 * slack)
        report.count(
            "longest time until /health/ready was 200 again, s", max(self.ready_after), at_most=5 * slack
        )
        report.count(
            "longest time until all lanes worked again, s", max(self.working_after), at_most=10 * slack
        )
        report.problems += self.problems


Fault = Callable[[Scene, Server], Awaitable[None]]


async def kill_backend(scene: Scene, server: Server) -> None:
    """Kill one server process of a session with SIGKILL. PostgreSQL then ends all other sessions and recovers."""
    killed = False
    while not killed:
        backends = await server.backends()
        with suppress(ProcessLookupError):  # the backend has ended by itself
            os.kill(scene.chance.choice(sorted(backends)), signal.SIGKILL)
            killed = True


async def kill_postmaster(scene: Scene, server: Server) -> None:
    """Kill the postmaster with SIGKILL. Start the server again after the readiness probe fails."""
    began = monotonic()
    await asyncio.to_thread(server.kill)
    await scene.unready(began)
    await asyncio.to_thread(server.start)


async def freeze(scene: Scene, server: Server) -> None:
    """Suspend all processes of the server until the readiness probe fails, and up to three seconds longer."""
    with server.frozen():
        await scene.unready(monotonic())
        await asyncio.sleep(scene.chance.uniform(0.5, 3))


async def terminate_many(scene: Scene, server: Server) -> None:
    for _ in range(3):
        async with server.owner() as owner:
            await owner.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'fatura' AND random() < 0.8"
            )
        await asyncio.sleep(scene.chance.uniform(0.1, 0.5))


async def cancel_statements(scene: Scene, server: Server) -> None:
    """Cancel running statements, including commits, as a statement time-out does."""
    until = monotonic() + STORM_SECONDS
    async with server.owner() as owner:
        while monotonic() < until:
            await owner.execute(
                "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE usename = 'fatura' AND state = 'active'"
            )


async def hold_lock(scene: Scene, server: Server) -> None:
    """Hold a lock that every create request needs. The waiting requests occupy connections of the API."""
    async with server.owner() as owner, owner.transaction():
        await owner.execute("SELECT FROM account_counter FOR UPDATE")
        await asyncio.sleep(HOLD_SECONDS)


async def take_all_connections(scene: Scene, server: Server) -> None:
    """Occupy all free connections of the server. Then terminate the engine's connections and occupy these too."""
    occupied: list[asyncpg.Connection[asyncpg.Record]] = []
    async with server.owner() as owner:
        until = monotonic() + STORM_SECONDS
        while monotonic() < until:
            with suppress(asyncpg.TooManyConnectionsError):
                occupied.append(await asyncpg.connect(server.url, timeout=10))
                continue
            await owner.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'fatura%'"
            )
    for connection in occupied:
        connection.terminate()


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
    """Wait until the merchant gets `invoice.issued` for a subscription that was acknowledged after `since`.

    Return the number of seconds after `since`, or None if PATIENCE_SECONDS have passed.
    """
    reported: set[str] = set()
    read = len(engine.receiver.received)
    while monotonic() < since + PATIENCE_SECONDS:
        fresh, read = engine.receiver.received[read:], len(engine.receiver.received)
        events = [each.json for each in fresh]
        reported |= {
            each["data"]["invoice"]["subscriptionId"] for each in events if each["type"] == "invoice.issued"
        }
        later = {
            write.answer["id"]
            for write in reversed(engine.client.journal)
            if write.kind == "subscription" and (write.acknowledged_at or 0) > since
        }
        if reported & later:
            return monotonic() - since
        await asyncio.sleep(0.05)
    return None
