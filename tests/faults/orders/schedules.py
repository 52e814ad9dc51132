"""Choose schedules. A schedule is an order in which the steps of two operations are executed.

If there are too many schedules to try them all, choose those with few switches and some random ones.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import comb

from tests.faults.orders.stepping import Choose

LAST = 10_000
"""More steps than any operation has. In a schedule, this count means that an operation runs until it ends."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """The order in which the steps of the operations `a` and `b` are executed.

    `a3 b2 a` means three steps of `a`, two of `b`, then `a` until it ends. If a lock blocks the operation that is next,
    the other operation executes its next step instead.
    """

    turns: tuple[tuple[str, int], ...]

    @classmethod
    def read(cls, text: str) -> "Schedule":
        return cls(tuple((each[0], int(each[1:] or LAST)) for each in text.split()))

    def __str__(self) -> str:
        return " ".join(f"{side}{count if count < LAST else ''}" for side, count in self.turns)

    def chooser(self) -> Choose:
        sides = [side for side, count in self.turns for _ in range(min(count, LAST))]
        place = 0

        def choose(ready: Sequence[str]) -> str:
            nonlocal place
            wanted = sides[place] if place < len(sides) else sides[-1]
            place += 1
            own = [each for each in ready if each[0] == wanted]
            return (own or ready)[0]

        return choose


def of_trace(threads: Sequence[str]) -> Schedule:
    """Return the schedule that was executed, given the name of the thread of each executed step."""
    return Schedule(tuple((side, len(list(steps))) for side, steps in groupby(each[0] for each in threads)))


SERIAL = (Schedule.read("a b"), Schedule.read("b a"))


def few_switches(steps: dict[str, int]) -> list[Schedule]:
    """Return all schedules in which one operation runs completely between two steps of the other operation."""
    return [
        Schedule(((side, count), (other, LAST), (side, LAST)))
        for side, other in (("a", "b"), ("b", "a"))
        for count in range(1, steps[side])
    ]


def drawn(steps: dict[str, int], rng: random.Random) -> Iterator[Schedule]:
    """Draw random schedules without end, some with few switches and some with many."""
    while True:
        left = dict(steps)
        stays = rng.choice((0.5, 0.7, 0.85))
        side = rng.choice("ab")
        order: list[str] = []
        while any(left.values()):
            if not left[side] or (order and rng.random() > stays):
                side = "b" if side == "a" else "a"
            if left[side]:
                order.append(side)
                left[side] -= 1
        yield of_trace(order)


def chosen(steps: dict[str, int], rng: random.Random, *, share: int) -> Iterator[Schedule]:
    """Yield all schedules if there are at most `share`. Otherwise yield those of `few_switches`, then random ones.

    If `few_switches` returns more than `share` schedules, yield only a sample of them. The random schedules never end,
    and may contain the same schedule several times.
    """
    if comb(sum(steps.values()), steps["a"]) <= share:
        yield from all_of(steps)
        return
    few = few_switches(steps)
    if len(few) > share:
        few = rng.sample(few, share // 2)
    yield from few
    yield from drawn(steps, rng)


def all_of(steps: dict[str, int]) -> Iterator[Schedule]:
    def lay(order: tuple[str, ...], a: int, b: int) -> Iterator[tuple[str, ...]]:
        if not a and not b:
            yield order
        if a:
            yield from lay((*order, "a"), a - 1, b)
        if b:
            yield from lay((*order, "b"), a, b - 1)

    return map(of_trace, lay((), steps["a"], steps["b"]))
