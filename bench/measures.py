"""The table of all measurements: which module takes which rows."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from bench.frame import Measured, Options


@dataclass(frozen=True, slots=True)
class Measure:
    """One measurement: `module` has its `run(options)`, which may take several rows of the table."""

    name: str
    rows: tuple[int, ...]
    says: str

    def load(self) -> Callable[[Options], Measured]:
        """Return its function."""
        return import_module(f"bench.{self.name}").run


MEASURES: tuple[Measure, ...] = (
    Measure("generation", (1,), "the billing run against one hand-written statement"),
    Measure("growth", (1, 3, 6, 10), "what a million subscriptions cost that a thousand do not"),
    Measure("replay", (7,), "the event stream read from deep within, against from its start"),
)
"""In the order in which they are taken, one at a time."""
