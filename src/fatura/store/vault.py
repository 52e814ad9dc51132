"""Secrets at rest: AES-256-GCM under the key ring, bound to the row that holds them.

A ciphertext moved to another row, column or account does not open. The ring's first key seals; all of them open.
What only has to be known again is kept as a fingerprint: a plain hash of a tax number is found by trying them all.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Sequence
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES = 32
_KEY_ID_BYTES = 4
_NONCE_BYTES = 12


class KeyRingError(Exception):
    """The key ring is missing, malformed or lacks the key that sealed a value."""


def new_key() -> str:
    """Return a fresh key for FATURA_SECRET_KEYS: base64 of 32 random bytes."""
    return base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()


class Vault:
    """Seals and opens secrets; safe to share between tasks."""

    __slots__ = ("_ciphers", "_fingerprint_keys", "_sealing_id")

    def __init__(self, keys: Sequence[str]) -> None:
        """Take the ring, newest key first. Raises KeyRingError."""
        if not keys:
            message = "the key ring is empty: set FATURA_SECRET_KEYS; `openssl rand -base64 32` makes a key"
            raise KeyRingError(message)
        raw_keys = [_decode(key) for key in keys]
        self._ciphers = {_key_id(raw): AESGCM(raw) for raw in raw_keys}
        self._fingerprint_keys = {_key_id(raw): _fingerprint_key(raw) for raw in raw_keys}
        self._sealing_id = _key_id(raw_keys[0])

    def seal(self, plain: bytes, *, place: str, account_id: UUID, row_id: str) -> bytes:
        """Encrypt for one place (`table.column`) of one row of one account."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = self._ciphers[self._sealing_id].encrypt(nonce, plain, _bound_to(place, account_id, row_id))
        return self._sealing_id + nonce + sealed

    def open(self, sealed: bytes, *, place: str, account_id: UUID, row_id: str) -> bytes:
        """Decrypt what `seal` made for the same place. Raises KeyRingError."""
        key_id, nonce = sealed[:_KEY_ID_BYTES], sealed[_KEY_ID_BYTES : _KEY_ID_BYTES + _NONCE_BYTES]
        cipher = self._ciphers.get(key_id)
        if cipher is None:
            message = f"{place} was sealed with key {key_id.hex()}, which FATURA_SECRET_KEYS lacks; add it at the end"
            raise KeyRingError(message)
        try:
            return cipher.decrypt(
                nonce, sealed[_KEY_ID_BYTES + _NONCE_BYTES :], _bound_to(place, account_id, row_id)
            )
        except (InvalidTag, ValueError):  # ValueError: too short to hold a nonce
            message = f"{place} of {row_id} does not open: it was changed or belongs to another row"
            raise KeyRingError(message) from None

    def fingerprint(self, plain: bytes, *, place: str, account_id: UUID, row_id: str) -> bytes:
        """Return by what the same bytes are known again at one place; without the ring no guess can be tried."""
        key_id = self._sealing_id
        return key_id + self._digest(key_id, plain, bound_to=_bound_to(place, account_id, row_id))

    def is_fingerprint(
        self, fingerprint: bytes, plain: bytes, *, place: str, account_id: UUID, row_id: str
    ) -> bool:
        """Say whether `fingerprint` made this of the same bytes. Raises KeyRingError."""
        key_id, digest = fingerprint[:_KEY_ID_BYTES], fingerprint[_KEY_ID_BYTES:]
        if key_id not in self._fingerprint_keys:
            message = f"{place} was written with key {key_id.hex()}, which FATURA_SECRET_KEYS lacks; add it at the end"
            raise KeyRingError(message)
        return hmac.compare_digest(
            digest, self._digest(key_id, plain, bound_to=_bound_to(place, account_id, row_id))
        )

    def _digest(self, key_id: bytes, plain: bytes, *, bound_to: bytes) -> bytes:
        return hmac.digest(self._fingerprint_keys[key_id], bound_to + b"|" + plain, hashlib.sha256)


def _decode(key: str) -> bytes:
    try:
        raw = base64.b64decode(key, validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != KEY_BYTES:
        message = "FATURA_SECRET_KEYS holds a key that is not base64 of 32 bytes; `openssl rand -base64 32` makes one"
        raise KeyRingError(message)
    return raw


def _key_id(raw: bytes) -> bytes:
    return hashlib.sha256(b"fatura key id" + raw).digest()[:_KEY_ID_BYTES]


def _fingerprint_key(raw: bytes) -> bytes:
    """Return a key of its own, so that no key has two uses."""
    return hmac.digest(raw, b"fatura fingerprint key", hashlib.sha256)


def _bound_to(place: str, account_id: UUID, row_id: str) -> bytes:
    return f"{place}|{account_id}|{row_id}".encode()
