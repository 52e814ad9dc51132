"""The webhooks of Asaas: JSON that names a payment, with a fixed token in a header (D-35, D-261)."""

import hmac

from fatura.gateways.adapters.asaas.charges import CHARGE_ID, has_reference
from fatura.gateways.adapters.asaas.objects import WebhookEvent, read_as
from fatura.gateways.answers import InvalidFieldError
from fatura.gateways.port import AuthFailedError, Webhook, WebhookHint

TOKEN_HEADER = "asaas-access-token"  # noqa: S105 - the name of a header


def hint(webhook: Webhook, *, token: str | None) -> WebhookHint:
    """Compare the token, and return a hint with the charge of the payment in the body. Raises AuthFailedError.

    Asaas does not sign the body, so a sender with the token can write any body. This does no harm, because the engine
    reads the charge from Asaas. An event about something else than a payment of the engine names no charge.
    """
    given = webhook.headers.get(TOKEN_HEADER, "")
    if token is None or not hmac.compare_digest(given.encode(errors="replace"), token.encode()):
        raise AuthFailedError("the webhook has not the connection's webhookToken")
    try:
        event = read_as(webhook.body, WebhookEvent)
    except InvalidFieldError:
        raise AuthFailedError("the webhook is not an event of Asaas") from None
    payment = event.payment
    if payment is None or not has_reference(payment):
        return WebhookHint(())
    charge_id = payment.installment or payment.id
    event_id = event.id if isinstance(event.id, str) else None
    return WebhookHint((charge_id,) if CHARGE_ID.fullmatch(charge_id) else (), event_id)
