"""What a measurement is: figures of interleaved rounds, each a ratio of ours to a rival's, and plots of growth."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class Scale(StrEnum):
    """How much is measured: `short` fits into `make bench`, `full` takes an evening."""

    SHORT = "short"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class Options:
    """What a measurement is asked for; `say` tells a person how far it is."""

    scale: Scale
    say: Callable[[str], None]

    def pick(self, *, short: int, full: int) -> int:
        """Return the number for the scale."""
        return full if self.scale is Scale.FULL else short


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table: the same `unit` measured here and there, round by round.

    `row` is the measure's number; `against` says what the rival is. The ratio is ours over theirs.
    """

    row: int
    what: str
    unit: str
    against: str
    ours: Sequence[float]
    theirs: Sequence[float]
    at_least: float | None = None
    at_most: float | None = None

    @property
    def ratios(self) -> Sequence[float]:
        """Return the ratio of each round."""
        return [ours / theirs for ours, theirs in zip(self.ours, self.theirs, strict=True)]

    @property
    def ratio(self) -> float:
        """Return the median ratio."""
        return statistics.median(self.ratios)

    @property
    def holds(self) -> bool | None:
        """Tell whether the median is within the bounds; None: there are none."""
        if self.at_least is None and self.at_most is None:
            return None
        return (self.at_least is None or self.ratio >= self.at_least) and (
            self.at_most is None or self.ratio <= self.at_most
        )


@dataclass(frozen=True, slots=True)
class Amount:
    """One line that is no ratio: an amount, and the most that it may be."""

    row: int
    what: str
    unit: str
    value: float
    at_most: float | None = None

    @property
    def holds(self) -> bool | None:
        """Tell whether it is within its bound; None: there is none."""
        return None if self.at_most is None else self.value <= self.at_most


@dataclass(frozen=True, slots=True)
class Plot:
    """One picture of growth: `y` by size, a line for each name; written as `<name>.svg`."""

    name: str
    title: str
    x: str
    y: str
    lines: Mapping[str, Sequence[tuple[float, float]]]


@dataclass(slots=True)
class Measured:
    """All that one measurement has to tell."""

    figures: list[Figure] = field(default_factory=list[Figure])
    amounts: list[Amount] = field(default_factory=list[Amount])
    plots: list[Plot] = field(default_factory=list[Plot])
    left_out: list[str] = field(default_factory=list[str])
