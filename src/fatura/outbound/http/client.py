"""Sessions of calls to one account's servers; every call has a checked URL, size limits and a deadline."""

import asyncio
import ssl
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from ipaddress import IPv4Network, IPv6Network
from uuid import UUID

from fatura import __version__, tracing
from fatura.domain.account import Account
from fatura.domain.credentials import Mode
from fatura.domain.endpoint_url import RefusedUrlError, Target, UrlRules, read
from fatura.observability import log
from fatura.outbound.http.call_limits import CallLimits, CallTime
from fatura.outbound.http.connection import Connection
from fatura.outbound.http.dialing import UNREACHABLE, Dialer, NoConnectionError, Resolver
from fatura.outbound.http.exchange import DEADLINE_SECONDS, Exchange, ExchangeOutcome
from fatura.outbound.http.response import Response
from fatura.tracing import Kind
from fatura.transaction_mark import holds_open_transaction

KEEP_SECONDS = 4
"""Maximum idle time of a reused connection; shorter than the idle timeout of most servers."""
DNS_CACHE_SECONDS = 5
"""How long a session caches a host's addresses."""

_Origin = tuple[str, str, int]


class MerchantSession:
    """Makes calls to one account's servers, and reuses connections only within the session."""

    def __init__(self, account_id: UUID, rules: UrlRules, /, *, dialer: Dialer, limits: CallLimits) -> None:
        self._account_id = account_id
        self._rules = rules
        self._dialer = dialer
        self._limits = limits
        self._idle: defaultdict[_Origin, list[Connection]] = defaultdict(list)
        self._lookups: dict[str, tuple[float, asyncio.Task[Sequence[str]]]] = {}
        self._targets: dict[str, Target] = {}

    async def post(self, url: str, *, body: bytes, headers: Mapping[str, str]) -> Exchange:
        """Post a request. A refused URL, or a failure of the merchant's server, is returned and not raised.

        If the server closes a reused connection without an answer, the request is sent again on a new connection, so
        receivers must deduplicate. Raises OutOfResourcesError. Raises RuntimeError inside a transaction.
        """
        if holds_open_transaction():
            raise RuntimeError("a merchant must not be called inside a transaction")
        spent = CallTime()
        try:
            target = self._targets.get(url) or self._targets.setdefault(url, read(url, self._rules))
        except RefusedUrlError as refused:
            return _ended(spent, ExchangeOutcome.UNREACHABLE, error=f"the URL {refused}")
        with tracing.span(
            "POST",
            kind=Kind.CLIENT,
            http__request__method="POST",
            server__address=target.host,
            server__port=target.port,
        ) as span:
            request = _request(target, body=body, headers={**headers, **tracing.headers()})
            exchange = await self._exchange(target, request, spent)
            if exchange.status is not None:
                span.set(http__response__status_code=exchange.status)
            if exchange.outcome is not ExchangeOutcome.ANSWERED:
                span.set(error__type=exchange.outcome)
            return exchange

    async def _exchange(self, target: Target, request: bytes, spent: CallTime) -> Exchange:
        response, is_connected = Response(), False
        try:
            with ExitStack() as held:
                async with spent.deadline():
                    await spent.take(self._limits.of_account(self._account_id), held)
                    kept = self._take_idle(target)
                    if kept is not None:
                        is_connected = True
                        with ExitStack() as at_kept:
                            await self._take_places([kept.address], spent, at_kept)
                            await self._ask(kept, target, request=request, response=response)
                    if kept is None or not response.bytes_read:
                        response, is_connected = Response(), False
                        candidates = self._dialer.candidates(target, await self._look_up(target.host))
                        await self._take_places(candidates, spent, held)
                        fresh = await self._dialer.dial(target, candidates)
                        is_connected = True
                        await self._ask(fresh, target, request=request, response=response)
        except (NoConnectionError, TimeoutError) as error:
            if is_connected:
                late = f"no whole answer within {DEADLINE_SECONDS} seconds"
                return _ended(spent, ExchangeOutcome.TIMED_OUT, error=late, response=response)
            reason = str(error) or f"no connection within {DEADLINE_SECONDS} seconds"
            account_id = str(self._account_id)
            log.info(
                "outbound.not_connected",
                account_id=account_id,
                host=target.host,
                port=target.port,
                reason=reason,
            )
            return _ended(spent, ExchangeOutcome.UNREACHABLE, error=UNREACHABLE)
        if response.is_whole:
            return _ended(spent, ExchangeOutcome.ANSWERED, response=response)
        outcome = ExchangeOutcome.UNREACHABLE if response.status is None else ExchangeOutcome.BROKEN_ANSWER
        return _ended(spent, outcome, error=response.fault, response=response)

    async def _take_places(self, addresses: Collection[str], spent: CallTime, held: ExitStack) -> None:
        await spent.take(self._limits.at_addresses(self._account_id, addresses), held)

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
        """Return a host's addresses. Calls within DNS_CACHE_SECONDS share one lookup.

        Raises NoConnectionError, OutOfResourcesError.
        """
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

    `rules` are the URL rules for the accounts of each mode, and `denied` are networks that are never called.
    `resolver` returns a host's addresses or raises OSError. `ssl_context` verifies the certificates of servers.
    """

    def __init__(
        self,
        rules: Mapping[Mode, UrlRules],
        *,
        denied: Collection[IPv4Network | IPv6Network] = (),
        resolver: Resolver | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._rules = rules
        self._dialer = Dialer(resolver=resolver, ssl_context=ssl_context, denied=denied)
        self._limits = CallLimits()

    @asynccontextmanager
    async def session(self, account: Account) -> AsyncGenerator[MerchantSession]:
        session = MerchantSession(
            account.account_id, self._rules[account.mode], dialer=self._dialer, limits=self._limits
        )
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
    plain = "".join(map("".join, sent.items()))
    if not (plain.isascii() and plain.isprintable()):
        raise ValueError("headers must contain printable ASCII only")
    head = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
    return f"POST {target.path} HTTP/1.1\r\n{head}\r\n".encode() + body


def _ended(
    spent: CallTime, outcome: ExchangeOutcome, *, error: str | None = None, response: Response | None = None
) -> Exchange:
    return Exchange(
        outcome=outcome,
        status=response.status if response else None,
        body=bytes(response.body) if response else b"",
        latency_ms=spent.milliseconds,
        error=error,
        retry_after=response.retry_after if response else None,
    )
