"""The faults of the external gateway and merchant, drawn from a seed."""

import json
import random
from dataclasses import asdict, dataclass

import msgspec


@dataclass(frozen=True, slots=True)
class GatewayFaults:
    """Chances of faults per thousand calls. Delays are in seconds of the run's clock.

    `lost`: the gateway creates the charge, but closes the connection without a response. `late`: it closes the
    connection, and creates the charge `late_seconds` later. `refused_before`: it closes the connection and creates no
    charge. `unavailable` and `error`: it responds 503 or 500, and creates no charge.

    Look-ups show a new charge after `lag_seconds`. `lookup_fails` applies to look-ups. `price_fails` and `push_fails`
    apply to the merchant's endpoints. `never_paid`: nobody pays the charge. With `knows_keys`, a repeated
    request returns the first charge, or is refused (`refuses_repeats`).
    """

    lost: int = 0
    late: int = 0
    refused_before: int = 0
    unavailable: int = 0
    error: int = 0
    lookup_fails: int = 0
    price_fails: int = 0
    push_fails: int = 0
    never_paid: int = 0
    late_seconds: int = 60
    lag_seconds: int = 0
    knows_keys: bool = False
    refuses_repeats: bool = False
    seed: int = 1

    def draw(self, kind: str, number: int, **chances: int) -> str | None:
        """Return the fault of the n-th call of a kind, or None."""
        drawn = random.Random(f"{self.seed}/{kind}/{number}").randrange(1000)  # noqa: S311 - not for security
        for name, chance in chances.items():
            if drawn < chance:
                return name
            drawn -= chance
        return None

    def __str__(self) -> str:
        return json.dumps(asdict(self))


def read(text: str) -> GatewayFaults:
    return msgspec.json.decode(text, type=GatewayFaults)
