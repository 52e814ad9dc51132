"""The types of a measurement's results: comparisons (`Figure`), single values (`Amount`) and plots."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class Scale(StrEnum):
    """The size of the measurements: `short`, which is the default, or `full`, which takes hours."""

    SHORT = "short"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class Options:
    scale: Scale
    log: Callable[[str], None]

    def pick(self, *, short: int, full: int) -> int:
        return full if self.scale is Scale.FULL else short


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table that compares the engine with a rival: another program, or the engine in another condition.

    `ours` has the engine's values in `unit`, one for each round, and `theirs` has the rival's values. `row` is the row
    number in the table, and `against` names the rival. A ratio is the engine's value divided by the rival's value.
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
        return [ours / theirs for ours, theirs in zip(self.ours, self.theirs, strict=True)]

    @property
    def ratio(self) -> float:
        """The median of the ratios of all rounds."""
        return statistics.median(self.ratios)

    @property
    def holds(self) -> bool | None:
        """Whether the median ratio is within the bounds. None if there are no bounds."""
        return _within(self.ratio, at_least=self.at_least, at_most=self.at_most)


@dataclass(frozen=True, slots=True)
class Amount:
    """One line of the table with a single value and optional bounds."""

    row: int
    what: str
    unit: str
    value: float
    at_least: float | None = None
    at_most: float | None = None

    @property
    def holds(self) -> bool | None:
        return _within(self.value, at_least=self.at_least, at_most=self.at_most)


def _within(value: float, *, at_least: float | None, at_most: float | None) -> bool | None:
    """Return whether the value is within the bounds. None if there are no bounds."""
    if at_least is None and at_most is None:
        return None
    return (at_least is None or value >= at_least) and (at_most is None or value <= at_most)


@dataclass(frozen=True, slots=True)
class Plot:
    """A chart of `y` by `x`, with one line for each key of `lines`. `bench.page` writes the chart to `<name>.svg`."""

    name: str
    title: str
    x: str
    y: str
    lines: Mapping[str, Sequence[tuple[float, float]]]


@dataclass(slots=True)
class Measured:
    """The results of one measurement. `left_out` says which parts were skipped and why."""

    figures: list[Figure] = field(default_factory=list[Figure])
    amounts: list[Amount] = field(default_factory=list[Amount])
    plots: list[Plot] = field(default_factory=list[Plot])
    left_out: list[str] = field(default_factory=list[str])
