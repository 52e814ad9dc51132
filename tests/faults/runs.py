"""The table of all fault runs."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from tests.faults.report import Options, Report


@dataclass(frozen=True, slots=True)
class Run:
    """`module` has the function `run(options)`. An `alone` run measures times, so no other run may be concurrent.

    `waits` marks a run that waits for its clock most of the time. It needs no share of the cores.
    """

    name: str
    module: str
    description: str
    alone: bool = False
    waits: bool = False

    def load(self) -> Callable[[Options], Report]:
        return import_module(f"tests.faults.{self.module}").run


RUNS: tuple[Run, ...] = (
    Run("simulator", "simulator.run", "the whole engine under seeded faults, checked every virtual day"),
    Run(
        "gateway",
        "gateway.run",
        "a gateway that loses answers, creates charges late and hides them; workers killed and frozen",
        waits=True,
    ),
    Run("crashes", "crashes.run", "SIGKILL at every statement and external call of every flow"),
    Run("orders", "orders.run", "pairs of concurrent operations stepped statement by statement"),
    Run(
        "database",
        "database.run",
        "backends and postmaster killed, disk full, pool exhausted",
        alone=True,
    ),
    Run(
        "failover", "database.failover", "the primary of a synchronous cluster killed under load", alone=True
    ),
    Run(
        "constraints",
        "constraints.run",
        "invalid rows for every unique index, foreign key, check, trigger and policy",
    ),
    Run("restore", "restore.run", "backups that are older than the gateway restored"),
    Run("probes", "probes.run", "every route with own, foreign, random and malformed ids"),
    Run("bad-requests", "probes.bad_requests", "generated bad requests, in process and over sockets"),
    Run("secrets", "secrets.run", "canaries, swapped ciphertexts, key ring rotation under load"),
    Run(
        "neighbours",
        "neighbours.run",
        "the effect of one merchant's hanging endpoint on the others",
        alone=True,
    ),
)
"""All runs, in the order in which they start."""
