"""Events in the life of simulated charges: actions of their payers, and changes that the gateway makes by itself."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

Step = tuple[str, int, tuple[float, float]]
"""What happens, the percentage of the charge's amount, and a range of hours.

The hours of the first step count from the start of the due date. The hours of every later step count from the step
before it.
"""
PAY, REST, REFUSE, EXPIRE, CANCEL = "pay", "rest", "refuse", "expire", "cancel"
FORGET, REMEMBER = "forget", "remember"
_IN_TIME = (-40.0, 20.0)
_HABITS: tuple[tuple[int, Sequence[Step]], ...] = (
    (50, [(REST, 0, _IN_TIME)]),
    (9, [(REST, 0, (30, 150))]),
    (6, [(PAY, 40, _IN_TIME), (REST, 0, (1, 60))]),
    (3, [(PAY, 30, _IN_TIME)]),
    (3, [(PAY, 130, _IN_TIME)]),
    (4, [(REST, 0, _IN_TIME), (PAY, 100, (0.01, 50))]),
    (4, [(REFUSE, 0, (0, 12))]),
    (2, [(REFUSE, 0, (0, 12)), (REST, 0, (5, 60))]),
    (2, [(EXPIRE, 0, (30, 80))]),
    (1, [(EXPIRE, 0, (30, 80)), (REST, 0, (5, 60))]),
    (3, [(CANCEL, 0, (-30, 40))]),
    (3, [(FORGET, 0, (-60, 30))]),
    (1, [(FORGET, 0, (-60, 0)), (REMEMBER, 0, (1, 60)), (REST, 0, (5, 60))]),
    (9, []),
)
"""The habits of payers, each with the percentage of payers who have it."""
_STUBBORN_PERCENT = 15
"""Percentage of the payers that pay a charge although the gateway canceled it."""
FAITHFUL_PERCENT, LATECOMER_PERCENT = 88, 30
"""Percentages of charges that are paid at the end of a world.

FAITHFUL_PERCENT is for open and refused charges, LATECOMER_PERCENT for expired charges.
"""


@dataclass(frozen=True, slots=True)
class Act:
    """Something that happens to a charge at a time."""

    at: datetime
    verb: str
    percent: int = 0


@dataclass(slots=True)
class Payers:
    """Decides at random what happens to each charge."""

    rng: random.Random
    all_pay: bool = False

    def plan(self, *, due_from: datetime, earliest: datetime) -> list[Act]:
        """Return what happens to a new charge, in order. Nothing happens before `earliest`.

        At the end of a world (`all_pay`), most payers pay, and do nothing else.
        """
        if self.all_pay:
            return [Act(max(due_from, earliest), REST)] if self._happens(FAITHFUL_PERCENT) else []
        [steps] = self.rng.choices([each for _, each in _HABITS], [weight for weight, _ in _HABITS])
        acts: list[Act] = []
        at = due_from
        for verb, percent, (least, most) in steps:
            at = max(at + timedelta(hours=self.rng.uniform(least, most)), earliest)
            acts.append(Act(at, verb, percent))
        return acts

    def is_stubborn(self) -> bool:
        return self._happens(_STUBBORN_PERCENT)

    def last(self, state: str, *, now: datetime) -> list[Act]:
        """Return what happens to an existing charge at the end of a world."""
        chances = {"open": FAITHFUL_PERCENT, "refused": FAITHFUL_PERCENT, "expired": LATECOMER_PERCENT}
        return [Act(now, REST)] if self._happens(chances.get(state, 0)) else []

    def _happens(self, percent: int) -> bool:
        return self.rng.randrange(100) < percent
