"""The HTTP client for payment providers, against servers on real ports that answer badly (D-260)."""

import asyncio
import gzip
import ssl
from collections.abc import AsyncGenerator, Awaitable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from uuid import UUID, uuid4

import msgspec
import pytest
import trustme

from fatura.gateways.http import (
    MAX_BODY_BYTES,
    MAX_CALLS_OF_CONNECTION,
    ProviderCalls,
    ProviderClient,
    client,
)
from fatura.gateways.port import (
    AuthFailedError,
    GatewayError,
    InvalidAnswerError,
    NotFoundError,
    PermanentError,
    TransientError,
    UnknownOutcomeError,
)
from fatura.transaction_mark import TransactionMark
from tests.support.fatura_processes import free_port

KEY = "secret-key-of-the-merchant"
AUTHORITY = trustme.CA()


class Amount(msgspec.Struct):
    value: Decimal


@dataclass(slots=True)
class Server:
    """A server that sends `answers` one after another; the last one is repeated. None closes the connection."""

    answers: Sequence[bytes | None]
    port: int = 0
    seen: list[bytes] = field(default_factory=list[bytes])

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                for line in head.lower().split(b"\r\n"):
                    if line.startswith(b"content-length:"):
                        head += await reader.readexactly(int(line.partition(b":")[2]))
                self.seen.append(head)
                answer = self.answers[min(len(self.seen), len(self.answers)) - 1]
                if answer is None:
                    break
                writer.write(answer)
                await writer.drain()
                if b"Connection: close" in answer:
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


def answer(status: int, body: bytes = b"{}", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


@asynccontextmanager
async def served(*answers: bytes | None, tls: ssl.SSLContext | None = None) -> AsyncGenerator[Server]:
    opened = Server(answers)
    async with await asyncio.start_server(opened.serve, "127.0.0.1", 0, ssl=tls) as server:
        opened.port = server.sockets[0].getsockname()[1]
        yield opened


@pytest.fixture
async def local() -> AsyncGenerator[ProviderClient]:
    opened = ProviderClient(is_exempt=True)
    yield opened
    await opened.close()


def calls(
    of: ProviderClient, port: int, *, connection_id: UUID | None = None, scheme: str = "http"
) -> ProviderCalls:
    return of.calls(
        f"{scheme}://127.0.0.1:{port}/v3",
        headers={"access_token": KEY},
        connection_id=connection_id or uuid4(),
        refusal=lambda body: ("code", body.decode("latin-1")),
    )


def read(of: ProviderCalls) -> Awaitable[object]:
    return of.read("/payments", dict)


def write(of: ProviderCalls) -> Awaitable[object]:
    return of.write("POST", "/payments", answer=dict, body={"value": Decimal("99.90")})


async def raised(call: Awaitable[object]) -> GatewayError:
    with pytest.raises(GatewayError) as failure:
        await call
    assert KEY not in f"{failure.value!r} {failure.value.log_text} {failure.value.__cause__!r}"
    return failure.value


async def test_requests_are_sent_as_they_should(local: ProviderClient) -> None:
    """Amounts are numbers in the request, and are never floats. No cookie is kept. [D-260]"""
    body = b'{"value": 12345678901234567.89, "more": [1.5]}'
    async with served(answer(200, body, "Set-Cookie: a=b")) as server:
        own = calls(local, server.port)
        sent = await own.write("POST", "/payments", answer=Amount, body={"value": Decimal("99.90")})
        await own.read("/payments", Amount, query={"dateCreated[ge]": "2026-03-10", "reference": "a&b"})

    assert sent.value == Decimal("12345678901234567.89")
    post, get = server.seen
    assert post.endswith(b'\r\n\r\n{"value":99.90}')
    assert post.startswith(b"POST /v3/payments HTTP/1.1\r\n")
    assert b"User-Agent: Fatura/" in post
    assert f"access_token: {KEY}".encode() in post
    assert get.startswith(b"GET /v3/payments?dateCreated%5Bge%5D=2026-03-10&reference=a%26b HTTP/1.1\r\n")
    assert b"Cookie" not in get
    assert b"Content-Type" not in get


@pytest.mark.parametrize(
    ("status", "of_read", "of_write"),
    [
        (301, TransientError, UnknownOutcomeError),
        (400, PermanentError, PermanentError),
        (401, AuthFailedError, AuthFailedError),
        (403, AuthFailedError, AuthFailedError),
        (404, PermanentError, PermanentError),
        (408, TransientError, UnknownOutcomeError),
        (409, TransientError, UnknownOutcomeError),
        (424, TransientError, UnknownOutcomeError),
        (422, PermanentError, PermanentError),
        (429, TransientError, TransientError),
        (500, TransientError, UnknownOutcomeError),
        (502, TransientError, UnknownOutcomeError),
        (503, TransientError, UnknownOutcomeError),
    ],
)
async def test_a_status_is_an_error_of_the_port(
    local: ProviderClient, status: int, of_read: type[GatewayError], of_write: type[GatewayError]
) -> None:
    """A redirect is not followed. [D-260, D-34]"""
    async with served(answer(status, b"why", "Location: /elsewhere")) as server:
        for call, expected in ((read, of_read), (write, of_write)):
            error = await raised(call(calls(local, server.port)))
            assert type(error) is expected
            assert error.http_status == status
            if isinstance(error, PermanentError):
                assert (error.code, error.detail) == ("code", "why")
    assert len(server.seen) == 2


async def test_a_404_is_not_found_where_the_caller_says_so(local: ProviderClient) -> None:
    """[D-260]"""
    async with served(answer(404)) as server:
        own = calls(local, server.port)
        assert type(await raised(own.read("/payments/1", dict, may_be_absent=True))) is NotFoundError
        assert (
            type(await raised(own.write("DELETE", "/payments/1", answer=dict, may_be_absent=True)))
            is NotFoundError
        )


async def test_an_error_text_is_cleaned(local: ProviderClient) -> None:
    """[D-260]"""
    async with served(answer(400, f"the key {KEY}\r\n\x1b[31mis wrong".encode() + 900 * b"x")) as server:
        error = await raised(write(calls(local, server.port)))

    assert isinstance(error, PermanentError)
    assert error.detail.startswith("the key ***   [31mis wrong")
    assert len(error.detail) == 500


async def test_what_was_not_sent_is_transient(local: ProviderClient) -> None:
    """[D-260, D-34]"""
    for call in (read, write):
        assert type(await raised(call(calls(local, free_port())))) is TransientError


async def test_only_public_addresses_are_called_with_tls() -> None:
    """[D-260]"""
    guarded = ProviderClient()
    async with served(answer(200)) as server:
        error = await raised(write(calls(guarded, server.port, scheme="https")))
        with pytest.raises(AssertionError):
            calls(guarded, server.port)
        await guarded.close()

    assert (type(error), server.seen) == (TransientError, [])
    assert "not public" in str(error)


async def test_a_certificate_is_verified() -> None:
    """[D-260]"""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    AUTHORITY.issue_cert("127.0.0.1").configure_cert(context)
    trusting = ssl.create_default_context()
    AUTHORITY.configure_trust(trusting)
    stranger, known = ProviderClient(is_exempt=True), ProviderClient(is_exempt=True, ssl_context=trusting)
    async with served(answer(200), tls=context) as server:
        error = await raised(write(calls(stranger, server.port, scheme="https")))
        assert (type(error), server.seen) == (TransientError, [])
        assert "certificate is not trusted" in str(error)
        assert await write(calls(known, server.port, scheme="https")) == {}
        await stranger.close()
        await known.close()


@pytest.mark.parametrize(
    "bad",
    [
        answer(200, b"x" * (MAX_BODY_BYTES + 1)),
        answer(200, gzip.compress(b"{}"), "Content-Encoding: gzip"),
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nConnection: close\r\n\r\n{}",
        b"SSH-2.0-OpenSSH\r\n\r\n",
        None,
    ],
    ids=["too long", "encoded", "cut off", "no HTTP", "closed"],
)
async def test_a_broken_answer_leaves_a_write_unknown(local: ProviderClient, bad: bytes | None) -> None:
    """[D-260, D-33]"""
    async with served(bad, None) as server:
        assert type(await raised(write(calls(local, server.port)))) is UnknownOutcomeError
        assert len(server.seen) == 1, "a POST is sent once"
    async with served(bad, None) as server:
        assert type(await raised(read(calls(local, server.port)))) is TransientError


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"[", b"[" * 99_999, b"\xff", b'{"value": []}', b"null"],
    ids=["empty", "HTML", "cut off", "deep", "no UTF-8", "wrong type", "null"],
)
async def test_an_unreadable_answer_leaves_a_write_unknown(local: ProviderClient, body: bytes) -> None:
    """[D-260, D-50]"""
    async with served(answer(200, body)) as server:
        own = calls(local, server.port)
        assert isinstance(await raised(own.read("/payments", Amount)), InvalidAnswerError)
        assert isinstance(
            await raised(own.write("POST", "/payments", answer=Amount, body={})), UnknownOutcomeError
        )


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("second", [answer(200), answer(429), answer(401)], ids=["200", "429", "401"])
async def test_a_write_on_a_broken_connection_is_not_repeated(
    local: ProviderClient, method: str, second: bytes
) -> None:
    """The first request may have had an effect, which the answer to a repeat would hide. [D-260, D-33]"""
    async with served(answer(200), None, second) as server:
        own = calls(local, server.port)
        await read(own)
        failed = await raised(own.write(method, "/payments", answer=Amount))
        assert type(failed) is UnknownOutcomeError
    assert [each.split(b" ")[0] for each in server.seen] == [b"GET", method.encode()]


async def test_one_deadline_covers_all_calls(local: ProviderClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the deadline, nothing is sent. A new series of calls has a new deadline. [D-260]"""
    monkeypatch.setattr(client, "DEADLINE_SECONDS", 0.3)
    async with served(answer(200), b"") as server:
        own = calls(local, server.port)
        await read(own)
        assert type(await raised(write(own))) is UnknownOutcomeError
        assert type(await raised(write(own))) is TransientError
        assert len(server.seen) == 2
        assert type(await raised(read(calls(local, server.port)))) is TransientError


async def test_calls_of_a_connection_wait_for_each_other(
    local: ProviderClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They do not delay the calls of another connection. [D-260]"""
    busy = uuid4()
    async with served(b"") as hanging, served(answer(200)) as server:
        open_calls = [
            asyncio.create_task(_ended(read(calls(local, hanging.port, connection_id=busy))))
            for _ in range(MAX_CALLS_OF_CONNECTION)
        ]
        for _ in range(500):
            if len(hanging.seen) < MAX_CALLS_OF_CONNECTION:
                await asyncio.sleep(0.01)
        monkeypatch.setattr(client, "DEADLINE_SECONDS", 0.2)
        error = await raised(write(calls(local, server.port, connection_id=busy)))
        assert (type(error), server.seen) == (TransientError, [])
        assert await write(calls(local, server.port)) == {}
        for each in open_calls:
            each.cancel()
        await asyncio.gather(*open_calls, return_exceptions=True)
        assert await write(calls(local, server.port, connection_id=busy)) == {}


async def _ended(call: Awaitable[object]) -> None:
    await call


async def test_no_provider_is_called_inside_a_transaction(local: ProviderClient) -> None:
    """[D-260]"""
    async with served(answer(200)) as server:
        mark = TransactionMark()
        with pytest.raises(RuntimeError):
            await write(calls(local, server.port))
        mark.end()
    assert server.seen == []
