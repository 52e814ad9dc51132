"""Encryption of secrets at rest: AES-256-GCM, bound to the row that holds them.

A ciphertext cannot be decrypted as a value of another row, column or account. Only the first key of the key ring
encrypts; every key of the ring can decrypt.
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

from fatura.failure_text import OwnTextError

KEY_BYTES = 32
KEY_ID_BYTES = 4
"""Length of the key id at the start of a sealed value."""
_NONCE_BYTES = 12


class KeyRingError(OwnTextError):
    """The key ring is missing or malformed, or a value cannot be decrypted with it."""


_RING = "the key ring (FATURA_SECRET_KEYS, or the file secret_keys in the data folder)"


def new_key() -> str:
    """Return a new key for FATURA_SECRET_KEYS: base64 of 32 random bytes."""
    return base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()


class Vault:
    """Seals and opens secrets; safe to share between tasks."""

    __slots__ = ("_ciphers", "_hash_keys", "key_ids", "sealing_id")

    def __init__(self, keys: Sequence[str]) -> None:
        """Decode the key ring `keys`, whose first key encrypts. Raises KeyRingError if it is empty or malformed."""
        if not keys:
            message = "the key ring is empty: set FATURA_SECRET_KEYS; `openssl rand -base64 32` makes a key"
            raise KeyRingError(message)
        ring = {_key_id(raw): raw for raw in map(_decode, keys)}
        self._ciphers = {key_id: AESGCM(raw) for key_id, raw in ring.items()}
        self._hash_keys = {
            key_id: hmac.digest(raw, b"fatura keyed hash", "sha256") for key_id, raw in ring.items()
        }
        self.key_ids = tuple(self._ciphers)
        self.sealing_id = self.key_ids[0]

    def seal(self, plain: bytes, *, place: str, account_id: UUID, row_id: str) -> bytes:
        """Encrypt a value and return the ciphertext, which begins with the id of the key.

        Only `open` with the same `place` (`table.column`), account and row can decrypt the ciphertext.
        """
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = self._ciphers[self.sealing_id].encrypt(nonce, plain, _bound_to(place, account_id, row_id))
        return self.sealing_id + nonce + sealed

    def open(self, sealed: bytes, *, place: str, account_id: UUID, row_id: str) -> bytes:
        """Return the plain value that `seal` encrypted for the same place, account and row.

        Raises KeyRingError if the key ring lacks the key, or if the value was changed or belongs to another row.
        """
        key_id, nonce = sealed[:KEY_ID_BYTES], sealed[KEY_ID_BYTES : KEY_ID_BYTES + _NONCE_BYTES]
        cipher = self._ciphers.get(key_id)
        if cipher is None:
            message = f"{place} was sealed with key {key_id.hex()}, which {_RING} lacks; add it at the end"
            raise KeyRingError(message)
        try:
            return cipher.decrypt(
                nonce, sealed[KEY_ID_BYTES + _NONCE_BYTES :], _bound_to(place, account_id, row_id)
            )
        except (InvalidTag, ValueError):  # ValueError: the value is too short to contain a nonce
            message = f"{place} of {row_id} does not open: it was changed or belongs to another row"
            raise KeyRingError(message) from None

    def keyed_hashes(self, plain: bytes, *, place: str, account_id: UUID) -> Sequence[bytes]:
        """Return one HMAC-SHA256 for each key of the key ring. Each hash begins with the id of its key.

        The hash of the first key, which also encrypts, comes first. Within one account, equal values of a `place` have
        equal hashes. Hashes of different accounts are unrelated.
        """
        bound = f"{place}|{account_id}|".encode() + plain
        return [key_id + hmac.digest(key, bound, "sha256") for key_id, key in self._hash_keys.items()]


def _decode(key: str) -> bytes:
    try:
        raw = base64.b64decode(key, validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != KEY_BYTES:
        message = f"{_RING} has a key that is not base64 of 32 bytes; `openssl rand -base64 32` makes one"
        raise KeyRingError(message)
    return raw


def _key_id(raw: bytes) -> bytes:
    return hashlib.sha256(b"fatura key id" + raw).digest()[:KEY_ID_BYTES]


def _bound_to(place: str, account_id: UUID, row_id: str) -> bytes:
    return f"{place}|{account_id}|{row_id}".encode()
