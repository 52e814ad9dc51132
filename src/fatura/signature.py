"""Signatures of what the engine sends, made and verified; needs nothing but Python (spec 5.6, D-40, D-42).

A receiver verifies the raw bytes it got, before it parses them:

    verify(body, headers.get(HEADER), secret=secret)
"""

import base64
import hashlib
import hmac
import time
from collections.abc import Sequence

HEADER = "X-Service-Signature"
TOLERANCE_SECONDS = 300
"""How far a signature's timestamp may lie from the receiver's clock, either way (spec 8)."""
PREFIX = "whsec_"
_MAX_HEADER_CHARS = 8192
_MAX_TIMESTAMP_CHARS = 12
"""Of unix seconds: enough for thirty thousand years."""


class SignatureError(ValueError):
    """The body was not signed with the secret, or not within the tolerance; the message says which."""


def sign(body: bytes, secrets: Sequence[str], *, timestamp: int) -> str:
    """Return the header `t=<unix seconds>,v1=<hex>`, with one `v1` for each secret, the newest first (D-40)."""
    assert all(secrets), "a signature with no key is anybody's"
    return ",".join((f"t={timestamp}", *(f"v1={_v1(body, secret, timestamp)}" for secret in secrets)))


def verify(
    body: bytes,
    header: str | None,
    *,
    secret: str,
    tolerance_seconds: int = TOLERANCE_SECONDS,
    now: float | None = None,
) -> None:
    """Accept a body if any `v1` of the header is its signature and `t` is close to now (real time), else raise.

    Takes the header as it came, None when there was none, and compares in constant time.
    Raises SignatureError (spec 5.6, spec 8, D-40).
    """
    if not secret:
        message = "the secret is empty: anybody could sign with it"
        raise SignatureError(message)
    timestamp, signatures = _parse(header)
    if abs((time.time() if now is None else now) - timestamp) > tolerance_seconds:
        message = (
            f"the timestamp is more than {tolerance_seconds} seconds off: an old message, or a wrong clock"
        )
        raise SignatureError(message)
    expected = _v1(body, secret, timestamp).encode()
    matches = [hmac.compare_digest(expected, signature.encode()) for signature in signatures]
    if not any(matches):
        message = "no v1 signature matches: another secret, or a body that is not the raw bytes"
        raise SignatureError(message)


def standard_signature(message_id: str, body: bytes, *, secrets: Sequence[str], timestamp: int) -> str:
    """Return Standard Webhooks' `webhook-signature`, keyed with each secret's decoded bytes (D-42)."""
    content = f"{message_id}.{timestamp}.".encode() + body
    digests = (hmac.digest(_decoded(secret), content, hashlib.sha256) for secret in secrets)
    return " ".join(f"v1,{base64.b64encode(digest).decode()}" for digest in digests)


def _v1(body: bytes, secret: str, timestamp: int) -> str:
    return hmac.new(secret.encode(), f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()


def _decoded(secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except ValueError:  # binascii.Error among them
        key = b""
    if not key:
        message = f"an integration secret is `{PREFIX}` and base64"
        raise SignatureError(message)
    return key


def _parse(header: str | None) -> tuple[int, list[str]]:
    """Return the timestamp and all v1 signatures of a header that may be anything. Raises SignatureError."""
    if not header:
        message = f"the header {HEADER} is missing"
        raise SignatureError(message)
    if len(header) > _MAX_HEADER_CHARS or not header.isascii():
        message = "the header is too long to be a signature, or not ASCII"
        raise SignatureError(message)
    pairs = [part.strip().partition("=") for part in header.split(",")]
    timestamps = [value for name, _, value in pairs if name == "t"]
    signatures = [value for name, _, value in pairs if name == "v1"]
    if len(timestamps) != 1 or not timestamps[0].isdigit() or not signatures:
        message = "the header is not `t=<unix seconds>,v1=<hex>`"
        raise SignatureError(message)
    if len(timestamps[0]) > _MAX_TIMESTAMP_CHARS:
        message = "the header's timestamp is no time"
        raise SignatureError(message)
    return int(timestamps[0]), signatures
