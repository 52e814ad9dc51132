"""The table of all measurements: which module takes which rows."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from bench.frame import Measured, Options


@dataclass(frozen=True, slots=True)
class Measure:
    """One measurement: `module` has its `run(options)`, which may take several rows of the table.

    One that `installs` what others made is taken only when it is named (`make bench-peers`).
    """

    name: str
    rows: tuple[int, ...]
    says: str
    installs: bool = False

    def load(self) -> Callable[[Options], Measured]:
        """Return its function."""
        return import_module(f"bench.{self.name}").run


MEASURES: tuple[Measure, ...] = (
    Measure("generation", (1,), "the billing run against one hand-written statement"),
    Measure("growth", (1, 3, 6, 10), "what a million subscriptions cost that a thousand do not"),
    Measure("replay", (7,), "the event stream read from deep within, against from its start"),
    Measure("day", (2,), "a whole billing day over real HTTP, against generation and the same calls alone"),
    Measure("hosts", (9,), "two workers against one, four hosts against one"),
    Measure("deliveries", (8,), "pushing events, against a bare loop that posts the same bytes"),
    Measure("api", (4,), "the API against a bare application with the same SQL"),
    Measure(
        "api_beside_run", (5,), "what the API's clients wait while a worker bills, against an idle machine"
    ),
    Measure("peers", (11,), "what others bill in the same time", installs=True),
)
"""In the order in which they are taken, one at a time."""
