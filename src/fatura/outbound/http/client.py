"""Sessions of calls to one account's servers; every call has a checked URL, size limits and a deadline."""

import asyncio
import ssl
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager

from fatura import __version__
from fatura.domain.endpoint_url import RefusedUrlError, Target, read
from fatura.open_transaction import holds_open_transaction
from fatura.outbound.http.connection import Connection
from fatura.outbound.http.dialing import Dialer, NoConnectionError, Resolver
from fatura.outbound.http.exchange import DEADLINE_SECONDS, Exchange, ExchangeOutcome
from fatura.outbound.http.response import Response

KEEP_SECONDS = 4
"""Maximum idle time of a reused connection; shorter than the idle timeout of most servers."""
DNS_CACHE_SECONDS = 5
"""How long a session caches a host's addresses."""

_Origin = tuple[str, str, int]


class MerchantSession:
    """Makes calls to one account's servers, and reuses connections only within the session."""

    def __init__(self, dialer: Dialer, allowed: frozenset[str]) -> None:
        self._dialer = dialer
        self._allowed = allowed
        self._idle: defaultdict[_Origin, list[Connection]] = defaultdict(list)
        self._lookups: dict[str, tuple[float, asyncio.Task[Sequence[str]]]] = {}

    async def post(self, url: str, *, body: bytes, headers: Mapping[str, str]) -> Exchange:
        """Post a request; failures of the merchant's server are returned, not raised.

        If the server closes a reused connection without an answer, the request is sent again on a new connection, so
        receivers must deduplicate. Do not call this inside a transaction. Raises OutOfResourcesError.
        """
        assert not holds_open_transaction(), "a merchant must not be called inside a transaction"
        started = time.monotonic()
        try:
            target = read(url, allowed=self._allowed)
        except RefusedUrlError as refused:
            return _ended(started, ExchangeOutcome.UNREACHABLE, error=f"the URL {refused}")
        return await self._exchange(target, _request(target, body=body, headers=headers), started)

    async def _exchange(self, target: Target, request: bytes, started: float) -> Exchange:
        response = Response()
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                kept = self._take_idle(target)
                if kept is not None:
                    await self._ask(kept, target, request=request, response=response)
                if kept is None or not response.bytes_read:
                    response = Response()
                    fresh = await self._dialer.dial(target, await self._look_up(target.host))
                    await self._ask(fresh, target, request=request, response=response)
        except NoConnectionError as error:
            return _ended(started, ExchangeOutcome.UNREACHABLE, error=str(error))
        except TimeoutError:
            error = f"no whole answer within {DEADLINE_SECONDS} seconds"
            return _ended(started, ExchangeOutcome.TIMED_OUT, error=error, response=response)
        if response.is_whole:
            return _ended(started, ExchangeOutcome.ANSWERED, response=response)
        outcome = ExchangeOutcome.UNREACHABLE if response.status is None else ExchangeOutcome.BROKEN_ANSWER
        return _ended(started, outcome, error=response.fault, response=response)

    async def _ask(
        self, connection: Connection, target: Target, *, request: bytes, response: Response
    ) -> None:
        await connection.ask(request, response)
        if connection.is_open:
            self._idle[_origin(target)].append(connection)

    def _take_idle(self, target: Target) -> Connection | None:
        idle = self._idle[_origin(target)]
        while idle:
            connection = idle.pop()
            if connection.is_open and time.monotonic() - connection.idle_since < KEEP_SECONDS:
                return connection
            connection.abort()
        return None

    async def _look_up(self, host: str) -> Sequence[str]:
        """Resolve a host; concurrent calls share one lookup. Raises NoConnectionError, OutOfResourcesError."""
        now = time.monotonic()
        looked_up_at, lookup = self._lookups.get(host, (-DNS_CACHE_SECONDS, None))
        if lookup is None or now - looked_up_at >= DNS_CACHE_SECONDS:
            lookup = asyncio.create_task(self._dialer.look_up(host))
            self._lookups[host] = now, lookup
        return await asyncio.shield(lookup)

    async def close(self) -> None:
        """Close the idle connections and cancel lookups."""
        lookups = [lookup for _, lookup in self._lookups.values()]
        for lookup in lookups:
            lookup.cancel()
        await asyncio.gather(*lookups, return_exceptions=True)
        for idle in self._idle.values():
            for connection in idle:
                connection.abort()
        self._idle.clear()


class MerchantClient:
    """Opens sessions.

    `allowed` has the operator's exceptions from the URL rules, each as `host` or `host:port` (D-47). `resolver` returns
    a host's addresses or raises OSError. `ssl_context` verifies servers.
    """

    def __init__(
        self,
        *,
        allowed: Collection[str],
        resolver: Resolver | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._allowed = frozenset(allowed)
        self._dialer = Dialer(resolver=resolver, ssl_context=ssl_context)

    @asynccontextmanager
    async def session(self) -> AsyncGenerator[MerchantSession]:
        session = MerchantSession(self._dialer, self._allowed)
        try:
            yield session
        finally:
            await session.close()

    async def close(self) -> None:
        """Close the resolver, which cancels its lookups. Call this before the event loop ends."""
        await self._dialer.close()


def _origin(target: Target) -> _Origin:
    return target.scheme, target.host, target.port


def _request(target: Target, *, body: bytes, headers: Mapping[str, str]) -> bytes:
    sent = {
        "Host": target.authority,
        "User-Agent": f"Fatura/{__version__}",
        "Accept-Encoding": "identity",
        **headers,
        "Content-Length": str(len(body)),
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
    assert head.isascii(), "headers contain printable ASCII only"
    assert "".join(map("".join, sent.items())).isprintable(), "headers contain printable ASCII only"
    return f"POST {target.path} HTTP/1.1\r\n{head}\r\n".encode() + body


def _ended(
    started: float, outcome: ExchangeOutcome, *, error: str | None = None, response: Response | None = None
) -> Exchange:
    return Exchange(
        outcome=outcome,
        status=response.status if response else None,
        body=bytes(response.body) if response else b"",
        latency_ms=int((time.monotonic() - started) * 1000),
        error=error,
        retry_after=response.retry_after if response else None,
    )
