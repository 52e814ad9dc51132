"""A pool of database connections for the contract suites. Each test has its own database."""

from collections.abc import AsyncGenerator

import pytest

from fatura.store.db import Database, connect

pytest.register_assert_rewrite("tests.contract.gateway_contract", "tests.contract.refund_contract")


@pytest.fixture
async def db(database_url: str) -> AsyncGenerator[Database]:
    database = await connect(database_url, max_connections=8)
    yield database
    await database.close()
