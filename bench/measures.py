"""All measurements, each with its module and the rows of the table that it writes."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from bench.frame import Measured, Options


@dataclass(frozen=True, slots=True)
class Measure:
    """A measurement for one or more rows of the table of results: `run(options)` of the module `bench.<name>`.

    If `installs` is true, the measurement installs other programs. It runs only if the command names it, as
    `make bench-peers` does.
    """

    name: str
    rows: tuple[int, ...]
    says: str
    installs: bool = False

    def load(self) -> Callable[[Options], Measured]:
        return import_module(f"bench.{self.name}").run


MEASURES: tuple[Measure, ...] = (
    Measure("generation", (1,), "the billing run against one hand-written statement"),
    Measure("growth", (1, 3, 6, 10), "how costs grow from a thousand to a million subscriptions"),
    Measure("replay", (7,), "a late page of the event stream, against the first page"),
    Measure("day", (2,), "a whole billing day over real HTTP, against generation and the same calls alone"),
    Measure("hosts", (9,), "two workers against one, four hosts against one"),
    Measure("deliveries", (8,), "pushing events, against a bare loop that posts the same bytes"),
    Measure("api", (4,), "the API against a bare application with the same SQL"),
    Measure("api_beside_run", (5,), "latency of the API during a billing run, against no billing run"),
    Measure(
        "hanging", (12,), "an account beside a thousand others whose gateways hang, against none that hangs"
    ),
    Measure(
        "strangers",
        (15,),
        "latency of an account while strangers and another account attack the API, against none",
    ),
    Measure("check", (13,), "`fatura check` on many invoices, against 25,000"),
    Measure("retention", (14,), "a billing run while old rows are deleted, against none that are deleted"),
    Measure("peers", (11,), "other billing programs", installs=True),
)
"""All measurements, in the order in which they run."""
