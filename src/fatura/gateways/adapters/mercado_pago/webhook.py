"""The webhooks of Mercado Pago: an id of a payment, signed together with a time (D-35, D-265)."""

import hashlib
import hmac
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from fatura.gateways.adapters.mercado_pago.objects import read_as
from fatura.gateways.answers import InvalidFieldError
from fatura.gateways.port import AuthFailedError, Webhook, WebhookHint

OLDEST = timedelta(hours=1)
"""Maximum age of a signature. Mercado Pago repeats a webhook after 15 and 30 minutes, perhaps with the old time."""
AHEAD = timedelta(minutes=5)
"""Maximum time by which the clock of Mercado Pago may be ahead."""
_MILLISECONDS_FROM = 10**11
"""Times from this number on are milliseconds; as seconds, they would be in the year 5138."""
_DIGITS = re.compile("[0-9]{1,13}")
_ABOUT_PAYMENTS = re.compile("payment|chargebacks|topic_chargebacks_wh|topic_claims_integration_wh")


class _Data(msgspec.Struct, frozen=True):
    id: int | str | None = None


class _Event(msgspec.Struct, frozen=True):
    type: str | None = None
    data: _Data | None = None


def hint(webhook: Webhook, *, secret: str | None, now: datetime) -> WebhookHint:
    """Verify the signature. An event about payments names no charge, so the engine polls all unpaid charges (D-190).

    A payment's id does not say to which charge it belongs, and this function must not ask Mercado Pago. The signature
    identifies the event, because the body and its id are not signed (D-266). Raises AuthFailedError.
    """
    signature = _parts(webhook.headers.get("x-signature", ""))
    query: dict[str, str] = dict(parse_qsl(webhook.query))
    event = _event(webhook.body)
    named = query.get("data.id") or (str(event.data.id or "") if event.data is not None else "")
    sent_at, given = signature.get("ts", ""), signature.get("v1", "")
    request_id = webhook.headers.get("x-request-id", "").strip()
    # Mercado Pago's documents sign the id in lower case, its own library signs it as it was sent
    expected = [
        _signed(secret or "", each, request_id=request_id, sent_at=sent_at) for each in (named, named.lower())
    ]
    matches = [hmac.compare_digest(each.encode(), given.encode(errors="replace")) for each in expected]
    if secret is None or not any(matches):
        raise AuthFailedError("the signature of the webhook is missing or wrong")
    if not -AHEAD <= now - _instant(sent_at) <= OLDEST:
        raise AuthFailedError("the signature of the webhook is too old, or from the future")
    kind = query.get("type") or event.type or ""
    return WebhookHint(None, given) if _ABOUT_PAYMENTS.fullmatch(kind) else WebhookHint(())


def _parts(header: str) -> dict[str, str]:
    """Return the values of a header such as `ts=1742505638683,v1=ced3...`."""
    pairs = (each.partition("=") for each in header.split(","))
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def _signed(secret: str, data_id: str, *, request_id: str, sent_at: str) -> str:
    """Return the signature of a webhook. Empty values are left out of what is signed."""
    values = (("id", data_id), ("request-id", request_id), ("ts", sent_at))
    text = "".join(f"{name}:{value};" for name, value in values if value)
    return hmac.new(secret.encode(), text.encode(errors="replace"), hashlib.sha256).hexdigest()


def _instant(text: str) -> datetime:
    """Return the time of a signature, in seconds or milliseconds. Raises AuthFailedError."""
    if not _DIGITS.fullmatch(text):
        raise AuthFailedError("the signature of the webhook has no time")
    number = int(text)
    seconds = number / 1000 if number >= _MILLISECONDS_FROM else number
    return datetime.fromtimestamp(seconds, UTC)


def _event(body: bytes) -> _Event:
    """Return the event in the body, or an empty one: the signature covers only the id, which may be in the URL."""
    try:
        found: Any = read_as(body, _Event)
    except InvalidFieldError:
        return _Event()
    return found
