"""The faults of the test gateway and merchants. A seed determines which calls the faults affect."""

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

    `lookup_fails`: the gateway answers a look-up with 503. `price_fails` and `push_fails`: the merchant's endpoint
    responds 500. `never_paid`: nobody pays the charge. `refuses_days`: the gateway refuses all calls of a
    connection for a day. The chance applies to each connection and day.

    Look-ups show a new charge after `lag_seconds`. With `knows_keys`, the gateway recognizes a repeated request and
    returns the first charge. With `refuses_repeats`, it refuses a repeated request that it recognizes.
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
    refuses_days: int = 0
    late_seconds: int = 60
    lag_seconds: int = 0
    knows_keys: bool = False
    refuses_repeats: bool = False
    seed: int = 1

    def draw(self, kind: str, number: int, **chances: int) -> str | None:
        """Return the name of the fault of the `number`-th call of a kind, or None. `chances` are per thousand."""
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
