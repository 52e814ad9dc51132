"""Authentication tags, by which the engine recognizes API keys and connection ids that it has made (ADR 0018).

Checking a tag needs no query, so a forged key or id costs no transaction. A tag does not show whether a key is revoked.
With the secret key of the tags, the engine also computes the ids of refunds and other results of clients' requests (see
`Tagger.request_id`).
"""

import hmac
from typing import Literal
from uuid import UUID

from fatura.domain.pay_links import PayLinks

KEY_BYTES = 32
API_KEY_TAG_BYTES = 8
_ID_TAG_BITS = 48
"""Number of bits at the end of a UUIDv7 that a tag replaces. The id keeps 26 of its 74 random bits."""


RequestKind = Literal["cancel", "payment", "refund", "reissue"]


class Tagger:
    """Makes and checks tags. All processes of one database share one key, from which `pay_links` derives its own."""

    __slots__ = ("_key", "pay_links")

    def __init__(self, key: bytes) -> None:
        self._key = key
        self.pay_links = PayLinks(key)

    def api_key_tag(self, parts: bytes) -> bytes:
        return self._tag(b"api key", parts)[:API_KEY_TAG_BYTES]

    def tagged_connection_id(self, new_id: UUID, *, account_id: UUID) -> UUID:
        """Return the UUIDv7 `new_id`, with its last bits replaced by a tag for the account."""
        head = new_id.int >> _ID_TAG_BITS
        tag = self._tag(b"connection", account_id.bytes + head.to_bytes(10))
        return UUID(int=head << _ID_TAG_BITS | int.from_bytes(tag[: _ID_TAG_BITS // 8]))

    def is_connection_id(self, connection_id: UUID, *, account_id: UUID) -> bool:
        """Return whether the engine has made this connection id for this account."""
        expected = self.tagged_connection_id(connection_id, account_id=account_id)
        return hmac.compare_digest(expected.bytes, connection_id.bytes)

    def request_id(self, kind: RequestKind, invoice_id: UUID, *, key: str) -> UUID:
        """Return the id of the object that a request creates, for example of a refund.

        A repeated request with the same Idempotency-Key `key` gets the same id. Without the tagger's secret key, the id
        does not help to guess the Idempotency-Key (D-228).
        """
        digest = self._tag(b"request", invoice_id.bytes + f"{kind} {key}".encode())
        return UUID(bytes=digest[:16], version=5)

    def _tag(self, kind: bytes, value: bytes) -> bytes:
        return hmac.digest(self._key, kind + b"\0" + value, "sha256")
