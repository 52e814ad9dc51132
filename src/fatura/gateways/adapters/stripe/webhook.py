"""The webhooks of Stripe: JSON events that are signed with a secret of the endpoint (D-35, D-263)."""

import hmac
from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256

from fatura.gateways.adapters.stripe.charges import DRAFT, INVOICE_ID, has_reference
from fatura.gateways.adapters.stripe.objects import Event, read_as
from fatura.gateways.answers import InvalidFieldError
from fatura.gateways.port import AuthFailedError, Webhook, WebhookHint

SIGNATURE_HEADER = "stripe-signature"
MAX_AGE_SECONDS = 300
"""Maximum difference between the time in the signature and the current time."""
_MAX_SIGNATURES = 10
_MAX_DIGITS = 12


def hint(webhook: Webhook, *, secrets: Sequence[str], now: datetime, is_live: bool) -> WebhookHint:
    """Verify the signature, and return a hint with the invoice that the event is about. Raises AuthFailedError.

    The engine reads the invoice from Stripe, and ignores copies of an event (D-266). Events about drafts
    and about something else than the engine's invoices name no charge.
    """
    header = webhook.headers.get(SIGNATURE_HEADER, "")
    pairs = [each.strip().partition("=") for each in header.split(",")]
    times = [value for name, _, value in pairs if name == "t"]
    given = [value.encode(errors="replace") for name, _, value in pairs if name == "v1"][:_MAX_SIGNATURES]
    if len(times) != 1 or not (times[0].isascii() and times[0].isdigit() and len(times[0]) <= _MAX_DIGITS):
        raise AuthFailedError("the webhook has no signature of Stripe")
    if abs(now.timestamp() - int(times[0])) > MAX_AGE_SECONDS:
        raise AuthFailedError("the signature of the webhook is too old or too new")
    signed = times[0].encode() + b"." + webhook.body
    expected = [hmac.new(secret.encode(), signed, sha256).hexdigest().encode() for secret in secrets]
    if not any(hmac.compare_digest(right, each) for right in expected for each in given):
        raise AuthFailedError("the webhook is not signed with the connection's webhookSecret")
    try:
        event = read_as(webhook.body, Event)
    except InvalidFieldError:
        raise AuthFailedError("the webhook is not an event of Stripe") from None
    if event.livemode is not is_live or event.account is not None:
        raise AuthFailedError("the webhook is about another environment or account")
    return WebhookHint(_charges_of(event), event.id)


def _charges_of(event: Event) -> tuple[str, ...]:
    found = event.data.object
    is_charge = found.object == "invoice" and found.status != DRAFT and has_reference(found.metadata)
    return (found.id,) if is_charge and found.id is not None and INVOICE_ID.fullmatch(found.id) else ()
