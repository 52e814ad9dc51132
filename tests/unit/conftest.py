"""A client of the tiny API for all unit tests."""

from collections.abc import AsyncIterator

import httpx
import pytest

from tests.unit.tiny_api import client_of, tiny_api


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    """A client of the tiny API with a valid API key."""
    async with client_of(tiny_api()) as opened:
        yield opened
