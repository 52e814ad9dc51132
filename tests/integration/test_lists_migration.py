"""Customers that were there before they were counted: the migration counts them, account by account (D-15, D-16)."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID, uuid4

import asyncpg
import pytest

from fatura.store.migrations.runner import MIGRATIONS, migrate
from tests.conftest import fresh_database

COUNTING = "0006_lists_and_customers.sql"


@pytest.fixture
async def empty_url(server_url: str) -> AsyncIterator[str]:
    """An empty database's URL."""
    async with fresh_database(server_url, template="template1") as url:
        yield url


def copied(folder: Path, *, until: str) -> Path:
    """Copy the migrations up to one, that one included, as an older Fatura had them."""
    folder.mkdir(exist_ok=True)
    for path in MIGRATIONS.glob("*.sql"):
        if path.name <= until:
            shutil.copy(path, folder)
    return folder


async def open_account(url: str, *, customers: int) -> UUID:
    """Store an account with customers, as the version before did."""
    account_id = uuid4()
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(f"SET app.account = '{account_id}'")
        await connection.execute(
            "INSERT INTO account VALUES ($1, 'Old', 'sandbox', 'BRL', '0', now())", account_id
        )
        await connection.execute("INSERT INTO account_counter (account_id) VALUES ($1)", account_id)
        await connection.execute(
            """
            INSERT INTO customer (account_id, customer_id, external_ref, name, email, created_at)
            SELECT $1, gen_random_uuid(), 'c-' || n, 'Ana', 'ana@example.com', now() FROM generate_series(1, $2) n
            """,
            account_id,
            customers,
        )
    finally:
        await connection.close()
    return account_id


async def counted(url: str, account_id: UUID) -> int:
    """Return the total of an account's list of customers."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(f"SET app.account = '{account_id}'")
        return await connection.fetchval(
            "SELECT c.customers FROM account_counter c WHERE c.account_id = $1", account_id
        )
    finally:
        await connection.close()


@pytest.mark.parametrize("role", ["bound by Row Level Security", "superuser"])
async def test_customers_from_before_are_counted(empty_url: str, tmp_path: Path, role: str):
    """In every account, whoever owns the tables; a file that broke off may be run from its start again. [D-15, D-16]"""
    url = empty_url.replace("//fatura@", "//postgres@") if role == "superuser" else empty_url
    await migrate(url, folder=copied(tmp_path / "old", until="0005_z"))
    accounts = {await open_account(url, customers=count): count for count in (0, 1, 5)}

    until_counting = copied(tmp_path / "new", until=COUNTING)
    assert (await migrate(url, folder=until_counting))[-1] == COUNTING.removesuffix(".sql")
    assert {each: await counted(url, each) for each in accounts} == accounts
    connection = await asyncpg.connect(url)
    await connection.execute("DELETE FROM schema_migration WHERE name || '.sql' = $1", COUNTING)
    await connection.close()
    assert await migrate(url, folder=until_counting) == [COUNTING.removesuffix(".sql")]
    assert {each: await counted(url, each) for each in accounts} == accounts


async def test_the_count_is_never_negative(database_url: str):
    """A total that was taken down too often is refused by the database. [D-16]"""
    account_id = await open_account(database_url, customers=1)
    connection = await asyncpg.connect(database_url)
    try:
        await connection.execute(f"SET app.account = '{account_id}'")
        with pytest.raises(asyncpg.CheckViolationError, match="account_counter_customers"):
            await connection.execute("UPDATE account_counter SET customers = -1")
    finally:
        await connection.close()
