"""Authenticates requests by API key (spec 5), and reads the request headers that routes need."""

import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from uuid import UUID

from starlette.types import Scope

from fatura.api.http.client_address import client_address
from fatura.api.http.rate_limits import Limits
from fatura.api.http.trace import values
from fatura.domain.account import Caller
from fatura.domain.errors import IDEMPOTENCY_KEY_REQUIRED, EngineError, invalid_fields
from fatura.usecases.deps import Deps

Authenticate = Callable[[Deps, str | None, Callable[[UUID], None]], Awaitable[Caller]]
Headers = Iterable[tuple[bytes, bytes]]

IDEMPOTENCY_KEY = "Idempotency-Key"
_KEY = re.compile(rb"[\x21-\x7e]{1,255}")
_JSON = re.compile(rb'application/json\s*(;\s*charset\s*=\s*("utf-8"|utf-8)\s*)?', re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Gate:
    """Authenticates and rate-limits every request of an authenticated route."""

    deps: Deps
    authenticate: Authenticate
    limits: Limits

    async def admit(self, scope: Scope) -> Caller:
        """Return the API key and its account. Raises EngineError: `engine.unauthorized`, `engine.rate_limited`."""
        return await self.authenticate(self.deps, bearer_token(scope["headers"]), self.limits.accounts.take)

    async def admit_again(self, scope: Scope) -> Caller:
        """Authenticate a request a second time, after a wait for its body. The rate limit does not count it again.

        Raises EngineError: `engine.unauthorized`.
        """
        return await self.authenticate(self.deps, bearer_token(scope["headers"]), _count_nothing)

    def client_address(self, scope: Scope) -> str:
        return client_address(scope, trusted_proxies=self.deps.settings.trusted_proxies)


def _count_nothing(_account_id: UUID) -> None:
    pass


def bearer_token(headers: Headers) -> str | None:
    """Return the Bearer token; None if the Authorization header is missing, malformed or repeated (spec 5 rule 1)."""
    sent = values(headers, b"authorization")
    if len(sent) != 1:
        return None
    scheme, _, token = sent[0].partition(b" ")
    if scheme.lower() != b"bearer" or not token.isascii() or b" " in token:
        return None
    return token.decode() or None


def idempotency_key(headers: Headers, *, required: bool) -> str | None:
    """Return the Idempotency-Key. If the request has none and `required` is false, return None (D-14).

    Raises EngineError: `engine.idempotency_key_required`; `engine.invalid_request` for a malformed or repeated header.
    """
    sent = values(headers, b"idempotency-key")
    if not sent:
        if required:
            raise EngineError(
                IDEMPOTENCY_KEY_REQUIRED,
                f"Send a new `{IDEMPOTENCY_KEY}` header, such as a UUID; repeat a request with the same one.",
            )
        return None
    if len(sent) > 1 or not _KEY.fullmatch(sent[0]):
        raise invalid_fields((IDEMPOTENCY_KEY, "must be one header of 1 to 255 visible ASCII characters"))
    return sent[0].decode()


def content_length(headers: Headers) -> int | None:
    """Return the Content-Length in bytes, or None if it is malformed or missing. Chunked requests have none."""
    sent = values(headers, b"content-length")
    if not sent or not sent[0].isdigit():
        return None
    # int() refuses more than 4,300 digits, so remove leading zeros. At most 20 digits then remain, because the server
    # has already refused lengths above 64 bits.
    return int(sent[0].lstrip(b"0") or b"0")


def check_media_type(headers: Headers) -> None:
    """Refuse a request whose Content-Type is missing, repeated, or not JSON in UTF-8 (D-11).

    Raises EngineError: `engine.invalid_request`.
    """
    sent = values(headers, b"content-type")
    if len(sent) != 1 or not _JSON.fullmatch(sent[0].strip()):
        raise invalid_fields(("Content-Type", "must be application/json"))
