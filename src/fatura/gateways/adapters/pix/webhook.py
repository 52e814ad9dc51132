"""The webhooks of the Pix API: JSON that names payments, with the connection's token in the URL (D-35, D-262)."""

import hashlib
import hmac

import msgspec

from fatura.gateways.adapters.pix.charges import reference_of
from fatura.gateways.adapters.pix.objects import WebhookBody
from fatura.gateways.port import AuthFailedError, Webhook, WebhookHint

PARAMETER = "token"
_PATH = "/pix"
"""Banks append this path to the URL of the webhook, even after a query."""


def hint(webhook: Webhook, *, token: str | None) -> WebhookHint:
    """Compare the token of the URL, and return a hint with the charges of the payments. Raises AuthFailedError.

    Banks do not sign the body, so a sender with the token can write any body. This does no harm, because the engine
    reads the charges from the bank. Some banks first send a test without payments, which names no charge.
    """
    parts = (part.partition("=") for part in webhook.query.split("&"))
    given = next((value for name, _, value in parts if name == PARAMETER), "")
    if token is None or not hmac.compare_digest(
        given.removesuffix(_PATH).encode(errors="replace"), token.encode()
    ):
        raise AuthFailedError("the URL of the webhook has not the connection's webhookToken")
    try:
        payments = msgspec.json.decode(webhook.body, type=WebhookBody).pix
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        raise AuthFailedError("the webhook is not one of the Pix API") from None
    named = dict.fromkeys(each.txid for each in payments if each.txid and reference_of(each.txid))
    # A notice has no id. A notice about a refund repeats the payment with the refund's state, so its bytes differ.
    return WebhookHint(tuple(named), hashlib.sha256(webhook.body).hexdigest())
