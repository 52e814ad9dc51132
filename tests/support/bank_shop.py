"""What a shop that bills with the Pix API of a simulated bank (`tests.doubles.pix`) needs."""

from functools import partial
from typing import Any

from fatura.gateways.adapters.pix import settings
from fatura.gateways.adapters.pix.adapter import PixGateway
from fatura.gateways.http import ProviderClient
from fatura.gateways.provider import Provider
from tests.contract.pix_provider import bank_at, credentials_of
from tests.doubles.pix.book import Account
from tests.doubles.pix.server import PixDouble


def provider(client: ProviderClient, url: str) -> Provider:
    """Return the provider with a simulated bank at this URL, which takes the place of Efí."""
    factory = partial(PixGateway, client, banks={"efi": bank_at(url)})
    return Provider(factory, frozenset(), settings.FIELDS, settings.CREDENTIALS)


def connection(double: PixDouble, account: Account) -> Any:
    """Return the credentials and settings of a connection to the account."""
    return {
        "credentials": credentials_of(double, account),
        "settings": {"bank": "efi", "pixKey": account.pix_key},
    }
