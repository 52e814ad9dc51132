"""The table of all runs: what each does to the engine, and whether it needs the machine for itself."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from tests.faults.report import Options, Report


@dataclass(frozen=True, slots=True)
class Run:
    """One run: `module` has its `run(options)`; `alone`: it measures, so nothing may run beside it.

    One that `waits` for its clock most of the time runs beside those that take turns on the cores.
    """

    name: str
    module: str
    says: str
    alone: bool = False
    waits: bool = False

    def load(self) -> Callable[[Options], Report]:
        """Return its function."""
        return import_module(f"tests.faults.{self.module}").run


RUNS: tuple[Run, ...] = (
    Run("simulator", "simulator.run", "whole lives under seeded faults, checked every virtual day"),
    Run(
        "liar",
        "gateway.run",
        "a gateway that loses answers, makes charges late and hides them; workers killed and frozen",
        waits=True,
    ),
    Run("crashes", "crashes.run", "killed with -9 at every step between two inputs or outputs of every flow"),
    Run("orders", "orders.run", "racing pairs stepped statement by statement through all interleavings"),
    Run(
        "database",
        "database.run",
        "backends and the postmaster killed, the disk full, the pool exhausted",
        alone=True,
    ),
    Run("failover", "database.failover", "the leader of a synchronous cluster killed under load", alone=True),
    Run(
        "walls",
        "constraints.run",
        "rows written by hand at every unique index, key, check, trigger and policy",
    ),
    Run("restore", "restore.run", "a backup restored that is older than the gateway"),
    Run("probes", "probes.run", "every route, every id: own, foreign, random, malformed"),
    Run("bad-requests", "probes.bad_requests", "generated bad requests, in process and over sockets"),
    Run("secrets", "secrets.run", "canaries, swapped ciphertexts, the key ring rotated under load"),
    Run(
        "neighbours",
        "neighbours.run",
        "one merchant's backlog at a hanging endpoint beside the others",
        alone=True,
    ),
)
"""In the order in which they are started."""
