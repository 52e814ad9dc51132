"""What a run of faults is told, and what it tells: figures with what they had to reach, and what went wrong."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from traceback import format_exc


class Scale(StrEnum):
    """How much a run tries: `short` belongs to every commit, `full` reaches the promised figures."""

    SHORT = "short"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class Options:
    """What a run is told: the seed of all its chance, how much to try, and where to say how far it is."""

    seed: int = 1
    scale: Scale = Scale.SHORT
    progress: Callable[[int, int, str], None] = lambda _done, _total, _doing: None

    def pick(self, *, short: int, full: int) -> int:
        """Return one of two sizes, by the scale."""
        return full if self.scale is Scale.FULL else short


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a run, and between what it had to lie."""

    what: str
    value: float
    at_least: float | None = None
    at_most: float | None = None

    @property
    def holds(self) -> bool:
        """Say whether it lies where it had to."""
        return (self.at_least is None or self.value >= self.at_least) and (
            self.at_most is None or self.value <= self.at_most
        )


@dataclass(slots=True)
class Report:
    """What a run tried and found; `problems` are sentences that say what broke, and with which part of the seed."""

    run: str
    seed: int
    figures: list[Figure] = field(default_factory=list[Figure])
    problems: list[str] = field(default_factory=list[str])
    left_out: str | None = None
    """Why the run, or a part of it, was not made on this machine, and what it needs."""

    def count(
        self, what: str, value: float, *, at_least: float | None = None, at_most: float | None = None
    ) -> None:
        """Add a figure."""
        self.figures.append(Figure(what, value, at_least, at_most))

    @contextmanager
    def part(self, what: str) -> Generator[None]:
        """Go on with the next part of the run when this one cannot: that is a finding, and no other is lost."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - told as a finding
            self.problems.append(f"{what} ended by {type(error).__name__}: {error}\n{format_exc()}")

    @property
    def failures(self) -> list[str]:
        """Return everything that speaks against the engine."""
        missed = [
            f"{figure.what}: {figure.value:g}, which is not between {figure.at_least} and {figure.at_most}"
            for figure in self.figures
            if not figure.holds
        ]
        return [*missed, *self.problems]
