"""The adapters of the engine with the URLs of simulated providers, for each process of the run `providers`."""

import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial

from fatura.domain.credentials import Mode
from fatura.gateways.http import ProviderClient
from fatura.gateways.provider import Providers
from fatura.store.db import Database
from tests.faults.worker import OpenProviders
from tests.support import asaas_shop, bank_shop, mercado_pago_shop, stripe_shop
from tests.support.provider_shop import without_poll_budget

_PROVIDERS = {
    "asaas": asaas_shop.provider,
    "mercado_pago": mercado_pago_shop.provider,
    "pix": bank_shop.provider,
    "stripe": stripe_shop.provider,
}


@dataclass(frozen=True, slots=True)
class Places:
    """The URL of each simulated provider, and the certificate of the authority that the bank's server needs, as PEM."""

    urls: Mapping[str, str]
    authority: str


def open_at(places: Places) -> OpenProviders:
    new_ssl_context = partial(ssl.create_default_context, cadata=places.authority)

    @asynccontextmanager
    async def opened(_db: Database) -> AsyncGenerator[Providers]:
        client = ProviderClient(is_exempt=True, new_ssl_context=new_ssl_context)
        modes = frozenset({Mode.LIVE})
        try:
            yield {
                name: without_poll_budget(replace(_PROVIDERS[name](client, url), modes=modes))
                for name, url in places.urls.items()
            }
        finally:
            await client.close()

    return opened
