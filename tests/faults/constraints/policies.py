"""Test Row Level Security on every table: no statement may reach rows of another account."""

from collections.abc import AsyncGenerator, Mapping
from typing import Any
from uuid import UUID

import asyncpg

from tests.faults.constraints.catalog import POLICY, Catalog
from tests.faults.constraints.trials import Tally
from tests.support.databases import as_owner
from tests.support.populated import connected, insert_of, refused_by

REFUSED = "42501"
"""SQLSTATE of the error when a policy refuses a row."""


async def try_policies(
    url: str, catalog: Catalog, *, mine: UUID, theirs: UUID, rows: Mapping[str, str], tally: Tally
) -> None:
    """Try to reach rows of account `theirs` with different values of `app.account`, and with `app.discover` on.

    The values of `app.account` are the id of another account (`mine`), an empty text, and no value. With `app.discover`
    on, workers read some tables of all accounts to find due work. `rows` has one row of account `theirs` for each
    table, as JSON.
    """
    async with connected(as_owner(url)) as connection:
        await connection.execute(
            ";".join(f"ALTER TABLE {each} DISABLE TRIGGER USER" for each in catalog.tables)
        )
    opened = {
        "its own account set": (f"SET app.account = '{mine}'; RESET app.discover", "of_account"),
        "no account set": ("RESET app.account; RESET app.discover", "of_account"),
        "an empty account set": ("SET app.account = ''; RESET app.discover", "of_account"),
        "discovery on": ("RESET app.account; SET app.discover = 'on'", "discovered"),
    }
    names = {each.name for each in catalog.of(POLICY)}
    broken: set[str] = set()
    async with connected(url) as connection:
        for who, (settings, kind) in opened.items():
            await connection.execute(settings)
            for table in catalog.tables:
                name = f"{table}_{kind}"
                reads = kind == "discovered" and name in names
                insert = insert_of(table, ", ".join(catalog.columns[table]))
                async for what in _reachable(connection, table, theirs, insert=insert, row=rows[table]):
                    if not (reads and what == "are seen"):
                        broken.add(name)
                        tally.problems.append(f"another account's rows of {table} {what} with {who}")
                tally.violations += 5
    for policy in catalog.of(POLICY):
        if policy.name in broken:
            tally.failed.add(policy)
        elif policy.name in {f"{policy.table}_{kind}" for _, kind in opened.values()}:
            tally.enforced.add(policy)


async def _reachable(
    connection: Any, table: str, theirs: UUID, *, insert: str, row: str
) -> AsyncGenerator[str]:
    """Try to read, change, delete, add and move rows of account `theirs`. The statement `insert` adds `row`.

    For each operation that the policies let pass, yield a phrase for the report, such as `are changed`.
    """
    if await connection.fetchval(f"SELECT count(*) FROM {table} WHERE account_id = $1", theirs):  # noqa: S608 - from the catalog
        yield "are seen"
    for done, statement in (
        ("are changed", f"UPDATE {table} SET account_id = account_id WHERE account_id = $1"),  # noqa: S608 - from the catalog
        ("are deleted", f"DELETE FROM {table} WHERE account_id = $1"),  # noqa: S608 - from the catalog
    ):
        if not await _touches_none(connection, statement, theirs):
            yield done
    if await refused_by(connection, insert, row) != REFUSED:
        yield "are added"
    given = f"UPDATE {table} SET account_id = $1"  # noqa: S608 - from the catalog
    if await refused_by(connection, given, theirs) != REFUSED and not await _touches_none(
        connection, given, theirs
    ):
        yield "are moved"


async def _touches_none(connection: Any, statement: str, *values: object) -> bool:
    """Run a statement and roll it back. Return whether the statement affected no row."""
    transaction = connection.transaction()
    await transaction.start()
    try:
        return (await connection.execute(statement, *values)).endswith(" 0")
    except asyncpg.IntegrityConstraintViolationError:
        return False  # the policy let the statement reach the row; another constraint refused it
    finally:
        await transaction.rollback()
