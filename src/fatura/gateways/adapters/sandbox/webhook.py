"""The webhook of the sandbox gateway: JSON with `chargeId`, signed like the engine's own webhooks (D-35, D-46)."""

import json
import re
from typing import Any, cast

from fatura.gateways.port import AuthFailedError, Webhook, WebhookHint
from fatura.gateways.sandbox_port import WEBHOOK_SIGNATURE
from fatura.signature import SignatureError, verify

CHARGE_ID = re.compile("sbx_[0-9a-f]{32}")


def hint(webhook: Webhook, *, secret: str | None) -> WebhookHint:
    """Verify a webhook and return a hint with the charge id in its body. Raises AuthFailedError.

    Without a `chargeId`, the engine polls all unpaid charges. A malformed `chargeId` has no effect.

    A connection without a `webhookSecret` accepts no webhooks.
    """
    if secret is None:
        raise AuthFailedError("the connection has no webhookSecret")
    try:
        verify(webhook.body, webhook.headers.get(WEBHOOK_SIGNATURE, ""), secret=secret)
    except SignatureError as error:
        raise AuthFailedError(str(error)) from None
    named = _charge_id(webhook.body)
    if named is None:
        return WebhookHint(None)
    return WebhookHint((named,) if CHARGE_ID.fullmatch(named) else ())


def _charge_id(body: bytes) -> str | None:
    try:
        value: Any = json.loads(body)
    except (ValueError, RecursionError):
        return None
    named = cast("dict[str, Any]", value).get("chargeId") if isinstance(value, dict) else None
    return named if isinstance(named, str) else None
