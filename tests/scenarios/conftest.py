"""A scripted price endpoint for scenarios of variable prices."""

from collections.abc import AsyncIterator

import pytest

from tests.support.price_server import PriceServer, price_server


@pytest.fixture
async def prices() -> AsyncIterator[PriceServer]:
    async with price_server() as server:
        yield server
