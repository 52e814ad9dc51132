"""The payment providers that merchants can connect to. Only this module imports their adapters."""

import asyncio
from functools import partial

from fatura.domain.credentials import Mode
from fatura.gateways.adapters.asaas import settings as asaas
from fatura.gateways.adapters.asaas.adapter import AsaasGateway
from fatura.gateways.adapters.mercado_pago import settings as mercado_pago
from fatura.gateways.adapters.mercado_pago.adapter import MercadoPagoGateway
from fatura.gateways.adapters.pix import settings as pix
from fatura.gateways.adapters.pix.adapter import PixGateway
from fatura.gateways.adapters.pix_key import settings as pix_key
from fatura.gateways.adapters.pix_key.adapter import PixKeyGateway
from fatura.gateways.adapters.recovery import RecoveryGateway
from fatura.gateways.adapters.sandbox import settings as sandbox
from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.adapters.stripe import settings as stripe
from fatura.gateways.adapters.stripe.adapter import StripeGateway
from fatura.gateways.http import ProviderClient
from fatura.gateways.provider import Provider, Providers
from fatura.store.db import Database

SANDBOX_TRANSACTIONS = 2
"""Limit of the sandbox gateway's concurrent transactions in a process, so that live accounts get connections too."""


def providers(db: Database, calls: ProviderClient) -> Providers:
    """Return the providers by name. Adapters call providers with the client `calls`."""
    live = frozenset({Mode.LIVE})
    of_sandbox = partial(SandboxGateway, db.limited(asyncio.Semaphore(SANDBOX_TRANSACTIONS)))
    of_pix_key = partial(PixKeyGateway, db)
    of_asaas = partial(AsaasGateway, calls)
    of_pix = partial(PixGateway, calls)
    of_mercado_pago = partial(MercadoPagoGateway, calls)
    of_stripe = partial(StripeGateway, calls)
    return {
        SandboxGateway.provider: Provider(of_sandbox, frozenset({Mode.SANDBOX}), sandbox.FIELDS),
        PixKeyGateway.provider: Provider(of_pix_key, live, pix_key.FIELDS, returns_money=False),
        AsaasGateway.provider: Provider(of_asaas, live, asaas.FIELDS, asaas.CREDENTIALS),
        PixGateway.provider: Provider(of_pix, live, pix.FIELDS, pix.CREDENTIALS),
        MercadoPagoGateway.provider: Provider(
            of_mercado_pago, live, mercado_pago.FIELDS, mercado_pago.CREDENTIALS
        ),
        RecoveryGateway.provider: Provider(RecoveryGateway, live),
        StripeGateway.provider: Provider(of_stripe, live, stripe.FIELDS, stripe.CREDENTIALS),
    }
