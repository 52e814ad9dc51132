"""The format of API keys, `rk_<mode>_<account>_<secret>` (spec 5, D-41)."""

import hashlib
import hmac
import re
import string
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from fatura.domain.tags import API_KEY_TAG_BYTES, Tagger

ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase
ACCOUNT_CHARS = 22
SECRET_BYTES = 24
SECRET_CHARS = 43
"""Number of base-62 characters that encode the secret (24 bytes) and its tag (8 bytes) together."""
VISIBLE_SECRET_CHARS = 4


class Mode(StrEnum):
    """Live accounts make real charges. Sandbox accounts make none (D-44)."""

    LIVE = "live"
    SANDBOX = "sandbox"


class Scope(StrEnum):
    """What an API key allows (D-64). No scope includes another."""

    READ = "read"
    """Every GET."""
    WRITE = "write"
    """Everything that billing needs."""
    ADMIN = "admin"
    """API keys, the integration secret, the webhook, gateway connections, erasure and the audit log."""


ALL_SCOPES = frozenset(Scope)
KEY_WORDS = {Mode.LIVE: "live", Mode.SANDBOX: "test"}
_MODES = {word: mode for mode, word in KEY_WORDS.items()}
_KEY = re.compile(
    rf"rk_(live|test)_([0-9A-Za-z]{{{ACCOUNT_CHARS}}})_([0-9A-Za-z]{{{SECRET_CHARS}}})", re.ASCII
)
_DIGITS = {character: digit for digit, character in enumerate(ALPHABET)}


@dataclass(frozen=True, slots=True)
class ApiKey:
    """An API key as lists show it. The text of the key is shown only once, at creation (D-41)."""

    api_key_id: UUID
    name: str
    prefix: str
    scopes: tuple[Scope, ...]
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None


@dataclass(frozen=True, slots=True)
class ParsedKey:
    """The parts of an API key whose tag is correct. The tag proves that the engine made the key."""

    account_id: UUID
    mode: Mode
    secret_hash: bytes


def _encode(number: int, width: int) -> str:
    digits: list[str] = []
    for _ in range(width):
        number, digit = divmod(number, len(ALPHABET))
        digits.append(ALPHABET[digit])
    if number:
        raise ValueError("the number does not fit the width")
    return "".join(reversed(digits))


def _decode(text: str) -> int:
    number = 0
    for character in text:
        number = number * len(_DIGITS) + _DIGITS[character]
    return number


def format_key(account_id: UUID, mode: Mode, *, secret: bytes, tagger: Tagger) -> str:
    """Return the text of an API key; `secret` is 24 random bytes."""
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"a secret has {SECRET_BYTES} bytes, not {len(secret)}")
    tagged = secret + _tag(account_id, mode, secret=secret, tagger=tagger)
    return "_".join(
        (
            "rk",
            KEY_WORDS[mode],
            _encode(account_id.int, ACCOUNT_CHARS),
            _encode(int.from_bytes(tagged), SECRET_CHARS),
        )
    )


def _tag(account_id: UUID, mode: Mode, *, secret: bytes, tagger: Tagger) -> bytes:
    return tagger.api_key_tag(account_id.bytes + secret + mode.encode())


def parse_key(text: str, *, tagger: Tagger) -> ParsedKey | None:
    """Return the key's parts. Return None if the format or the tag is wrong: the engine did not make such a key."""
    parts = _KEY.fullmatch(text)
    if parts is None:
        return None
    account, tagged = _decode(parts[2]), _decode(parts[3])
    if account >> 128 or tagged >> 8 * (SECRET_BYTES + API_KEY_TAG_BYTES):
        return None
    account_id, mode = UUID(int=account), _MODES[parts[1]]
    secret = (tagged >> 8 * API_KEY_TAG_BYTES).to_bytes(SECRET_BYTES)
    tag = (tagged & (1 << 8 * API_KEY_TAG_BYTES) - 1).to_bytes(API_KEY_TAG_BYTES)
    if not hmac.compare_digest(tag, _tag(account_id, mode, secret=secret, tagger=tagger)):
        return None
    return ParsedKey(account_id, mode, hash_secret(text))


def hash_secret(key: str) -> bytes:
    """Return the hash that is stored instead of the key. SHA-256 is enough, as the key contains 192 random bits."""
    return hashlib.sha256(key.encode()).digest()


def visible_prefix(key: str) -> str:
    """Return the beginning of a key, which lists show. It ends with the first four characters of the secret."""
    return key[: len(key) - SECRET_CHARS + VISIBLE_SECRET_CHARS]
