"""What scenarios of variable prices stand on."""

from collections.abc import AsyncIterator

import pytest

from tests.support.price_server import PriceServer, price_server


@pytest.fixture
async def prices() -> AsyncIterator[PriceServer]:
    """A price endpoint that the test scripts."""
    async with price_server() as server:
        yield server
