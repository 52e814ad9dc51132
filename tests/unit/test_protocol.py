"""Slow, oversized and malformed requests over a real socket, with real size limits and shorter deadlines."""

import asyncio
import re
from contextlib import suppress

import pytest

from fatura.api.http import body, protocol
from fatura.api.http.protocol import MAX_PIPELINED
from fatura.domain.errors import INVALID_REQUEST, PAYLOAD_TOO_LARGE, UNAUTHORIZED
from tests.unit.raw_http import GET, GRACE, PATIENCE, POST, answer, check, closed_after
from tests.unit.tiny_api import KEY, PAUSE_SECONDS

PAUSE = GET.replace("things", "pause")
CREATE = f'{POST}Content-Length: 12\r\n\r\n{{"name":"a"}}'
SMALL_HEAD = 20_000
"""A limit so small that the operating system delivers a larger head in one read."""


@pytest.fixture
def small_heads(monkeypatch) -> None:
    monkeypatch.setattr(protocol, "MAX_FRAMING_BYTES", SMALL_HEAD)


def sized_head(size: int) -> str:
    """Return a request without a body that has this many bytes."""
    return GET.replace("Host", "X-A: " + "a" * (size - len(GET) - len("X-A: \r\n")) + "\r\nHost")


async def statuses(reader: asyncio.StreamReader) -> list[int]:
    """Read until the server closes the connection. Return the status of each answer."""
    received = b""
    async with asyncio.timeout(GRACE):
        with suppress(ConnectionResetError):
            while piece := await reader.read(65_536):
                received += piece
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d+)", received)]


@pytest.mark.parametrize("sent", [b"", b"GET", b"GET /health HTTP/1.1\r\nHost: x\r\nX-A: b"])
async def test_an_unfinished_head_is_closed_at_the_deadline(connect, sent):
    async with connect() as (reader, writer):
        writer.write(sent)
        assert PATIENCE * 0.5 < await closed_after(reader) < PATIENCE * 4


async def test_a_slow_head_is_closed_at_the_deadline(connect):
    """[D-103]"""

    async def drip(writer: asyncio.StreamWriter) -> None:
        writer.write(b"GET /health HTTP/1.1\r\n")
        for number in range(1000):
            writer.write(f"X-{number}: y\r\n".encode())
            await asyncio.sleep(PATIENCE / 20)

    async with connect() as (reader, writer):
        dripping = asyncio.create_task(drip(writer))
        assert await closed_after(reader) < PATIENCE * 4
        dripping.cancel()


async def test_an_oversized_head_is_refused(connect):
    async with connect() as (reader, writer):
        writer.write(b"GET /health HTTP/1.1\r\nX-A: " + b"a" * 10_000_000)
        await check(reader, INVALID_REQUEST)


@pytest.mark.parametrize(("headers", "status"), [(94, 200), (95, 200), (97, 400), (15_000, 400)])
async def test_a_request_may_have_a_hundred_headers(connect, headers, status):
    """A request with more headers is refused, and the requests behind it are not served. [D-103]"""
    async with connect() as (reader, writer):
        writer.write(GET.replace("\r\n\r\n", "\r\n" + "a:\r\n" * headers + "\r\n").encode() + GET.encode())
        assert (await answer(reader))[0] == status
        if status == 400:
            await closed_after(reader)


@pytest.mark.parametrize(
    "framing", [b"X-A: b\r\n" * 100_000, b"X-A: " + b"a" * 1_000_000, b"1;" + b"a" * 1_000_000]
)
async def test_oversized_trailers_and_chunk_extensions_are_refused(connect, framing):
    """[D-11]"""
    async with connect() as (reader, writer):
        end = b"" if framing.startswith(b"1;") else b"0\r\n"
        writer.write(f"{POST}Transfer-Encoding: chunked\r\n\r\n2\r\n{{}}\r\n".encode() + end + framing)
        await check(reader, INVALID_REQUEST)
        await closed_after(reader)


async def test_a_large_body_in_small_chunks_is_read(connect):
    """[D-11]"""
    value = b'{"name": "xyz"' + b" " * 200_000 + b"}"
    chunks = b"".join(b"80\r\n" + value[at : at + 128] + b"\r\n" for at in range(0, len(value) - 127, 128))
    rest = value[len(value) // 128 * 128 :]
    async with connect() as (reader, writer):
        writer.write(f"{POST}Transfer-Encoding: chunked\r\n\r\n".encode() + chunks)
        writer.write(f"{len(rest):x}\r\n".encode() + rest + b"\r\n0\r\n\r\n" + GET.encode())
        assert [(await answer(reader))[0] for _ in range(2)] == [201, 200]


async def test_trailers_are_not_headers(connect):
    """[D-10]"""
    async with connect() as (reader, writer):
        writer.write(
            b"POST /v1/things HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"
            + f"Authorization: Bearer {KEY}\r\n\r\n".encode()
        )
        await check(reader, UNAUTHORIZED)


@pytest.mark.parametrize("before", ["", GET])
async def test_a_body_after_an_upgrade_is_not_a_second_request(connect, before):
    """[spec 7 problem+json]"""
    upgrade = "Connection: Upgrade\r\nUpgrade: h2c\r\n"
    async with connect() as (reader, writer):
        if before:
            writer.write(before.encode())
            assert (await answer(reader))[0] == 200
        writer.write(f"{POST}{upgrade}Content-Length: {len(GET)}\r\n\r\n".encode())
        await asyncio.sleep(PATIENCE / 4)
        with suppress(ConnectionError):
            writer.write(GET.encode())
        await check(reader, INVALID_REQUEST)
        await closed_after(reader)


async def test_a_request_without_a_body_may_ask_for_an_upgrade(connect):
    async with connect() as (reader, writer):
        writer.write(
            GET.replace("Host", "Connection: Upgrade\r\nUpgrade: h2c\r\nHost").encode() + GET.encode()
        )
        status, headers, _ = await answer(reader)
        assert (status, headers["connection"]) == (200, "close")
        await closed_after(reader)


async def test_invalid_http_is_answered_with_a_problem(connect):
    """[spec 7 problem+json]"""
    async with connect() as (reader, writer):
        writer.write(b"HELLO\r\n\r\n")
        await check(reader, INVALID_REQUEST)
        await closed_after(reader)


async def test_a_slow_body_is_refused_at_the_deadline(connect):
    async with connect() as (reader, writer):
        writer.write(f"{POST}Content-Length: 100\r\n\r\n".encode() + b'{"name":')
        await check(reader, INVALID_REQUEST)
        assert await closed_after(reader) < PATIENCE * 4


async def test_an_announced_oversized_body_is_413_at_once(connect):
    """After the 413, the server discards the body for a while. An immediate close could lose the response. [D-11]"""
    async with connect() as (reader, writer):
        writer.write(f"{POST}Content-Length: {body.MAX_BYTES + 1}\r\n\r\n".encode())
        await check(reader, PAYLOAD_TOO_LARGE)
        writer.write(b"x" * (body.MAX_BYTES + 1) + GET.encode())
        assert (await answer(reader))[0] == 200


async def test_a_chunked_oversized_body_is_413(connect):
    """[D-11]"""
    chunk = f"{0x8000:x}\r\n".encode() + b"x" * 0x8000 + b"\r\n"
    async with connect() as (reader, writer):
        writer.write(f"{POST}Transfer-Encoding: chunked\r\n\r\n".encode() + chunk * 9)
        await check(reader, PAYLOAD_TOO_LARGE)
        writer.write(b"0\r\n\r\n" + GET.encode())
        assert (await answer(reader))[0] == 200


async def test_a_chunked_body_is_read(connect):
    """[D-11]"""
    async with connect() as (reader, writer):
        writer.write(f"{POST}Transfer-Encoding: chunked\r\n\r\n5\r\n".encode() + b'{"nam\r\n')
        await asyncio.sleep(PATIENCE / 4)
        writer.write(b'9\r\ne": "xyz"\r\n1\r\n}\r\n0\r\n\r\n')
        status, _, received = await answer(reader)
        assert (status, b'"got":"xyz"' in received) == (201, True)


async def test_an_unauthenticated_request_is_answered_before_its_body(connect):
    """[D-10]"""
    async with connect() as (reader, writer):
        writer.write(b"POST /v1/things HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        await check(reader, UNAUTHORIZED)
        assert await closed_after(reader) < PATIENCE * 4


async def test_a_connection_is_kept_between_requests(connect):
    """The deadline for a request's head does not apply to an idle connection between two requests."""
    async with connect() as (reader, writer):
        for _ in range(2):
            writer.write(GET.encode())
            status, headers, _ = await answer(reader)
            assert status == 200
            assert "server" not in headers
            await asyncio.sleep(PATIENCE * 2)


async def test_pipelined_requests_are_answered_in_order(connect):
    async with connect() as (reader, writer):
        writer.write(b"".join(GET.replace("Host", f"X-Request-Id: r{n}\r\nHost").encode() for n in range(3)))
        assert [(await answer(reader))[1]["x-request-id"] for _ in range(3)] == ["r0", "r1", "r2"]


@pytest.mark.parametrize("count", [1 + MAX_PIPELINED + 1, 20, 14_000])
async def test_few_requests_are_pipelined(connect, count):
    """If a client sends too many requests at once, the first are answered. Then the connection is closed. [D-103]"""
    async with connect() as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\n\r\n" * count)
        answers = await statuses(reader)
        # The server may close the connection before it has read 14,000 requests. The reset then discards answers.
        assert answers == [404] * (1 + MAX_PIPELINED) or (count > 20 and len(answers) <= 1 + MAX_PIPELINED)


async def test_the_server_reads_nothing_while_requests_wait(connect):
    """While one request waits for another, the client sends four more. The server reads these later. [D-103]"""
    async with connect() as (reader, writer):
        writer.write((GET + PAUSE + GET).encode())
        await asyncio.sleep(PAUSE_SECONDS / 4)
        writer.write(GET.encode() * MAX_PIPELINED)
        assert [(await answer(reader))[0] for _ in range(3 + MAX_PIPELINED)] == [200] * (3 + MAX_PIPELINED)


async def test_a_pipelined_request_has_no_body(connect):
    """[D-103]"""
    async with connect() as (reader, writer):
        writer.write((GET + GET + CREATE).encode())
        assert await statuses(reader) == [200, 200]


async def test_pipelined_heads_together_have_a_limit(connect, small_heads):
    """[D-103]"""
    async with connect() as (reader, writer):
        writer.write((GET + sized_head(12_000) * 2).encode())
        assert await statuses(reader) == [200, 200]


@pytest.mark.parametrize(("size", "status"), [(15_000, 200), (SMALL_HEAD + 1, 400), (60_000, 400)])
async def test_the_size_of_a_head_does_not_depend_on_how_it_is_read(connect, small_heads, size, status):
    """[D-103]"""
    async with connect() as (reader, writer):
        writer.write(sized_head(size).encode())
        assert (await answer(reader))[0] == status


async def test_a_body_does_not_allow_longer_trailers(connect, small_heads):
    """[D-103]"""
    async with connect() as (reader, writer):
        writer.write(f"{POST}Transfer-Encoding: chunked\r\n\r\n7530\r\n".encode() + b" " * 30_000)
        await asyncio.sleep(PATIENCE / 4)
        writer.write(b"\r\n0\r\nX-A: " + b"a" * SMALL_HEAD)
        status, _, received = await answer(reader)
        assert (status, b"trailers are larger" in received) == (400, True)


@pytest.mark.parametrize(
    "tail",
    [
        "!!\r\n\r\n",
        sized_head(SMALL_HEAD + 1),
        GET.replace("\r\n\r\n", "\r\n" + "a:\r\n" * 100 + "\r\n"),
        f"{POST}Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\n{{}}",
    ],
)
async def test_a_refusal_does_not_replace_an_earlier_answer(connect, small_heads, tail):
    """A request takes effect, and an invalid request follows it.

    If only the refusal were sent, the client would take it for the answer to the first request. [D-103]
    """
    async with connect() as (reader, writer):
        writer.write((CREATE + tail).encode())
        assert await statuses(reader) == [201]


async def test_invalid_http_does_not_replace_an_answer_in_progress(connect):
    """[D-103]"""
    async with connect() as (reader, writer):
        writer.write(PAUSE.encode())
        await asyncio.sleep(PAUSE_SECONDS / 4)
        writer.write(b"!!\r\n\r\n")
        assert await statuses(reader) == [200]


async def test_head_has_no_body(connect):
    async with connect() as (reader, writer):
        writer.write(b"HEAD /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        async with asyncio.timeout(GRACE):
            received = await reader.read()
        assert received.startswith(b"HTTP/1.1 200")
        assert received.endswith(b"\r\n\r\n")
        assert b"content-length: 15\r\n" in received
