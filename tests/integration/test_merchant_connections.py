"""Connections to merchants: reuse, name resolution, and thousands of concurrent calls."""

import asyncio
import socket
import struct
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from uuid import uuid4

import pytest

from fatura.bootstrap import allow_many_open_files
from fatura.outbound.http import (
    Exchange,
    ExchangeOutcome,
    MerchantClient,
    MerchantSession,
    OutOfResourcesError,
    call_limits,
)
from fatura.outbound.http.dialing import LOOKUP_SECONDS, AresResolver
from tests.support.captured_logs import captured_logs
from tests.support.merchant_clients import ACCOUNT, merchant_client
from tests.support.resource_use import measure, no_free_descriptors
from tests.support.unlimited import LOOPBACK
from tests.support.world import World, eventually

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
MANY = 2000
MAX_STALL_SECONDS = 0.5
"""Maximum time for which the calls and the test's server together may block their event loop."""


@dataclass(slots=True)
class Merchant:
    """A server that counts its connections. `asked` lists the connection number of each request."""

    port: int = 0
    opened: int = 0
    now_open: int = 0
    asked: list[int] = field(default_factory=list[int])
    delay_seconds: float = 0
    requests_a_connection: int = 1_000_000

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/price"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer up to `requests_a_connection` requests, then close the connection."""
        self.opened += 1
        self.now_open += 1
        mine = self.opened
        try:
            for _ in range(self.requests_a_connection):
                await reader.readuntil(b"{}")
                self.asked.append(mine)
                if await self._is_disconnected(reader):
                    break
                writer.write(ANSWER)
                await writer.drain()
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            self.now_open -= 1
            writer.close()

    async def _is_disconnected(self, reader: asyncio.StreamReader) -> bool:
        """Wait for `delay_seconds`. Return whether the caller disconnected during this time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.delay_seconds):
                return not await reader.read(1)
        return False


@pytest.fixture
async def merchant() -> AsyncIterator[Merchant]:
    opened = Merchant()
    async with await asyncio.start_server(opened.serve, "127.0.0.1", 0, backlog=4096) as server:
        opened.port = server.sockets[0].getsockname()[1]
        yield opened


@pytest.fixture
def client() -> MerchantClient:
    """A client whose list of allowed hosts contains 127.0.0.1 and two names."""
    return merchant_client([LOOPBACK, "localhost:1-65535", "shop.example:1-65535"])


async def post(session: MerchantSession, url: str) -> Exchange:
    return await session.post(url, body=b"{}", headers={})


async def test_connections_are_shared_by_the_calls_of_one_session(merchant, client):
    """[D-30]"""
    async with client.session(ACCOUNT) as session, client.session(ACCOUNT) as other:
        for _ in range(3):
            assert (await post(session, merchant.url)).outcome is ExchangeOutcome.ANSWERED
        assert (await post(other, merchant.url)).outcome is ExchangeOutcome.ANSWERED
        assert merchant.asked == [1, 1, 1, 2]
    await eventually(lambda: merchant.now_open == 0)


async def test_a_call_on_a_closed_kept_connection_is_sent_again(merchant, client):
    """[D-30]"""
    merchant.requests_a_connection = 1
    async with client.session(ACCOUNT) as session:
        ended = [(await post(session, merchant.url)).outcome for _ in range(20)]
    assert set(ended) == {ExchangeOutcome.ANSWERED}
    assert merchant.opened == 20


async def test_a_canceled_call_closes_its_connection(merchant, client):
    """[D-30]"""
    merchant.delay_seconds = 60
    async with client.session(ACCOUNT) as session:
        calling = asyncio.create_task(post(session, merchant.url))
        await eventually(lambda: bool(merchant.asked))
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        await eventually(lambda: merchant.now_open == 0)


@pytest.mark.faults
async def test_two_thousand_concurrent_calls_are_answered(merchant, monkeypatch):
    """The calls are those of eight accounts. [D-30]"""
    monkeypatch.setattr(call_limits, "MAX_CALLS_TO_ADDRESS", MANY)
    client, accounts = merchant_client(), [replace(ACCOUNT, account_id=uuid4()) for _ in range(8)]
    allow_many_open_files()
    merchant.delay_seconds = 1
    stalls: list[float] = []
    for run in range(1, 4):  # other programs may delay a run, so one fast run of three suffices
        async with measure() as measured, AsyncExitStack() as stack:
            lines = [await stack.enter_async_context(client.session(each)) for each in accounts]
            exchanges = await asyncio.gather(*(post(lines[n % 8], merchant.url) for n in range(MANY)))
        assert {each.outcome for each in exchanges} == {ExchangeOutcome.ANSWERED}
        assert merchant.opened == run * MANY
        stalls.append(measured.stall_seconds)
        if stalls[-1] < MAX_STALL_SECONDS:
            break
    assert min(stalls) < MAX_STALL_SECONDS


async def test_calls_inside_a_transaction_are_refused(world: World, merchant, client):
    """[D-30]"""
    async with client.session(ACCOUNT) as session:
        async with world.deps.db.transaction(world.account_id):
            with pytest.raises(RuntimeError):
                await post(session, merchant.url)
            with pytest.raises(RuntimeError):
                await asyncio.create_task(post(session, merchant.url))
            after = asyncio.create_task(_after(0.05, lambda: post(session, merchant.url)))
        assert (await after).outcome is ExchangeOutcome.ANSWERED, (
            "a task may call after the transaction has ended"
        )
        async with world.deps.db.discovery():
            with pytest.raises(RuntimeError):
                await post(session, merchant.url)
        assert (await post(session, merchant.url)).outcome is ExchangeOutcome.ANSWERED


async def _after(seconds: float, call: Callable[[], Awaitable[Exchange]]) -> Exchange:
    await asyncio.sleep(seconds)
    return await call()


async def test_all_addresses_of_a_name_are_tried(merchant):
    """[D-30]"""

    async def resolve(_host: str) -> list[str]:
        return ["::1", "127.0.0.2", "127.0.0.1"]

    client = merchant_client(["shop.example:1-65535"], resolver=resolve)
    async with client.session(ACCOUNT) as session:
        exchange = await post(session, f"http://shop.example:{merchant.port}/")
    assert exchange.outcome is ExchangeOutcome.ANSWERED


async def test_the_hosts_file_is_honoured(merchant, client):
    """[D-47 outbound]"""
    async with client.session(ACCOUNT) as session:
        assert (await post(session, f"http://localhost:{merchant.port}/")).outcome is ExchangeOutcome.ANSWERED


async def test_calls_of_a_session_resolve_a_name_once(merchant):
    """[D-47 outbound]"""
    asked: list[str] = []

    async def resolve(host: str) -> list[str]:
        asked.append(host)
        await asyncio.sleep(0.05)
        return ["127.0.0.1"]

    client = merchant_client(["shop.example:1-65535"], resolver=resolve)
    for _ in range(2):
        async with client.session(ACCOUNT) as session:
            url = f"http://shop.example:{merchant.port}/"
            ended = await asyncio.gather(*(post(session, url) for _ in range(50)))
        assert {each.outcome for each in ended} == {ExchangeOutcome.ANSWERED}
    assert asked == ["shop.example"] * 2


async def test_names_come_from_a_name_server(merchant):
    """[D-47 outbound]"""
    async with name_server("127.0.0.1") as (address, asked):
        resolver = AresResolver(nameservers=[address])
        client = merchant_client(["shop.example:1-65535"], resolver=resolver)
        async with client.session(ACCOUNT) as session:
            ended = (await post(session, f"http://shop.example:{merchant.port}/")).outcome
        await resolver.close()
    assert ended is ExchangeOutcome.ANSWERED
    assert asked


@pytest.mark.faults
async def test_a_silent_name_server_fails_only_its_call(merchant):
    """[D-30]"""
    async with name_server(None) as (address, asked):
        resolver = AresResolver(nameservers=[address])
        client = merchant_client([LOOPBACK, "shop.example:80"], resolver=resolver)
        async with client.session(ACCOUNT) as session, client.session(ACCOUNT) as other:
            waiting = [asyncio.create_task(post(session, "http://shop.example/")) for _ in range(100)]
            await eventually(lambda: bool(asked))
            started = time.monotonic()
            assert (await post(other, merchant.url)).outcome is ExchangeOutcome.ANSWERED
            assert time.monotonic() - started < 1
            ended = await asyncio.gather(*waiting)
        await resolver.close()
    assert {each.outcome for each in ended} == {ExchangeOutcome.UNREACHABLE}
    assert max(each.latency_ms for each in ended) < (LOOKUP_SECONDS + 1) * 1000


class _NameServer(asyncio.DatagramProtocol):
    """Answers IPv4 queries with the address `answer`, and other queries without an address.

    If `answer` is None, it sends no answers.
    """

    def __init__(self, answer: str | None) -> None:
        self.answer = answer
        self.asked: list[bytes] = []

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # type: ignore[override] - asyncio passes this type
        self.transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        question = data[12 : data.index(b"\0", 12) + 5]
        self.asked.append(question)
        if self.answer is None:
            return
        is_ipv4 = question[-4:-2] == b"\0\1"
        record = b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, 60, 4) + socket.inet_aton(self.answer)
        header = data[:2] + struct.pack("!HHHHH", 0x8180, 1, int(is_ipv4), 0, 0)
        self.transport.sendto(header + question + (record if is_ipv4 else b""), addr)


@asynccontextmanager
async def name_server(answer: str | None) -> AsyncGenerator[tuple[str, list[bytes]]]:
    """Run a name server on 127.0.0.1. Yield its address and the list of the queries that it receives."""
    loop = asyncio.get_running_loop()
    transport, server = await loop.create_datagram_endpoint(
        lambda: _NameServer(answer), local_addr=("127.0.0.1", 0)
    )
    try:
        yield f"127.0.0.1:{transport.get_extra_info('sockname')[1]}", server.asked
    finally:
        transport.close()


async def test_missing_file_descriptors_are_no_failure_of_the_merchant(merchant, client):
    """If the engine's own process has no free file descriptors, the call raises OutOfResourcesError.

    Several such calls in a row write only one log line. [D-30]
    """
    async with client.session(ACCOUNT) as session:
        with no_free_descriptors(), captured_logs() as logged:
            for url in (merchant.url, merchant.url, "https://fatura.invalid/"):
                with pytest.raises(OutOfResourcesError):
                    await post(session, url)
        assert logged.getvalue().count("outbound.out_of_resources") == 1
        assert (await post(session, merchant.url)).outcome is ExchangeOutcome.ANSWERED
    assert merchant.opened == 1
