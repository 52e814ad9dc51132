"""Limits of connections, of requests in progress, and of bytes of unfinished bodies and unread answers (D-200)."""

import asyncio
import socket
import struct
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress

import pytest

from fatura.api.http import connections, server
from fatura.api.http.connections import Connections, Most
from fatura.domain.errors import RATE_LIMITED, UNAVAILABLE
from tests.support.captured_logs import captured_logs
from tests.unit.raw_http import GET, GRACE, PATIENCE, POST, answer, check, closed_after, served
from tests.unit.tiny_api import LARGE_BYTES

WAITS = GET.replace("things", "waits").encode()
LARGE = GET.replace("things", "large").encode()
NEIGHBOUR, ELSEWHERE = "127.0.0.2", "127.0.1.1"
"""An address in the network of 127.0.0.1, and one in another network."""
MANY = 1024**3


@pytest.fixture
def limit(monkeypatch) -> Callable[..., None]:
    """A function that sets the limits of an address, of a network, or of the whole server."""
    monkeypatch.setattr(server, "DRAIN_SECONDS", PATIENCE)

    def set_limit(of: str, **most: int) -> None:
        numbers = {"requests": 100, "connections": 100, "held_bytes": MANY, **most}
        monkeypatch.setattr(connections, of, Most(**numbers))

    return set_limit


async def is_open(reader: asyncio.StreamReader) -> bool:
    """Return whether the server leaves a connection open for a while. Fail if the server sends data."""
    try:
        async with asyncio.timeout(PATIENCE / 4):
            assert await reader.read(1) == b""
    except TimeoutError:
        return True
    except ConnectionResetError:
        pass
    return False


@pytest.mark.parametrize("of", ["OF_ADDRESS", "OF_NETWORK", "IN_ALL"])
async def test_the_connection_that_waited_longest_is_closed_for_a_new_one(limit, of):
    """[D-200]"""
    limit(of, connections=3)
    async with served() as connect, AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(connect()) for _ in range(3)]
        for reader, writer in opened[1:]:
            writer.write(GET.encode())
            assert (await answer(reader))[0] == 200
        async with connect() as (reader, writer):
            writer.write(GET.encode())
            assert (await answer(reader))[0] == 200
            assert not await is_open(opened[0][0])
            assert await is_open(opened[1][0])


@pytest.mark.parametrize("sent", [b"", b"GET /v1", f"{POST}Content-Length: 9\r\n\r\n{{".encode(), LARGE * 2])
async def test_clients_that_send_or_read_slowly_give_way_to_new_ones(limit, sent):
    """[D-200]"""
    limit("IN_ALL", connections=3)
    async with served() as connect, AsyncExitStack() as stack:
        for _ in range(3):
            _, writer = await stack.enter_async_context(connect())
            writer.write(sent)
        await asyncio.sleep(PATIENCE / 2)
        async with connect(ELSEWHERE) as (reader, writer):
            writer.write(GET.encode())
            assert (await answer(reader))[0] == 200


async def test_a_connection_with_a_request_in_progress_is_not_closed(limit):
    """[D-200]"""
    limit("OF_ADDRESS", connections=3)
    async with served() as connect, AsyncExitStack() as stack:
        reader, writer = await stack.enter_async_context(connect())
        writer.write(WAITS)
        for _ in range(6):
            await stack.enter_async_context(connect())
        assert await is_open(reader)


async def test_requests_above_the_limit_of_an_address_are_refused(limit):
    """A network has a limit for all its addresses together. Other networks are served. [D-200, D-13]"""
    limit("OF_ADDRESS", requests=1)
    limit("OF_NETWORK", requests=2)
    async with served() as connect, connect() as (_, first), connect(NEIGHBOUR) as (_, second):
        first.write(WAITS)
        async with connect() as (reader, writer):
            writer.write(GET.replace("Host", "X-Request-Id: mine\r\nHost").encode())
            status, headers, received = await answer(reader)
            assert (status, headers["content-type"]) == (429, "application/problem+json")
            assert (headers["retry-after"], headers["connection"]) == ("1", "close")
            assert headers["x-request-id"] == "mine"
            assert RATE_LIMITED.type.encode() in received
            assert b'"requestId":"mine"' in received
            await closed_after(reader)
        second.write(WAITS)
        for source, status in ((NEIGHBOUR, 429), ("127.0.0.3", 429), (ELSEWHERE, 200)):
            async with connect(source) as (reader, writer):
                writer.write(GET.encode())
                assert (await answer(reader))[0] == status


async def test_a_proxy_is_not_limited_as_an_address(limit):
    """[D-200]"""
    limit("OF_ADDRESS", requests=1)
    async with served(limits_addresses=False) as connect, connect() as (_, first):
        first.write(WAITS)
        async with connect() as (reader, writer):
            writer.write(GET.encode())
            assert (await answer(reader))[0] == 200


async def test_a_full_server_answers_with_a_problem(limit):
    """The connection is closed after the answer. [D-175, D-13]"""
    limit("IN_ALL", requests=1)
    async with served() as connect:
        async with connect() as (_, waiting), connect() as (reader, writer):
            waiting.write(WAITS)
            writer.write(GET.encode())
            await check(reader, UNAVAILABLE)
            await closed_after(reader)
        # the first request is still running, although its client has disconnected
        async with connect() as (reader, writer):
            writer.write(GET.encode())
            await check(reader, UNAVAILABLE)


async def test_requests_that_wait_for_their_bodies_keep_nobody_out(limit):
    """A request counts towards the server's limit only after its body has arrived. [D-200, D-175]"""
    limit("IN_ALL", requests=2)
    async with served() as connect, AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(connect()) for _ in range(4)]
        for reader, writer in opened:
            writer.write(f"{POST}Content-Length: 12\r\n\r\n{{".encode())
            assert await is_open(reader)
        async with connect(ELSEWHERE) as (reader, writer):
            writer.write(GET.encode())
            assert (await answer(reader))[0] == 200
        for reader, writer in opened:
            writer.write(b'"name":"a"}')
            assert (await answer(reader))[0] == 201


async def test_requests_behind_unread_answers_keep_nobody_out(limit):
    """[D-200, D-175]"""
    limit("IN_ALL", requests=1)
    async with served() as connect, connect() as (_, first):
        first.write(LARGE * 3)
        await asyncio.sleep(PATIENCE)
        async with connect(ELSEWHERE) as (reader, writer):
            writer.write(GET.encode())
            assert (await answer(reader))[0] == 200


@pytest.mark.parametrize("head", ["", "Connection: close\r\n"])
async def test_a_client_that_does_not_read_its_answer_is_closed(connect, head):
    """[D-200]"""
    async with connect() as (reader, writer):
        writer.write(LARGE.replace(b"Host", head.encode() + b"Host"))
        await asyncio.sleep(PATIENCE * 3)
        assert await received_bytes(reader) < LARGE_BYTES


async def test_an_answer_may_be_read_slowly_within_the_deadline(connect):
    """[D-200]"""
    async with connect() as (reader, writer):
        writer.write(LARGE)
        await asyncio.sleep(PATIENCE / 4)
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(LARGE_BYTES)
        writer.write(GET.encode())
        assert (await answer(reader))[0] == 200


async def test_unread_answers_have_a_limit_in_bytes(limit):
    """The answers that have been unread longest are discarded. [D-200]"""
    limit("OF_ADDRESS", held_bytes=LARGE_BYTES * 3 // 2)
    async with served() as connect, AsyncExitStack() as stack:
        readers: list[asyncio.StreamReader] = []
        for _ in range(3):
            reader, writer = await stack.enter_async_context(connect())
            writer.write(LARGE)
            await reader.readuntil(b"\r\n\r\n")
            readers.append(reader)
        received = [await received_bytes(reader, at_most=LARGE_BYTES) for reader in readers]
        assert received[2] == LARGE_BYTES
        assert max(received[:2]) < LARGE_BYTES


async def test_unfinished_bodies_have_a_limit_in_bytes(limit):
    """The connection whose body has been unfinished longest is closed. [D-200]"""
    sent = f"{POST}Content-Length: 12\r\n\r\n".encode() + b'{"name":'
    limit("OF_ADDRESS", held_bytes=2 * len(b'{"name":'))
    async with served() as connect, AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(connect()) for _ in range(3)]
        for reader, writer in opened:
            writer.write(sent)
            assert await is_open(reader)
        assert not await is_open(opened[0][0])
        for reader, writer in opened[1:]:
            writer.write(b'"a"}')
            assert (await answer(reader))[0] == 201


async def test_bodies_that_have_arrived_are_not_counted(limit):
    """[D-200]"""
    limit("OF_ADDRESS", held_bytes=20)
    async with served() as connect, connect() as (reader, writer):
        for _ in range(5):
            writer.write(f'{POST}Content-Length: 12\r\n\r\n{{"name":"a"}}'.encode())
            assert (await answer(reader))[0] == 201


async def received_bytes(reader: asyncio.StreamReader, *, at_most: int = MANY) -> int:
    """Read until the server closes the connection or `at_most` bytes have arrived. Return how many bytes arrived."""
    received = 0
    async with asyncio.timeout(GRACE):
        with suppress(ConnectionResetError):
            while received < at_most and (piece := await reader.read(1024**2)):
                received += len(piece)
    return received


@pytest.mark.usefixtures("short_deadlines")
async def test_an_idle_connection_is_closed_even_if_bytes_arrive(monkeypatch):
    """An empty line may precede a request, but it does not begin one. [D-103]"""
    monkeypatch.setattr(server, "KEEP_ALIVE_SECONDS", PATIENCE)
    async with served() as connect, connect() as (reader, writer):
        writer.write(GET.encode())
        assert (await answer(reader))[0] == 200
        writer.write(b"\r\n")
        assert await closed_after(reader) < PATIENCE * 4


async def test_a_client_that_disconnects_causes_no_traceback(connect):
    """[D-13]"""
    with captured_logs() as logs:
        for _ in range(40):
            async with connect() as (_, writer):
                writer.write(LARGE * 3)
                raw: socket.socket = writer.get_extra_info("socket")
                # so that the connection is closed with a reset
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                await asyncio.sleep(0.002)
        async with connect() as (reader, writer):
            writer.write(GET.encode())
            assert (await answer(reader))[0] == 200
    assert "Traceback" not in logs.getvalue()


@pytest.mark.parametrize(
    ("peer", "other", "limited_together"),
    [
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("192.0.2.1", "::ffff:192.0.2.1", True),
        ("192.0.2.1", "192.0.2.2", False),
        ("", "", False),
    ],
)
def test_an_ipv6_network_counts_as_one_address(limit, peer, other, limited_together):
    """[D-200]"""

    class Idle:
        def abort(self) -> None:
            raise AssertionError

    limit("OF_ADDRESS", requests=1)
    opened, first, second = Connections(limits_addresses=True), Idle(), Idle()
    opened.add(first, peer=peer)
    opened.add(second, peer=other)
    opened.serve(first)
    assert (opened.refusal(second, requests=1) is not None) == limited_together
