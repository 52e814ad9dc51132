"""What a shop that bills with a simulated Stripe (`tests.doubles.stripe`) needs."""

from functools import partial
from typing import Any

from fatura.gateways.adapters.stripe import settings
from fatura.gateways.adapters.stripe.adapter import StripeGateway
from fatura.gateways.http import ProviderClient
from fatura.gateways.port import Webhook
from fatura.gateways.provider import Provider
from tests.contract.stripe_provider import event, signature
from tests.doubles.stripe.book import Account

SECRET = "whsec_" + 40 * "w"


def provider(client: ProviderClient, url: str, gateway: type[StripeGateway] = StripeGateway) -> Provider:
    """Return the provider with a simulated Stripe at this URL."""
    return Provider(partial(gateway, client, url=url), frozenset(), settings.FIELDS, settings.CREDENTIALS)


def connection(key: str) -> Any:
    """Return the credentials and settings of a connection to the account with this API key."""
    return {
        "credentials": {"apiKey": key},
        "settings": {"environment": "sandbox", "webhookSecret": SECRET},
    }


def webhook(invoice: Any, *, at: int, secret: str = SECRET) -> Webhook:
    """Return the webhook about an invoice of Stripe, signed at this Unix time."""
    body = event(invoice)
    return Webhook({"stripe-signature": signature(body, secret, at=at)}, "", body)


def charges_of(account: Account, invoice: Any) -> list[Any]:
    """Return Stripe's invoices of an invoice of the engine that are drafts, can be paid, or are paid."""
    return [
        each
        for each in account.invoices.values()
        if each["metadata"]["fatura_reference"].startswith(invoice["id"]) and each["status"] != "void"
    ]
