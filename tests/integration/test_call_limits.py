"""Limits of the number of concurrent calls to merchants' servers."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from uuid import uuid4

import pytest

from fatura.domain.account import Account
from fatura.outbound.http import Exchange, ExchangeOutcome, MerchantClient, OutOfResourcesError, call_limits
from tests.support.merchant_clients import ACCOUNT, merchant_client
from tests.support.world import eventually


class Server:
    """Answers no call before `answer` is set, and counts the open calls."""

    def __init__(self) -> None:
        self.port = self.open = self.most = 0
        self.answer = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        self.most = max(self.most, self.open)
        await reader.readuntil(b"{}")
        await self.answer.wait()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        self.open -= 1
        writer.close()


@asynccontextmanager
async def serving() -> AsyncGenerator[Server]:
    opened = Server()
    async with await asyncio.start_server(opened.serve, "127.0.0.1", 0) as server:
        opened.port = server.sockets[0].getsockname()[1]
        try:
            yield opened
        finally:
            opened.answer.set()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving() as opened:
        yield opened


@pytest.fixture(autouse=True)
def _limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_limits, "MAX_CALLS_OF_ACCOUNT", 4)
    monkeypatch.setattr(call_limits, "MAX_CALLS_TO_ADDRESS", 6)
    monkeypatch.setattr(call_limits, "MAX_WAIT_SECONDS", 0.3)


async def call(client: MerchantClient, account: Account, server: Server) -> Exchange:
    async with client.session(account) as session:
        return await session.post(f"http://127.0.0.1:{server.port}/", body=b"{}", headers={})


def calls(
    client: MerchantClient, account: Account, server: Server, *, count: int
) -> list[asyncio.Task[Exchange]]:
    return [asyncio.create_task(call(client, account, server)) for _ in range(count)]


async def test_calls_of_an_account_above_the_limit_are_given_up_unsent(server: Server) -> None:
    """[D-215, D-30]"""
    client = merchant_client()
    running = calls(client, ACCOUNT, server, count=6)
    done, waiting = await asyncio.wait(running, timeout=1)
    assert [type(each.exception()) for each in done] == [OutOfResourcesError] * 2
    assert (server.open, server.most, len(waiting)) == (4, 4, 4)

    server.answer.set()
    assert {each.outcome for each in await asyncio.gather(*waiting)} == {ExchangeOutcome.ANSWERED}
    assert (await call(client, ACCOUNT, server)).outcome is ExchangeOutcome.ANSWERED


async def test_a_call_waits_for_its_place_and_the_wait_is_not_part_of_its_time(server: Server) -> None:
    """[D-215, D-108]"""
    client = merchant_client()
    running = calls(client, ACCOUNT, server, count=4)
    await eventually(lambda: server.open == 4)
    late = asyncio.create_task(call(client, ACCOUNT, server))
    await asyncio.sleep(0.2)
    server.answer.set()
    assert (await late).latency_ms < 150
    await asyncio.gather(*running)


async def test_other_accounts_may_still_make_two_calls_to_a_busy_address(server: Server) -> None:
    """[D-215, D-31]"""
    client, others = merchant_client(), [replace(ACCOUNT, account_id=uuid4()) for _ in range(3)]
    running = [each for account in others[:2] for each in calls(client, account, server, count=4)]
    # Two calls of each account do not count towards MAX_CALLS_TO_ADDRESS.
    await eventually(lambda: server.open == 8)
    running += calls(client, others[2], server, count=2)
    await eventually(lambda: server.open == 10)

    async with serving() as elsewhere:
        elsewhere.answer.set()
        assert (await call(client, ACCOUNT, elsewhere)).outcome is ExchangeOutcome.ANSWERED
    server.answer.set()
    await asyncio.gather(*running)


async def test_calls_to_a_busy_address_are_given_up_unsent(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[D-215]"""
    monkeypatch.setattr(call_limits, "MAX_CALLS_TO_ADDRESS", 1)
    client = merchant_client()
    running = calls(client, ACCOUNT, server, count=4)
    done, waiting = await asyncio.wait(running, timeout=1)
    assert [type(each.exception()) for each in done] == [OutOfResourcesError]
    assert server.most == 3
    server.answer.set()
    await asyncio.gather(*waiting)
