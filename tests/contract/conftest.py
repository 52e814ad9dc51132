"""A pool for the contract suites, on a database of the test's own."""

from collections.abc import AsyncGenerator

import pytest

from fatura.store.db import Database, connect

pytest.register_assert_rewrite("tests.contract.gateway_contract")


@pytest.fixture
async def db(database_url: str) -> AsyncGenerator[Database]:
    """Return a pool."""
    database = await connect(database_url, max_connections=8)
    yield database
    await database.close()
