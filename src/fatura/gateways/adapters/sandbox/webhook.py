"""The sandbox gateway's webhook: JSON with `chargeId` and `id`, signed like the engine's webhooks (D-35, D-46)."""

import json
import re
from typing import Any, cast

from fatura.gateways.port import AuthFailedError, Webhook, WebhookHint
from fatura.gateways.sandbox_port import WEBHOOK_SIGNATURE
from fatura.signature import SignatureError, verify

CHARGE_ID = re.compile("sbx_[0-9a-f]{32}")


def hint(webhook: Webhook, *, secret: str | None) -> WebhookHint:
    """Verify a webhook and return a hint with the charge id and the event's `id` in its body. Raises AuthFailedError.

    Without a `chargeId`, the engine polls all unpaid charges. A malformed `chargeId` has no effect. Without an `id`,
    the engine does not deduplicate the webhook.

    A connection without a `webhookSecret` accepts no webhooks.
    """
    if secret is None:
        raise AuthFailedError("the connection has no webhookSecret")
    try:
        verify(webhook.body, webhook.headers.get(WEBHOOK_SIGNATURE, ""), secret=secret)
    except SignatureError as error:
        raise AuthFailedError(str(error)) from None
    fields = _fields(webhook.body)
    named, event_id = _text(fields, "chargeId"), _text(fields, "id")
    if named is None:
        return WebhookHint(None, event_id)
    return WebhookHint((named,) if CHARGE_ID.fullmatch(named) else (), event_id)


def _fields(body: bytes) -> dict[str, Any]:
    try:
        value: Any = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _text(fields: dict[str, Any], name: str) -> str | None:
    value = fields.get(name)
    return value if isinstance(value, str) else None
