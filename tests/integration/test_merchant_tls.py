"""A merchant's server needs TLS 1.2 or newer and a certificate for its name. (D-30, D-47)"""

import asyncio
import ssl
import warnings
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
import trustme

from fatura.outbound.http import Exchange, ExchangeOutcome, MerchantClient
from fatura.outbound.http.dialing import UNREACHABLE, trusting_context
from tests.support.merchant_clients import ACCOUNT, merchant_client

NAME = "shop.example"
AUTHORITY = trustme.CA()
STRANGER = trustme.CA()
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class Shop:
    """A TLS server: its port, the server names in its handshakes, and the headers of its requests."""

    port: int
    names: list[str | None] = field(default_factory=list[str | None])
    heads: list[bytes] = field(default_factory=list[bytes])


@asynccontextmanager
async def shop(
    certificate: trustme.LeafCert, *, newest: ssl.TLSVersion | None = None
) -> AsyncGenerator[Shop]:
    """Run a TLS server with a certificate. If `newest` is given, the server refuses newer versions of TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    if newest is not None:
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, newest
        context.set_ciphers("ALL:@SECLEVEL=0")
    opened = Shop(0)

    def note(_connection: ssl.SSLObject, name: str | None, _context: ssl.SSLContext) -> None:
        opened.names.append(name)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened.heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
        writer.close()

    context.sni_callback = note
    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context) as server:
        opened.port = server.sockets[0].getsockname()[1]
        yield opened


async def _resolve(_host: str) -> list[str]:
    return ["127.0.0.1"]


def _client() -> MerchantClient:
    """Return a client that trusts AUTHORITY, in addition to the system's authorities."""
    context = trusting_context()
    AUTHORITY.configure_trust(context)
    return merchant_client([f"{NAME}:1-65535"], resolver=_resolve, ssl_context=context)


async def _post(client: MerchantClient, opened: Shop) -> Exchange:
    async with client.session(ACCOUNT) as session:
        return await session.post(f"https://{NAME}:{opened.port}/price", body=b"{}", headers={})


async def test_the_server_gets_the_name_in_handshake_and_request() -> None:
    """[D-30]"""
    async with shop(AUTHORITY.issue_cert(NAME)) as opened:
        exchange = await _post(_client(), opened)

    assert (exchange.outcome, exchange.status, exchange.body) == (ExchangeOutcome.ANSWERED, 200, b"{}")
    assert opened.names == [NAME]
    assert f"\r\nHost: {NAME}:{opened.port}\r\n".encode() in opened.heads[0]


@pytest.mark.parametrize(
    "issue",
    [
        pytest.param(lambda: AUTHORITY.issue_cert("other.example"), id="another name"),
        pytest.param(lambda: AUTHORITY.issue_cert("127.0.0.1"), id="the address"),
        pytest.param(lambda: AUTHORITY.issue_cert("*.shop.example"), id="subdomains"),
        pytest.param(
            lambda: AUTHORITY.issue_cert(NAME, not_before=LONG_AGO, not_after=LONG_AGO + timedelta(days=1)),
            id="expired",
        ),
        pytest.param(lambda: STRANGER.issue_cert(NAME), id="an unknown authority"),
    ],
)
async def test_no_request_is_sent_to_a_server_with_a_wrong_certificate(
    issue: Callable[[], trustme.LeafCert],
) -> None:
    """[D-30, D-47 outbound]"""
    async with shop(issue()) as opened:
        exchange = await _post(_client(), opened)

    assert (exchange.outcome, exchange.status) == (ExchangeOutcome.UNREACHABLE, None)
    assert exchange.error == UNREACHABLE
    assert opened.heads == []


async def test_only_the_authorities_of_the_system_are_trusted_by_default() -> None:
    """[D-30]"""
    async with shop(AUTHORITY.issue_cert(NAME)) as opened:
        exchange = await _post(merchant_client([f"{NAME}:1-65535"], resolver=_resolve), opened)

    assert exchange.outcome is ExchangeOutcome.UNREACHABLE
    assert opened.heads == []


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
async def test_tls_1_1_is_refused(newest: ssl.TLSVersion) -> None:
    """[D-30]"""
    async with shop(AUTHORITY.issue_cert(NAME), newest=newest) as opened:
        exchange = await _post(_client(), opened)

    assert exchange.outcome is ExchangeOutcome.UNREACHABLE
    assert opened.heads == []


async def test_a_canceled_handshake_closes_its_connection() -> None:
    """[D-30]"""
    closed = asyncio.Event()

    async def never_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        closed.set()
        writer.close()

    async with await asyncio.start_server(never_answer, "127.0.0.1", 0) as server:
        calling = asyncio.create_task(_post(_client(), Shop(server.sockets[0].getsockname()[1])))
        await asyncio.sleep(0.2)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        async with asyncio.timeout(2):
            await closed.wait()
