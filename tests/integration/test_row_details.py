"""No error of the database carries the data of a row into a log line."""

from collections.abc import AsyncIterator

import asyncpg
import pytest

from fatura.observability import log
from fatura.store.db import Tx
from fatura.usecases.one_by_one import each_alone_if_one_fails
from fatura.usecases.transaction import Work, in_transaction, load_account
from tests.support.captured_logs import captured_logs
from tests.support.world import World

SECRET = "ana.lima@example.com"
UNPROTECTED = """
CREATE TABLE unprotected (
    account_id uuid NOT NULL,
    mail text NOT NULL,
    other text,
    CONSTRAINT unprotected_once UNIQUE (mail),
    CONSTRAINT unprotected_check CHECK (other <> 'refused')
)
"""
"""A table without Row Level Security. PostgreSQL's errors contain no rows of tables with Row Level Security."""


@pytest.fixture(autouse=True)
async def _unprotected(world: World) -> AsyncIterator[None]:
    await world.sql(UNPROTECTED)
    await world.sql("GRANT ALL ON unprotected TO fatura")
    yield
    await world.sql("DROP TABLE unprotected")


async def _violate_check(tx: Tx) -> None:
    await tx.execute("INSERT INTO unprotected VALUES ($1, $2, 'refused')", SECRET)


async def _violate_unique_key(tx: Tx) -> None:
    await tx.execute("INSERT INTO unprotected SELECT $1::uuid, $2::text FROM generate_series(1, 2)", SECRET)


async def _violate_not_null(tx: Tx) -> None:
    await tx.execute("INSERT INTO unprotected (account_id, other) VALUES ($1, $2)", SECRET)


async def _send_wrong_type(tx: Tx) -> None:
    await tx.execute("UPDATE product SET created_at = $2 WHERE account_id = $1", SECRET)


async def _send_wrong_uuid(tx: Tx) -> None:
    await tx.execute("UPDATE product SET product_id = $2 WHERE account_id = $1", SECRET)


async def _cast_wrong_text(tx: Tx) -> None:
    await tx.execute("SELECT $1::uuid, $2::text::integer", SECRET)


FAILURES = {
    "check": (_violate_check, asyncpg.CheckViolationError, "unprotected_check"),
    "unique": (_violate_unique_key, asyncpg.UniqueViolationError, "unprotected_once"),
    "not null": (_violate_not_null, asyncpg.NotNullViolationError, "mail"),
    "wrong type": (_send_wrong_type, asyncpg.DataError, "argument $2"),
    "wrong UUID": (_send_wrong_uuid, asyncpg.DataError, "argument $2"),
    "wrong text": (_cast_wrong_text, asyncpg.DataError, "integer"),
}


@pytest.mark.parametrize("name", FAILURES)
async def test_a_failed_statement_is_logged_without_its_row(world: World, name: str) -> None:
    """[D-219]"""
    fail, kind, shown = FAILURES[name]
    with captured_logs() as logged:
        try:
            async with world.deps.db.transaction(world.account_id) as tx:
                await fail(tx)
        except kind as error:
            log.exception("failed", error=str(error), repr=repr(error))
    line = logged.getvalue()
    assert SECRET not in line
    assert "DETAIL" not in line
    assert shown in line, "the log still names the constraint, the column or the parameter"


async def test_a_savepoint_hides_the_row_too(world: World) -> None:
    """[D-219, D-186]"""

    async def effect(work: Work) -> None:
        async def violate(work: Work, _rows: object) -> list[int]:
            await _violate_check(work.tx)
            return []

        async def put_off(_work: Work, row: int) -> None:
            log.exception("row.put_off", row=row)

        await each_alone_if_one_fails(work, [1], violate, put_off=put_off)

    with captured_logs() as logged:
        await in_transaction(world.deps, await load_account(world.deps, world.account_id), effect)
    assert "CheckViolationError" in logged.getvalue()
    assert SECRET not in logged.getvalue()


async def test_an_answer_500_is_logged_without_its_row(world: World) -> None:
    """[D-219]"""
    await world.sql("ALTER TABLE product ADD CONSTRAINT product_no_mail CHECK (name NOT LIKE '%@%')")
    try:
        with captured_logs() as logged:
            pricing = {"mode": "fixed", "monthlyPriceCents": 1}
            answer = await world.post("/v1/products", {"name": SECRET, "pricing": pricing})
    finally:
        await world.sql("ALTER TABLE product DROP CONSTRAINT product_no_mail")
    assert (answer.status, answer.type) == (500, "engine.internal")
    assert "product_no_mail" in logged.getvalue()
    assert SECRET not in logged.getvalue()
