"""What a shop that bills with a simulated Mercado Pago (`tests.doubles.mercado_pago`) needs."""

from functools import partial
from typing import Any

from fatura.gateways.adapters.mercado_pago import settings
from fatura.gateways.adapters.mercado_pago.adapter import MercadoPagoGateway
from fatura.gateways.http import ProviderClient
from fatura.gateways.provider import Provider
from tests.doubles.mercado_pago.book import Account

SECRET = 40 * "w"


def provider(client: ProviderClient, url: str) -> Provider:
    """Return the provider with a simulated Mercado Pago at this URL."""
    return Provider(
        partial(MercadoPagoGateway, client, url=url), frozenset(), settings.FIELDS, settings.CREDENTIALS
    )


def connection(token: str) -> Any:
    """Return the credentials and settings of a connection to the account with this access token."""
    return {
        "credentials": {"accessToken": token},
        "settings": {"environment": "test", "webhookSecret": SECRET},
    }


def links_of(account: Account, invoice: Any) -> list[Any]:
    """Return the preferences of an invoice."""
    return [
        each
        for each in account.preferences.values()
        if str(each["external_reference"]).startswith(invoice["id"])
    ]
