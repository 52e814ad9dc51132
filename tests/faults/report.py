"""Options and reports of fault runs: figures with bounds, and the problems found."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from traceback import format_exc


class Scale(StrEnum):
    """The size of a run. `make test-faults` uses `short`. `make faults` uses `full`.

    The numbers in the documentation come from full runs.
    """

    SHORT = "short"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a run. The run calls `progress(done, total, activity)` to show how far it is."""

    seed: int = 1
    scale: Scale = Scale.SHORT
    progress: Callable[[int, int, str], None] = lambda _done, _total, _doing: None

    def pick(self, *, short: int, full: int) -> int:
        return full if self.scale is Scale.FULL else short


@dataclass(frozen=True, slots=True)
class Figure:
    """A number that a run measured, with its bounds."""

    what: str
    value: float
    at_least: float | None = None
    at_most: float | None = None

    @property
    def holds(self) -> bool:
        return (self.at_least is None or self.value >= self.at_least) and (
            self.at_most is None or self.value <= self.at_most
        )


@dataclass(slots=True)
class Report:
    """The results of a run. Each of the `problems` is a sentence that describes one failure."""

    run: str
    seed: int
    figures: list[Figure] = field(default_factory=list[Figure])
    problems: list[str] = field(default_factory=list[str])
    left_out: str | None = None
    """Why the run, or a part of it, was skipped on this machine, and what the skipped part needs."""

    def count(
        self, what: str, value: float, *, at_least: float | None = None, at_most: float | None = None
    ) -> None:
        self.figures.append(Figure(what, value, at_least, at_most))

    @contextmanager
    def part(self, what: str) -> Generator[None]:
        """Execute one part of the run. If the part raises an exception, record a problem and suppress the exception."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - reported as a finding
            self.problems.append(f"{what} ended with {type(error).__name__}: {error}\n{format_exc()}")

    @property
    def failures(self) -> list[str]:
        missed = [
            f"{figure.what}: {figure.value:g}, which is not between {figure.at_least} and {figure.at_most}"
            for figure in self.figures
            if not figure.holds
        ]
        return [*missed, *self.problems]
