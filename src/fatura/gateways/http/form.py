"""Encode the bodies of requests: as JSON, or as the forms that some providers expect."""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

import msgspec

_ENCODER = msgspec.json.Encoder(decimal_format="number")


@dataclass(frozen=True, slots=True)
class Form:
    """A form in place of a JSON body. `idempotency_key` is sent in the header of that name."""

    fields: Mapping[str, str]
    idempotency_key: str | None = None


def encoded(body: object) -> tuple[bytes | None, Mapping[str, str]]:
    """Return the bytes of a body, and the headers that belong to it. Decimals become JSON numbers."""
    if body is None:
        return None, {}
    if not isinstance(body, Form):
        return _ENCODER.encode(body), {"Content-Type": "application/json"}
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    if body.idempotency_key is not None:
        headers["Idempotency-Key"] = body.idempotency_key
    return urlencode(body.fields).encode(), headers
