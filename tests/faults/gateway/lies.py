"""What the world outside does wrong, as chances in a thousand, and which of it befalls the n-th call: seeded."""

import json
import random
from dataclasses import asdict, dataclass

import msgspec


@dataclass(frozen=True, slots=True)
class Lies:
    """Chances of the gateway and the merchant, each out of a thousand; delays in seconds of the run's clock.

    `lost`: the charge is made, and the line cut. `late`: the line is cut, and the charge made `late_seconds` after.
    `refused_before`: the line is cut, and nothing made. `unavailable`: 503, `error`: 500, and nothing made.
    A new charge is found by look-ups only after `lag_seconds`; `looks_fail` befalls look-ups, `price_fails` and
    `push_fails` the merchant's endpoints. `never_paid` of all charges are never paid.
    `knows_keys`: a reference is charged once, and a repeat is shown that charge, or (`refuses_repeats`) refused.
    """

    lost: int = 0
    late: int = 0
    refused_before: int = 0
    unavailable: int = 0
    error: int = 0
    looks_fail: int = 0
    price_fails: int = 0
    push_fails: int = 0
    never_paid: int = 0
    late_seconds: int = 60
    lag_seconds: int = 0
    knows_keys: bool = False
    refuses_repeats: bool = False
    seed: int = 1

    def fate(self, kind: str, number: int, **chances: int) -> str | None:
        """Return which of some chances befalls the n-th call of a kind; None: it goes well."""
        drawn = random.Random(f"{self.seed}/{kind}/{number}").randrange(1000)  # noqa: S311 - it guards nothing
        for name, chance in chances.items():
            if drawn < chance:
                return name
            drawn -= chance
        return None

    def __str__(self) -> str:
        """Return them as a process is told on its command line."""
        return json.dumps(asdict(self))


def read(text: str) -> Lies:
    """Return what a process was told."""
    return msgspec.json.decode(text, type=Lies)
