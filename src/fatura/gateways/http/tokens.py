"""OAuth2 tokens of gateway connections, which this process keeps until shortly before they expire (D-262)."""

import asyncio
import hashlib
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from weakref import WeakValueDictionary

import msgspec

from fatura.gateways.port import AuthFailedError, TransientError

EXPIRES_EARLY_SECONDS = 60
"""A token is replaced so long before it expires, or after half of its life if this is sooner."""
DEFAULT_SECONDS = 300
"""Life of a token whose answer does not say it."""
MAX_TOKENS = 10_000
_REFUSED = {HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}
_TOKEN = re.compile("[!-~]{1,16384}")


class Token(msgspec.Struct, frozen=True):
    """The answer of a token endpoint (RFC 6749, section 5.1)."""

    access_token: str
    expires_in: float = DEFAULT_SECONDS

    def __repr__(self) -> str:
        return "Token(***)"


def token_of(status: int, body: bytes) -> Token:
    """Read the answer of a token endpoint. Raises AuthFailedError, and TransientError if the answer has no token."""
    if status in _REFUSED:
        message = "the provider refuses the client id, the client secret or the certificate"
        raise AuthFailedError(message, http_status=status)
    try:
        is_token = HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES
        token = msgspec.json.decode(body, type=Token, strict=False) if is_token else None
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        token = None
    if token is None or not _TOKEN.fullmatch(token.access_token):
        raise TransientError("the provider returns no token", http_status=status)
    return token


@dataclass(frozen=True, slots=True, repr=False)
class TokenRequest:
    """How a connection asks for a token: an OAuth2 grant `client_credentials` (RFC 6749, section 4.4).

    `secrets` are the texts in `headers` and `body` that no error may repeat.
    """

    url: str
    headers: Mapping[str, str]
    body: bytes
    content_type: str
    secrets: tuple[str, ...]

    def key(self, *others: bytes) -> bytes:
        """Return a digest of the request and of `others`. Only equal credentials share a token."""
        parts = (self.url.encode(), repr(sorted(self.headers.items())).encode(), self.body, *others)
        return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).digest()


@dataclass(slots=True, repr=False)
class Tokens:
    """The tokens of a process. At most one request for a token runs for each key."""

    clock: Callable[[], float] = time.monotonic
    _kept: OrderedDict[bytes, tuple[str, float]] = field(
        default_factory=OrderedDict[bytes, tuple[str, float]]
    )
    _locks: WeakValueDictionary[bytes, asyncio.Lock] = field(
        default_factory=WeakValueDictionary[bytes, asyncio.Lock]
    )

    async def get(self, key: bytes, ask: Callable[[], Awaitable[Token]]) -> str:
        """Return the kept token, or ask for a new one."""
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with lock:
            kept, until = self._kept.get(key, ("", float("-inf")))
            if self.clock() < until:
                return kept
            asked_at = self.clock()
            token = await ask()
            life = max(0.0, token.expires_in)
            self._kept[key] = (token.access_token, asked_at + max(life - EXPIRES_EARLY_SECONDS, life / 2))
            if len(self._kept) > MAX_TOKENS:
                self._kept.popitem(last=False)
            return token.access_token

    def forget(self, key: bytes, token: str) -> None:
        """Forget a token that the provider refused, unless a newer one has replaced it."""
        if self._kept.get(key, ("", 0.0))[0] == token:
            del self._kept[key]
