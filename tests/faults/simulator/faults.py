"""The faults of a simulated world, their chances, and how often each occurred."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Chances = Mapping[str, int]
"""Names of faults and their chances per ten thousand I/Os."""

COMMIT: Chances = {"commit: lost before": 120, "commit: done, answer lost": 250}
STATEMENT: Chances = {
    "statement: connection lost": 12,
    "statement: lock time-out": 15,
    "statement: deadlock": 15,
}
STEP: Chances = {"process: killed": 5, "process: frozen": 16}
"""Faults that may hit an engine process at any step."""
CREATE: Chances = {
    "create: made, answer lost": 600,
    "create: made late": 300,
    "create: cut before": 200,
    "create: 503": 300,
    "create: 500, made": 150,
    "create: 500, not made": 150,
    "create: made twice": 300,
    "create: no answer in 20 s": 150,
    "create: refused": 80,
}
LOOK: Chances = {"look: busy": 2600, "look: no answer in 20 s": 500}
CANCEL: Chances = {"cancel: done, answer lost": 900, "cancel: 503": 600, "cancel: cut before": 500}
LIST: Chances = {"list: busy": 800, "list: no answer in 20 s": 300}
"""Faults of a request for one page of the gateway's list."""
LIST_STEP: Chances = {"process: killed": 150, "process: frozen": 150}
"""Faults that may hit an engine process when it asks for a page of the list."""
REFUND: Chances = {
    "refund: made, answer lost": 900,
    "refund: made late": 300,
    "refund: cut before": 400,
    "refund: 503": 500,
    "refund: no answer in 20 s": 300,
    "refund: refused": 300,
    "refund: slow": 2500,
}
REFUND_STEP: Chances = {"process: killed": 700, "process: frozen": 300}
"""Faults that may hit an engine process when it asks for a refund."""
MIRROR: Chances = {"mirror: 500": 2500, "mirror: done, answer lost": 800}
PRICE: Chances = {
    "price: 500": 1100,
    "price: timed out": 700,
    "price: garbage": 600,
    "price: over the cap": 500,
    "price: unreachable": 500,
    "price: broken off": 300,
    "price: redirect": 100,
}
PUSH: Chances = {
    "push: 500": 1500,
    "push: timed out": 500,
    "push: taken, answer lost": 1200,
    "push: 429": 60,
    "push: unreachable": 800,
    "push: 410": 4,
}
CLIENT: Chances = {"client: answer lost": 900}
NOT_DRAWN = (
    "database: away",
    "gateway: credentials of another account",
    "gateway: credentials refused",
    "gateway: forgot a charge",
    "gateway: refuses calls for days",
    "gateway: refuses polls for days",
    "payer: paid a closed charge",
    "price: down for hours",
    "process: all killed, for days",
    "webhook: down for hours",
)
"""Faults that other modules of the simulator inject and count. `draw` never returns these faults."""
KINDS = frozenset(
    (
        *NOT_DRAWN,
        *(name for each in (COMMIT, STATEMENT, STEP, CREATE, LOOK, LIST, CANCEL, REFUND) for name in each),
        *(name for each in (MIRROR, PRICE, PUSH, CLIENT) for name in each),
    )
)
EAGER = 5
"""Multiplies the chance of each fault until this fault has occurred once in the world."""


@dataclass(slots=True)
class Faults:
    """Decides at random which faults occur in one world.

    All chances of a group such as CREATE are multiplied by the same factor, which is random in each world. `on` is
    false while the accounts are opened, and while the world finishes its work.
    """

    rng: random.Random
    factors: Sequence[float] = (0.5, 1.0, 1.0, 1.5)
    on: bool = True
    met: Counter[str] = field(default_factory=Counter[str])
    _mood_of: dict[int, float] = field(default_factory=dict[int, float])

    def draw(self, chances: Chances) -> str | None:
        """Decide at random whether a fault occurs at this I/O.

        Return the fault's name and count the fault, or return None.
        """
        if not self.on:
            return None
        factor = self._mood_of.get(id(chances))
        if factor is None:
            factor = self._mood_of[id(chances)] = self.rng.choice(self.factors)
        drawn = self.rng.random() * 10_000
        if drawn >= sum(chances.values()) * factor * EAGER:
            return None
        for name, chance in chances.items():
            likely = chance * factor * (1 if name in self.met else EAGER)
            if drawn < likely:
                self.met[name] += 1
                return name
            drawn -= likely
        return None

    def count(self, name: str) -> None:
        """Count a fault that `draw` did not return."""
        self.met[name] += 1
