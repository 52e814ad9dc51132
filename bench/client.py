"""Call the API inside this process without a socket, so that only the engine and its database are measured."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx

from bench.servers import opened
from fatura.api.app import create_app
from fatura.usecases.accounts.accounts import OpenedAccount


@asynccontextmanager
async def client_of(url: str, account: OpenedAccount) -> AsyncGenerator[httpx.AsyncClient]:
    """Yield a client with the API key of an account. The API has no rate limit."""
    async with opened(url) as deps:
        transport = httpx.ASGITransport(create_app(deps))
        headers = {"Authorization": f"Bearer {account.api_key}"}
        async with httpx.AsyncClient(
            transport=transport, base_url="http://fatura", headers=headers
        ) as client:
            yield client
