"""The adapters at the providers' own sandboxes.

For each provider, the variable FATURA_LIVE_<PROVIDER> has the connection as JSON: `{"credentials": {...}, "settings":
{...}}`. Without it, the tests of the provider are skipped, and say so.
"""

import json
import os
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import Any, cast
from uuid import uuid4

import pytest

from fatura.domain.offer import PaymentMethod
from fatura.gateways.http import ProviderClient
from fatura.gateways.port import AuthFailedError, ConnectionConfig, Gateway
from fatura.gateways.provider import Provider
from fatura.providers import providers
from tests.live.checks import check_charges, check_refusals

UNKNOWN = {
    "asaas": "pay_0000000000000000",
    "mercado_pago": "100000000-00000000-0000-0000-0000-000000000000",
    "pix": f"fatura{27 * '0'}1",
    "stripe": "in_1000000000000000000000000",
}
"""For each provider, an id of a charge that does not exist."""
pytestmark = pytest.mark.live


class NoDatabase:
    """Stands for the database, which the adapters of providers with an API do not use."""

    def limited(self, _places: object) -> "NoDatabase":
        return self


@pytest.fixture(params=sorted(UNKNOWN))
async def connected(request: pytest.FixtureRequest) -> AsyncGenerator[tuple[str, Gateway, Gateway]]:
    """Return a provider's name, its sandbox connection, and a connection with wrong credentials."""
    name: str = request.param
    variable = f"FATURA_LIVE_{name.upper()}"
    if variable not in os.environ:
        pytest.skip(f"{variable} is not set, so {name} is not checked")
    given = json.loads(os.environ[variable])
    environment = given.get("settings", {}).get("environment")
    assert environment in {"sandbox", "test"}, f"{variable} must name the provider's sandbox as environment"
    client = ProviderClient()
    provider = providers(cast("Any", NoDatabase()), client)[name]
    yield (
        name,
        _gateway(provider, given),
        _gateway(provider, given | {"credentials": _wrong(given["credentials"])}),
    )
    await client.close()


def _gateway(provider: Provider, given: Any) -> Gateway:
    config = ConnectionConfig(
        uuid4(), uuid4(), given.get("settings", {}), given["credentials"], datetime.now(UTC)
    )
    return provider.factory(config)


def _wrong(credentials: dict[str, str]) -> dict[str, str]:
    """Return the credentials with the end of the key or secret changed. Certificates stay as they are."""
    secret = next(name for name in ("accessToken", "apiKey", "clientSecret") if credentials.get(name))
    text = credentials[secret]
    return {**credentials, secret: text[:-4] + ("AAAA" if text[-4:] != "AAAA" else "BBBB")}


@pytest.mark.parametrize("method", list(PaymentMethod))
async def test_a_charge_is_created_found_and_canceled(
    connected: tuple[str, Gateway, Gateway], method: PaymentMethod
) -> None:
    """[D-33, D-27]"""
    name, gateway, _ = connected
    if method not in gateway.capabilities().methods:
        pytest.skip(f"the connection to {name} has no {method}")
    await check_charges(gateway, method, now=datetime.now(UTC))


async def test_unknown_charges_and_forged_webhooks_are_refused(
    connected: tuple[str, Gateway, Gateway],
) -> None:
    """[D-35 webhook, D-56]"""
    name, gateway, _ = connected
    await check_refusals(gateway, UNKNOWN[name])


async def test_wrong_credentials_are_refused(connected: tuple[str, Gateway, Gateway]) -> None:
    """[D-43]"""
    with pytest.raises(AuthFailedError):
        await connected[2].check_credentials()
