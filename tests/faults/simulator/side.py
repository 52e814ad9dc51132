"""The state of a simulated world (see `run`), which all modules of the simulator share."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import asyncpg

from tests.faults.payments import AskedRefund, ReceivedByHand
from tests.faults.simulator.database import ConnectionStore
from tests.faults.simulator.faults import Faults
from tests.faults.simulator.gateway import Side
from tests.faults.simulator.merchants import SimMerchants
from tests.faults.simulator.schedule import Schedule

if TYPE_CHECKING:
    from tests.faults.simulator.process import Process


REST_NAP = timedelta(hours=5)


@dataclass(slots=True)
class World:
    """One world: its clock, faults, external services, engine processes, and problems found.

    The connection `observer` reads the rows of all accounts for checks. No faults affect its statements. While faults
    are off, a worker pauses at least `calm_nap` between two polls. `received` are the payments that merchants recorded
    by hand, and `refunds` are the refunds that merchants asked for.
    """

    seed: int
    rng: random.Random
    schedule: Schedule
    faults: Faults
    connections: ConnectionStore
    observer: "asyncpg.Connection[Any]"
    side: Side
    merchants: SimMerchants
    processes: "list[Process]" = field(default_factory=list)
    problems: list[str] = field(default_factory=list[str])
    received: list[ReceivedByHand] = field(default_factory=list[ReceivedByHand])
    refunds: list[AskedRefund] = field(default_factory=list[AskedRefund])
    calm_nap: timedelta = REST_NAP
    abandoned: list[asyncio.Task[object]] = field(default_factory=list[asyncio.Task[object]])
    restart_later: "Callable[[Process], None]" = lambda _process: None

    def report_problem(self, problem: str) -> None:
        """Record a problem, unless it is recorded already."""
        if problem not in self.problems:
            self.schedule.trace.add(f"FOUND {problem}")
            self.problems.append(problem)

    def report_error(self, event: str, error: object) -> None:
        self.report_problem(f"{event}: {type(error).__name__}: {error}")
