"""A worker process of the run `gateway`: `tests.faults.worker` with the URL of the run's first gateway."""

from tests.faults.clock import FastClock
from tests.faults.external_gateway import external_providers
from tests.faults.gateway.adapter import ProviderGateway
from tests.faults.worker import OpenProviders, main


def opener(gateway_url: str, now: FastClock) -> OpenProviders:
    return external_providers(gateway_url, clock=now, gateway=ProviderGateway)


if __name__ == "__main__":
    main(opener)
