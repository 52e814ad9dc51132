"""The table of all fault runs."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from tests.faults.report import Options, Report


@dataclass(frozen=True, slots=True)
class Run:
    """One fault run. `module` contains its function `run(options)`.

    `alone` marks a run that measures times. No other run executes at the same time, because it would change the
    measured times. `waits` marks a run that waits for its clock most of the time. No cores are reserved for such a run.
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
        "gateways that lose answers and create or show charges late; workers killed and frozen",
        waits=True,
    ),
    Run(
        "providers",
        "providers.run",
        "simulated providers of the adapters: lost answers, workers killed while they call",
        waits=True,
    ),
    Run("crashes", "crashes.run", "SIGKILL at statements and external calls of every flow"),
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
    Run("restore", "restore.run", "restores of backups that are older than the gateway's data"),
    Run("probes", "probes.run", "every route with own, foreign, random and malformed ids"),
    Run("bad-requests", "probes.bad_requests", "generated bad requests, in process and over sockets"),
    Run("secrets", "secrets.run", "canaries, swapped ciphertexts, key ring rotation under load"),
    Run(
        "neighbours",
        "neighbours.run",
        "the effect of one merchant's hanging endpoint on other merchants",
        alone=True,
    ),
)
"""All runs, in the order of the printed table."""
