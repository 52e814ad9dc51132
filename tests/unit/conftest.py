"""Fixtures of the unit tests: the tiny API in this process, and on a real socket."""

from collections.abc import AsyncIterator

import httpx
import pytest

from fatura.api.http import body, protocol
from tests.unit.raw_http import PATIENCE, Connect, served
from tests.unit.tiny_api import client_of, tiny_api


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    """A client of the tiny API with a valid API key."""
    async with client_of(tiny_api()) as opened:
        yield opened


@pytest.fixture
def short_deadlines(monkeypatch) -> None:
    monkeypatch.setattr(protocol, "PATIENCE_SECONDS", PATIENCE)
    monkeypatch.setattr(protocol, "UNREAD_SECONDS", PATIENCE)
    monkeypatch.setattr(body, "READ_SECONDS", PATIENCE)


@pytest.fixture
async def connect(short_deadlines) -> AsyncIterator[Connect]:
    """A function that opens a connection to the tiny API, whose deadlines are shortened."""
    async with served() as connected:
        yield connected
