"""The engine connects only to allowed addresses, even if a merchant gives a hostile URL.

The tests record each connection.
"""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import ip_network
from itertools import chain, repeat
from typing import Any

import pytest

from fatura.outbound.http import Exchange, ExchangeOutcome, MerchantClient
from fatura.outbound.http.dialing import UNREACHABLE
from tests.support.captured_logs import captured_logs
from tests.support.hostile_urls import PRIVATE_ADDRESSES, PUBLIC_ADDRESSES, hostile_urls
from tests.support.merchant_clients import ACCOUNT, merchant_client
from tests.support.world import Answer, World, open_world

_watched: list[list[tuple[str, int]]] = []
LOOPBACK = ("127.0.0.1", "127.0.0.2", "::1")


def _on_event(event: str, arguments: tuple[Any, ...]) -> None:
    """While a test uses `connects`, record each connection attempt and refuse addresses outside LOOPBACK."""
    if event == "socket.connect" and _watched and isinstance(arguments[1], tuple):
        host, port = arguments[1][:2]
        _watched[-1].append((host, port))
        if host not in LOOPBACK:
            raise ConnectionRefusedError


sys.addaudithook(_on_event)


@pytest.fixture
def connects() -> Iterator[list[tuple[str, int]]]:
    """The addresses and ports to which this process connects during the test."""
    _watched.append([])
    yield _watched[-1]
    _watched.pop()


@dataclass(slots=True)
class Canary:
    """A server that counts its connections and answers each request with `answer`."""

    port: int = 0
    accepted: int = 0
    heads: list[bytes] = field(default_factory=list[bytes])
    answer: bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        try:
            self.heads.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(self.answer)
        except asyncio.IncompleteReadError:
            pass
        writer.close()


@asynccontextmanager
async def listening() -> AsyncGenerator[Canary]:
    """Run a `Canary` on a free port of 127.0.0.1, and on the same port of ::1 if the machine has IPv6."""
    canary = Canary()
    async with await asyncio.start_server(canary.serve, "127.0.0.1", 0) as server:
        canary.port = server.sockets[0].getsockname()[1]
        try:
            async with await asyncio.start_server(canary.serve, "::1", canary.port):
                yield canary
        except OSError:
            yield canary


@pytest.fixture
async def canary() -> AsyncIterator[Canary]:
    """A server that the engine must not call for any hostile URL."""
    async with listening() as opened:
        yield opened


@pytest.fixture
async def strict_world(database_url: str) -> AsyncIterator[World]:
    """An engine that may call only public addresses, because FATURA_OUTBOUND_ALLOW is empty."""
    async with open_world(database_url, FATURA_OUTBOUND_ALLOW="") as opened:
        yield opened


class Names:
    """A resolver with a list of answers per name. Each look-up returns the next answer; the last answer repeats."""

    def __init__(self, script: dict[str, Sequence[Sequence[str]]]) -> None:
        self._answers = {name: chain(answers[:-1], repeat(answers[-1])) for name, answers in script.items()}
        self.asked: list[str] = []

    async def __call__(self, host: str) -> Sequence[str]:
        """Return the next answer, or fail for an unknown name."""
        self.asked.append(host)
        if host not in self._answers:
            raise OSError("no such name")
        return next(self._answers[host])


async def post(client: MerchantClient, url: str) -> Exchange:
    async with client.session(ACCOUNT) as session:
        return await session.post(url, body=b"{}", headers={})


Door = tuple[str, str, Callable[[str], Any]]
DOORS: dict[str, Door] = {
    "create a product": (
        "POST",
        "/v1/products",
        lambda url: {"name": "Usage", "pricing": {"mode": "endpoint", "url": url, "capCents": 100}},
    ),
    "change a product": ("PATCH", "/v1/products/{product}", lambda url: {"endpointUrl": url}),
    "register a webhook": ("PUT", "/v1/integration/webhook", lambda url: {"url": url}),
}


@pytest.mark.faults
@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
async def test_hostile_urls_are_refused_by_every_route(
    strict_world: World, canary: Canary, connects: list[tuple[str, int]], door: Door
) -> None:
    """[D-47 outbound, spec 7 400]"""
    method, path, body = door
    sound = "https://merchant.example/price"
    product = await strict_world.made("/v1/products", DOORS["create a product"][2](sound))
    path = path.format(product=product["id"])
    urls = hostile_urls(canary.port)
    connects.clear()

    taken = [url for url in urls if not _is_refused(await strict_world.call(method, path, body(url)))]

    assert len(urls) >= 500
    assert taken == []
    assert not _is_refused(await strict_world.call(method, path, body(sound)))
    assert _outside(connects) == []
    assert canary.accepted == 0


def _is_refused(answer: Answer) -> bool:
    return answer.status == 400 and answer.type == "engine.invalid_request"


async def test_hostile_urls_in_the_database_are_not_called(
    strict_world: World, canary: Canary, connects: list[tuple[str, int]]
) -> None:
    """[D-47 outbound, D-30]"""
    urls = hostile_urls(canary.port)
    await strict_world.sql(
        """INSERT INTO product (account_id, product_id, name, pricing_mode, endpoint_url, cap_cents, created_at)
        SELECT $1, gen_random_uuid(), 'Usage', 'endpoint', url, 100, now() FROM unnest($2::text[]) AS url""",
        strict_world.account_id,
        urls,
    )
    stored = [row["endpoint_url"] for row in await strict_world.sql("SELECT endpoint_url FROM product")]
    connects.clear()

    names = Names(
        {host: [["127.0.0.1"]] for host in ("localhost", "localhost.", "merchant.example", "db", "metadata")}
    )
    client = merchant_client((), ports=str(canary.port), resolver=names)
    async with client.session(ACCOUNT) as session:
        called = [(url, await session.post(url, body=b"{}", headers={})) for url in stored]

    assert sorted(stored) == sorted(urls)
    assert [
        url
        for url, each in called
        if each.outcome is not ExchangeOutcome.UNREACHABLE or each.status is not None
    ] == []
    assert connects == []
    assert names.asked == []
    assert canary.accepted == 0


@pytest.mark.parametrize("address", PRIVATE_ADDRESSES)
async def test_names_with_a_private_address_are_not_called(
    canary: Canary, connects: list[tuple[str, int]], address: str
) -> None:
    """[D-47 outbound, D-30]"""
    names = Names(
        {
            "only.example": [[address]],
            "first.example": [[address, "8.8.8.8"]],
            "last.example": [["8.8.8.8", "2606:4700::1111", address]],
        }
    )
    client = merchant_client((), ports=str(canary.port), resolver=names)

    ended = [
        await post(client, f"https://{name}:{canary.port}/")
        for name in ("only.example", "first.example", "last.example")
    ]

    assert {each.outcome for each in ended} == {ExchangeOutcome.UNREACHABLE}
    assert connects == []
    assert canary.accepted == 0


@pytest.mark.parametrize("address", PUBLIC_ADDRESSES)
async def test_names_with_public_addresses_are_called_at_that_address(
    connects: list[tuple[str, int]], address: str
) -> None:
    """[D-47 outbound]"""
    client = merchant_client((), ports="8443", resolver=Names({"merchant.example": [[address]]}))

    await post(client, "https://merchant.example:8443/")

    assert connects == [(address, 8443)]


async def test_a_name_whose_address_changes_is_checked_on_each_call(
    canary: Canary, connects: list[tuple[str, int]]
) -> None:
    """[D-47 outbound]"""
    names = Names({"turning.example": [["8.8.8.8"], ["127.0.0.1"]]})
    client = merchant_client((), ports=str(canary.port), resolver=names)
    url = f"https://turning.example:{canary.port}/"

    ended = [await post(client, url) for _ in range(3)]

    assert {each.outcome for each in ended} == {ExchangeOutcome.UNREACHABLE}
    assert len({each.error for each in ended}) == 1, "the error shows why a call failed"
    assert connects == [("8.8.8.8", canary.port)]
    assert len(names.asked) == 3, "each call must look up its name once and connect to the checked address"
    assert canary.accepted == 0


async def test_only_the_allowed_host_and_port_are_called(
    canary: Canary, connects: list[tuple[str, int]]
) -> None:
    """[D-47 outbound]"""
    names = Names({name: [["127.0.0.1"]] for name in ("shop", "other.example")})
    client = merchant_client([f"shop:{canary.port}"], resolver=names)

    called = await post(client, f"http://shop:{canary.port}/price")
    async with listening() as beside:
        for url in (f"http://shop:{beside.port}/", f"https://other.example:{canary.port}/"):
            assert (await post(client, url)).outcome is ExchangeOutcome.UNREACHABLE
        assert beside.accepted == 0

    assert (called.outcome, called.status) == (ExchangeOutcome.ANSWERED, 200)
    assert connects == [("127.0.0.1", canary.port)]
    assert canary.accepted == 1


async def _speak_no_tls(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"220 mail\r\n")
    writer.close()


async def test_all_failures_to_connect_read_the_same(connects: list[tuple[str, int]]) -> None:
    """[D-215, D-30]"""
    resolved = {
        "plain.example": ["127.0.0.1"],
        "closed.example": ["127.0.0.2"],
        "private.example": ["10.0.0.1"],
        "mixed.example": ["8.8.8.8", "127.0.0.1"],
        "denied.example": ["127.0.0.3"],
        "unknown.example": [],
    }
    names = Names({name: [addresses] for name, addresses in resolved.items()})
    async with await asyncio.start_server(_speak_no_tls, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        exempt = [f"{name}.example:{port}" for name in ("plain", "closed", "denied")]
        denied = [ip_network("127.0.0.3/32")]
        client = merchant_client(exempt, ports=str(port), denied=denied, resolver=names)

        with captured_logs() as logged:
            ended = [await post(client, f"https://{name}:{port}/") for name in resolved]

    assert {(each.outcome, each.status, each.error) for each in ended} == {
        (ExchangeOutcome.UNREACHABLE, None, UNREACHABLE)
    }
    reasons = {line["host"]: line["reason"] for line in map(json.loads, logged.getvalue().splitlines())}
    assert "SSL" in reasons["plain.example"]
    assert "Connect call failed" in reasons["closed.example"]
    assert "10.0.0.1" in reasons["private.example"]
    assert "127.0.0.3" in reasons["denied.example"]
    assert {host for host, _ in connects} == {"127.0.0.1", "127.0.0.2"}


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_not_followed(
    canary: Canary, connects: list[tuple[str, int]], status: int
) -> None:
    """[D-30, D-30 bounds]"""
    async with listening() as merchant:
        location = f"http://127.0.0.1:{canary.port}/"
        merchant.answer = (
            f"HTTP/1.1 {status} Go\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n".encode()
        )

        called = await post(merchant_client(), f"http://127.0.0.1:{merchant.port}/")

    assert (called.outcome, called.status) == (ExchangeOutcome.ANSWERED, status)
    assert connects == [("127.0.0.1", merchant.port)]
    assert canary.accepted == 0


async def test_requests_use_no_proxy_and_no_other_headers(
    canary: Canary, connects: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """[D-47 outbound, D-30]"""
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{canary.port}")
    (tmp_path / "netrc").write_text("default login ana password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    async with listening() as merchant:
        client = merchant_client()
        async with client.session(ACCOUNT) as session:
            await session.post(f"http://127.0.0.1:{merchant.port}?a=1", body=b"{}", headers={"X-A": "b"})

    assert connects == [("127.0.0.1", merchant.port)]
    assert canary.accepted == 0
    lines = merchant.heads[0].decode().split("\r\n")
    assert lines[0] == "POST /?a=1 HTTP/1.1"
    assert {line.partition(":")[0] for line in lines[1:] if line} == {
        *("Host", "User-Agent", "Accept-Encoding", "X-A", "Content-Length"),
    }
    assert "Accept-Encoding: identity" in lines
    assert f"Host: 127.0.0.1:{merchant.port}" in lines


def _outside(connects: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return the recorded connections to addresses that are not in LOOPBACK."""
    return [each for each in connects if each[0] not in LOOPBACK]
