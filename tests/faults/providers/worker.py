"""A worker process of the run `providers`: `tests.faults.worker` with the adapters at the simulated providers."""

import msgspec

from tests.faults.clock import FastClock
from tests.faults.providers.adapters import Places, open_at
from tests.faults.worker import OpenProviders, main


def opener(gateways: str, _now: FastClock) -> OpenProviders:
    return open_at(msgspec.json.decode(gateways, type=Places))


if __name__ == "__main__":
    main(opener)
