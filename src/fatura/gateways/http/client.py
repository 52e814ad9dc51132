"""Calls to the API of a payment provider, whose failures are raised as errors of the port (D-260)."""

import asyncio
import errno
import socket
import ssl
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from ipaddress import IPv4Network, IPv6Network
from typing import Any, TypeVar
from uuid import UUID
from weakref import WeakValueDictionary

import aiohttp
import msgspec

from fatura import __version__, tracing
from fatura.domain.public_address import may_call
from fatura.failure_text import reason_of
from fatura.gateways.answers import InvalidFieldError
from fatura.gateways.exchanges import noted, without_secrets
from fatura.gateways.http.certificate import Certificates, ClientCertificate
from fatura.gateways.http.form import encoded
from fatura.gateways.http.send_once import NOT_SENT, send_once
from fatura.gateways.http.tokens import Token, TokenRequest, Tokens, token_of
from fatura.gateways.port import (
    CALL_TIMEOUT_SECONDS,
    AuthFailedError,
    GatewayError,
    NotFoundError,
    PermanentError,
    TransientError,
    UnknownOutcomeError,
)
from fatura.tracing import Kind
from fatura.transaction_mark import holds_open_transaction

DEADLINE_SECONDS = CALL_TIMEOUT_SECONDS - 2
"""Maximum time of all calls of one ProviderCalls together. The engine would cancel the adapter 2 s later."""
CONNECT_SECONDS = 5
"""Maximum time until a connection is made. Until then, nothing was sent."""
KEEP_SECONDS = 4
"""Maximum idle time of a reused connection; shorter than the idle timeout of most servers."""
MAX_BODY_BYTES = 1024 * 1024
MAX_CALLS = 1024
"""Maximum number of connections to providers in a process."""
MAX_CALLS_OF_CONNECTION = 16
"""Maximum number of concurrent calls of one gateway connection. Asaas, for example, allows 50 to an account."""
MAX_TEXT = 500
"""Maximum number of characters of a provider's error that are kept."""

_UNCLEAR = {408, 409, 423, 424, 425}
"""Statuses that say nothing about the data of a request. A write may have taken effect."""

Refusal = Callable[[bytes], tuple[str, str] | None]
"""Reads the provider's code and text from the body of an error, or returns None."""
Pairs = Mapping[str, str]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, repr=False)
class Access:
    """What the calls of some connections need beside headers: URL parameters, a client certificate, OAuth2 tokens."""

    query: Pairs = field(default_factory=dict[str, str])
    certificate: ClientCertificate | None = None
    tokens: TokenRequest | None = None


NO_ACCESS = Access()


class ProviderCalls:
    """Makes HTTP calls with the credentials of one gateway connection, in at most DEADLINE_SECONDS in all.

    Create one for each call of the port, or for each page of a list. No error contains a value of `headers` or
    `query`, a token, or a part of the certificate.
    """

    __slots__ = (
        "_access", "_base_url", "_client", "_ends_at", "_headers", "_place", "_refusal", "_secrets", "_token_key",
    )  # fmt: skip

    def __init__(
        self,
        client: "ProviderClient",
        base_url: str,
        *,
        headers: Pairs,
        place: asyncio.Semaphore,
        refusal: Refusal,
        access: Access,
        connection_id: UUID,
    ) -> None:
        self._client = client
        self._base_url = base_url
        self._headers = headers
        self._place = place
        self._refusal = refusal
        self._ends_at = time.monotonic() + DEADLINE_SECONDS
        self._access = access
        # without the words `Bearer` and `Basic` of headers
        self._secrets = {*(each.rpartition(" ")[2] for each in headers.values()), *access.query.values()}
        self._token_key = b""
        if access.tokens is not None:
            digest = b"" if access.certificate is None else access.certificate.digest
            self._token_key = access.tokens.key(digest, connection_id.bytes)
            self._secrets |= set(access.tokens.secrets)

    async def read(
        self,
        path: str,
        answer: type[T],
        *,
        query: Pairs | None = None,
        headers: Pairs | None = None,
        may_be_absent: bool = False,
    ) -> T:
        """Send a GET, and decode the JSON of the answer. `path` must not need escaping. `headers` are not secret.

        Raises TransientError, AuthFailedError, InvalidAnswerError, PermanentError. A 404 raises NotFoundError if
        `may_be_absent` is true.
        """
        found = await self._ask("GET", path, query=query, headers=headers)
        return self._decoded(found, answer, writes=False, may_be_absent=may_be_absent)

    async def write(
        self,
        method: str,
        path: str,
        *,
        answer: type[T],
        body: object = None,
        headers: Pairs | None = None,
        may_be_absent: bool = False,
    ) -> T:
        """Send a request that changes something, and decode the JSON of the answer. A body is a Form, or becomes JSON.

        `headers` are those of this request, such as an idempotency key. They are not secret.
        The request is sent a second time only after a 401, with a new token. Raises the errors of `read`, and
        UnknownOutcomeError if the request may have had an effect. TransientError means that it had none.
        """
        content, own = encoded(body)
        found = await self._ask(method, path, content=content, headers={**own, **(headers or {})})
        return self._decoded(found, answer, writes=True, may_be_absent=may_be_absent)

    async def _ask(
        self,
        method: str,
        path: str,
        *,
        query: Pairs | None = None,
        content: bytes | None = None,
        headers: Pairs | None = None,
    ) -> tuple[int, bytes]:
        """Send a request, and return the status and the body of the answer.

        If the provider refuses the token, send the request once more, with a new token. The refused request had no
        effect.
        """
        headers = {**self._headers, **(headers or {})}
        found = await self._send(method, path, headers, query=query, content=content)
        if found[0] == HTTPStatus.UNAUTHORIZED and self._access.tokens is not None:
            found = await self._send(method, path, headers, query=query, content=content)
        return found

    async def _send(
        self, method: str, path: str, headers: Pairs, *, query: Pairs | None, content: bytes | None
    ) -> tuple[int, bytes]:
        """Send a request with the connection's token, if any, and note the exchange. Forget a token that is refused."""
        tokens, token = self._client.tokens, None
        if self._access.tokens is not None:
            token = await tokens.get(self._token_key, self._new_token)
            self._secrets.add(token)
            headers = {**headers, "Authorization": f"Bearer {token}"}
        whole = {**self._access.query, **(query or {})}
        with noted(method, path, query=query, request=content, credentials=self._secrets) as answer:
            found = await self._in_turn(method, path, headers, query=whole, content=content)
            answer.status, answer.body = found
        if token is not None and found[0] == HTTPStatus.UNAUTHORIZED:
            tokens.forget(self._token_key, token)
        return found

    async def _new_token(self) -> Token:
        """Ask for a token. A failure has no effect at the provider. Raises TransientError, AuthFailedError."""
        request = self._access.tokens
        assert request is not None, "only a connection with tokens asks for one"
        headers = {**request.headers, "Content-Type": request.content_type}
        try:
            status, body = await self._in_turn("POST", "", headers, content=request.body, url=request.url)
        except UnknownOutcomeError as error:
            raise TransientError(f"no token: {error}", http_status=error.http_status) from None
        return token_of(status, body)

    async def _in_turn(
        self,
        method: str,
        path: str,
        headers: Pairs,
        *,
        query: Pairs | None = None,
        content: bytes | None = None,
        url: str | None = None,
    ) -> tuple[int, bytes]:
        """Send a request when fewer than MAX_CALLS_OF_CONNECTION calls of the connection are open."""
        if holds_open_transaction():
            raise RuntimeError("a provider must not be called inside a transaction")
        try:
            async with asyncio.timeout(self._seconds_left()):
                await self._place.acquire()
        except TimeoutError:
            raise TransientError("too many calls of this connection are open") from None
        try:
            with tracing.span(method, kind=Kind.CLIENT, http__request__method=method) as span:
                status, body = await self._exchange(
                    method, url or self._base_url + path, headers, query=query, content=content
                )
                span.set(http__response__status_code=status)
                return status, body
        finally:
            self._place.release()

    async def _exchange(
        self,
        method: str,
        url: str,
        given: Pairs,
        *,
        query: Pairs | None,
        content: bytes | None,
    ) -> tuple[int, bytes]:
        certificate = self._access.certificate
        context = True if certificate is None else await self._client.certificates.context(certificate)
        left = self._seconds_left()
        headers = {"User-Agent": f"Fatura/{__version__}", "Accept": "application/json"}
        try:
            async with self._client.session().request(
                method,
                url,
                params=query,
                data=content,
                headers={**headers, "Accept-Encoding": "identity", **given, **tracing.headers()},
                ssl=context,
                allow_redirects=False,
                middlewares=() if method == "GET" else (send_once,),
                timeout=aiohttp.ClientTimeout(total=left, connect=min(left, CONNECT_SECONDS)),
            ) as response:
                if response.headers.get("Content-Encoding", "identity").lower() != "identity":
                    raise _no_answer("an encoded answer, which was not asked for", writes=method != "GET")
                return response.status, await _whole_body(response, writes=method != "GET")
        except NOT_SENT as error:
            raise TransientError(f"no connection: {_reason(error)}") from None
        except (aiohttp.ClientError, TimeoutError) as error:
            what = "no answer in time" if isinstance(error, TimeoutError) else "the connection broke"
            raise _no_answer(what, writes=method != "GET") from None

    def _decoded(self, found: tuple[int, bytes], answer: type[T], *, writes: bool, may_be_absent: bool) -> T:
        status, body = found
        if not HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
            raise self._error(status, body, writes=writes, may_be_absent=may_be_absent)
        try:
            return msgspec.json.decode(body, type=answer)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise InvalidFieldError(f"the provider's answer cannot be read: {error}") from None

    def _error(self, status: int, body: bytes, *, writes: bool, may_be_absent: bool) -> GatewayError:
        """Return the error of the port for an answer that is not 2xx."""
        if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            return AuthFailedError("the provider refuses the credentials", http_status=status)
        if status == HTTPStatus.NOT_FOUND and may_be_absent:
            return NotFoundError("the provider does not know it", http_status=status)
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            return TransientError("the provider limits the rate of calls", http_status=status)
        is_refusal = HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR
        if not is_refusal or status in _UNCLEAR:
            return _no_answer(f"HTTP {status}", writes=writes, http_status=status)
        code, detail = self._refusal(body) or ("", "")
        return PermanentError(
            self._clean(code) or f"http_{status}",
            self._clean(detail) or f"The provider refuses the request (HTTP {status}).",
            http_status=status,
        )

    def _clean(self, text: str) -> str:
        """Return a provider's text without credentials and control characters, and not too long."""
        text = without_secrets(text, self._secrets)
        return "".join(each if each.isprintable() else " " for each in text)[:MAX_TEXT].strip()

    def _seconds_left(self) -> float:
        """Return the time until the deadline. Raises TransientError if it has passed; nothing more is sent then."""
        left = self._ends_at - time.monotonic()
        if left <= 0:
            raise TransientError(f"the provider was too slow: {DEADLINE_SECONDS} s have passed")
        return left


class ProviderClient:
    """The connections of a process to all providers.

    An adapter must take the base URL from its own constants, never from data of a merchant. `denied` are networks that
    are never called. If `is_exempt` is true, private addresses and http are allowed; tests use this. `new_ssl_context`
    returns a TLS context for a connection with a client certificate.
    """

    def __init__(
        self,
        *,
        denied: Collection[IPv4Network | IPv6Network] = (),
        is_exempt: bool = False,
        ssl_context: ssl.SSLContext | None = None,
        new_ssl_context: Callable[[], ssl.SSLContext] = ssl.create_default_context,
    ) -> None:
        self.tokens = Tokens()
        self.certificates = Certificates(new_ssl_context)
        self._denied = denied
        self._is_exempt = is_exempt
        self._ssl_context = ssl_context
        self._opened: aiohttp.ClientSession | None = None
        self._places = WeakValueDictionary[UUID, asyncio.Semaphore]()

    def calls(
        self,
        base_url: str,
        *,
        headers: Pairs,
        connection_id: UUID,
        refusal: Refusal,
        access: Access = NO_ACCESS,
    ) -> ProviderCalls:
        """Return the calls of a gateway connection. `headers` have its credentials, and are sent with each call."""
        urls = [base_url] if access.tokens is None else [base_url, access.tokens.url]
        assert self._is_exempt or all(url.startswith("https://") for url in urls), (
            "a provider is called with TLS"
        )
        place = self._places.setdefault(connection_id, asyncio.Semaphore(MAX_CALLS_OF_CONNECTION))
        return ProviderCalls(
            self,
            base_url,
            headers=headers,
            place=place,
            refusal=refusal,
            access=access,
            connection_id=connection_id,
        )

    def session(self) -> aiohttp.ClientSession:
        """Return the session of this process, which keeps no cookies and ignores the proxies of the environment."""
        if self._opened is None:
            connector = aiohttp.TCPConnector(
                limit=MAX_CALLS,
                keepalive_timeout=KEEP_SECONDS,
                ssl=self._ssl_context or True,
                socket_factory=self._socket,
            )
            self._opened = aiohttp.ClientSession(
                connector=connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
            )
        return self._opened

    def _socket(self, address: Any) -> socket.socket:
        """Return a socket for a resolved address. Raises OSError for an address that must not be called."""
        family, kind, protocol, _, (host, *_) = address
        if not may_call(str(host), is_exempt=self._is_exempt, denied=self._denied):
            raise OSError(errno.EACCES, "the provider's address is not public")
        return socket.socket(family, kind, protocol)

    async def close(self) -> None:
        """Close all connections. Call this before the event loop ends."""
        if self._opened is not None:
            await self._opened.close()
            self._opened = None


def _reason(error: aiohttp.ClientError) -> str:
    match error:
        case aiohttp.ClientConnectorCertificateError(certificate_error=cause):
            return reason_of(cause)
        case aiohttp.ClientConnectorError(os_error=cause):
            return reason_of(cause)
        case _:
            return f"no connection within {CONNECT_SECONDS} s"


async def _whole_body(response: aiohttp.ClientResponse, *, writes: bool) -> bytes:
    body = bytearray()
    async for part in response.content.iter_any():
        body += part
        if len(body) > MAX_BODY_BYTES:
            raise _no_answer(f"an answer of more than {MAX_BODY_BYTES // 1024} KiB", writes=writes)
    return bytes(body)


def _no_answer(what: str, *, writes: bool, http_status: int | None = None) -> GatewayError:
    """Return the error of a call without a usable answer: a write may have had an effect, a read had none."""
    return (UnknownOutcomeError if writes else TransientError)(what, http_status=http_status)
