"""Sign and verify webhooks and price calls, with the standard library only (spec 5.6, D-40, D-42).

A receiver must verify the raw body before parsing it:

    verify(body, headers.get(HEADER), secret=secret)
"""

import base64
import hmac
import time
from collections.abc import Sequence

HEADER = "X-Service-Signature"
TOLERANCE_SECONDS = 300
"""Maximum difference between a signature's timestamp and the receiver's clock (spec 8)."""
PREFIX = "whsec_"
_MAX_HEADER_CHARS = 8192
_MAX_TIMESTAMP_CHARS = 12
"""Maximum number of digits of a timestamp, which is in Unix seconds."""


class SignatureError(ValueError):
    """The signature, its timestamp or the secret is invalid; the message says what is wrong."""


def sign(body: bytes, secrets: Sequence[str], *, timestamp: int) -> str:
    """Return the header `t=<Unix seconds>,v1=<hex>`, with one `v1` for each secret, the newest first (D-40).

    Raises SignatureError if there is no secret, or if a secret is empty.
    """
    if not secrets or not all(secrets):
        raise SignatureError("a secret is missing or empty; anyone could sign")
    return ",".join((f"t={timestamp}", *(f"v1={_v1(body, secret, timestamp)}" for secret in secrets)))


def verify(
    body: bytes,
    header: str | None,
    *,
    secret: str,
    tolerance_seconds: int = TOLERANCE_SECONDS,
    now: float | None = None,
) -> None:
    """Check that a `v1` signature is valid for the body, and that `t` is within `tolerance_seconds` of real time `now`.

    Pass the header as received, or None when it is missing. Signatures are compared in constant time.
    Raises SignatureError (spec 5.6, spec 8, D-40).
    """
    if not secret:
        raise SignatureError("the secret is empty; anyone could sign with it")
    timestamp, signatures = _parse(header)
    if abs((time.time() if now is None else now) - timestamp) > tolerance_seconds:
        message = f"the timestamp is more than {tolerance_seconds} seconds off: the message is old, or a clock is wrong"
        raise SignatureError(message)
    expected = _v1(body, secret, timestamp).encode()
    matches = [hmac.compare_digest(expected, signature.encode()) for signature in signatures]
    if not any(matches):
        message = "no v1 signature matches: the secret is another, or the body is not the raw bytes"
        raise SignatureError(message)


def standard_signature(message_id: str, body: bytes, *, secrets: Sequence[str], timestamp: int) -> str:
    """Return the `webhook-signature` header of Standard Webhooks: one signature of the message for each secret (D-42).

    Raises SignatureError if a secret is empty or not valid base64.
    """
    content = f"{message_id}.{timestamp}.".encode() + body
    digests = (hmac.digest(_decoded(secret), content, "sha256") for secret in secrets)
    return " ".join(f"v1,{base64.b64encode(digest).decode()}" for digest in digests)


def _v1(body: bytes, secret: str, timestamp: int) -> str:
    return hmac.digest(secret.encode(), f"{timestamp}.".encode() + body, "sha256").hex()


def _decoded(secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except ValueError:  # this includes binascii.Error
        key = b""
    if not key:
        raise SignatureError(f"an integration secret must be `{PREFIX}` followed by base64")
    return key


def _parse(header: str | None) -> tuple[int, list[str]]:
    """Return the timestamp and all v1 signatures of an untrusted header. Raises SignatureError."""
    if not header:
        raise SignatureError(f"the header {HEADER} is missing")
    if len(header) > _MAX_HEADER_CHARS or not header.isascii():
        raise SignatureError("the header is too long to be a signature, or not ASCII")
    pairs = [part.strip().partition("=") for part in header.split(",")]
    timestamps = [value for name, _, value in pairs if name == "t"]
    signatures = [value for name, _, value in pairs if name == "v1"]
    if len(timestamps) != 1 or not timestamps[0].isdigit() or not signatures:
        raise SignatureError("the header is not `t=<Unix seconds>,v1=<hex>`")
    if len(timestamps[0]) > _MAX_TIMESTAMP_CHARS:
        raise SignatureError("the header's timestamp is too large")
    return int(timestamps[0]), signatures
