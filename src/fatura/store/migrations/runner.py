"""The migration runner: forward-only plain SQL files, each applied once, in order, and recorded.

A migration expands before a later one contracts, so that versions N and N+1 of the code run side by side.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import asyncpg

from fatura.store import multi_host
from fatura.store.migrations.files import Migration, MigrationError, read

__all__ = ["MIGRATIONS", "MigrationError", "connected", "migrate", "pending", "wait_for_turn"]

MIGRATIONS = Path(__file__).parent
OLDEST_MAJOR = 15
WAIT_SECONDS = 600.0
"""How long another process's migration is waited for."""
LOCK_ATTEMPTS = 20
"""How often a migration tries to get its locks, a second each: longer, and it would hold up everybody else."""
LOCK_RETRY_SECONDS = 1.0
_POLL_SECONDS = 0.1
_SETTINGS = {
    "application_name": "fatura migrate",
    "idle_in_transaction_session_timeout": "0",
    "lock_timeout": "0",
    "statement_timeout": "0",
    "fatura.direct": "on",  # a pooler knows no such setting and refuses, rather than share our lock out
}


async def migrate(url: str, *, folder: Path = MIGRATIONS) -> list[str]:
    """Apply what is not applied yet, and return the names; another process's migration is waited for.

    Each file is a transaction. One whose first line is `-- no transaction` is run statement by statement, for
    concurrent indexes; if it breaks, it is run from its first statement again, so write `DROP INDEX CONCURRENTLY IF
    EXISTS x` before `CREATE INDEX CONCURRENTLY x`.
    A role that Row Level Security does not bind makes `fatura_app`, to step down to in every transaction.
    The URL leads to PostgreSQL itself, not to a pooler. Raises MigrationError.
    """
    migrations = read(folder)
    async with connected(url) as connection:
        await wait_for_turn(connection)
        await connection.execute(_CREATE_TABLE)
        applied = await _applied(connection)
        unknown = [name for version, (name, _) in applied.items() if version > len(migrations)]
        if unknown:
            raise MigrationError(
                f"the database is newer than this Fatura, which does not know {', '.join(unknown)}: "
                "run the Fatura that migrated it, or restore a backup made before"
            )
        waiting = _waiting(migrations, applied)
        for migration in waiting:
            await _apply(connection, migration)
        await _bind_by_row_security(connection)
    return [migration.name for migration in waiting]


async def pending(url: str, *, folder: Path = MIGRATIONS) -> list[str]:
    """Return the names of what `migrate` would apply; none for a newer database, on which this code still runs.

    Raises MigrationError when the database cannot be asked, or an applied file was changed or left out.
    """
    migrations = read(folder)
    async with connected(url) as connection:
        known = await connection.fetchval("SELECT to_regclass('schema_migration') IS NOT NULL")
        applied = await _applied(connection) if known else {}
    return [migration.name for migration in _waiting(migrations, applied)]


def _waiting(migrations: Sequence[Migration], applied: Mapping[int, tuple[str, str]]) -> list[Migration]:
    """Return what is not applied. Raises MigrationError when what is applied is not what the files say."""
    last = max(applied, default=0)
    for migration in migrations[:last]:
        if migration.version not in applied:
            raise MigrationError(
                f"{migration.name} was left out, though migration {last} is applied: "
                "restore a backup, or number the file after the last one"
            )
        if applied[migration.version] != (migration.name, migration.checksum):
            raise MigrationError(
                f"{migration.name} was changed after it was applied (as {applied[migration.version][0]}): "
                "put the file back as it was, and write the change as a new migration"
            )
    return list(migrations[last:])


@asynccontextmanager
async def connected(url: str) -> AsyncGenerator[Any]:
    """Open a connection; whatever the database refuses is told as a MigrationError."""
    try:
        connection = await multi_host.connect(url, server_settings=_SETTINGS)
        try:
            major: int = connection.get_server_version().major
            if major < OLDEST_MAJOR:
                raise MigrationError(
                    f"the database is PostgreSQL {major}: Fatura needs {OLDEST_MAJOR} or newer, upgrade it"
                )
            yield connection
        finally:
            await connection.close()
    except asyncpg.ProtocolViolationError as error:
        raise MigrationError(
            f"a pooler stands before the database ({_said(error)}): "
            "name PostgreSQL itself in FATURA_DATABASE_URL, and the pooler in FATURA_POOLER_URL"
        ) from error
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError) as error:
        raise MigrationError(
            f"the database refuses ({type(error).__name__}: {_said(error)}): "
            "mend that, or FATURA_DATABASE_URL, and run again"
        ) from error


async def wait_for_turn(connection: Any) -> None:
    """Take the lock of all migrations, which ends with the connection.

    It is asked for again and again: a statement that waited would hold a snapshot, for whose end a concurrent index
    of the process before us would wait in turn.
    """
    deadline = time.monotonic() + WAIT_SECONDS
    while not await connection.fetchval("SELECT pg_try_advisory_lock(7021764182957110127)"):
        if time.monotonic() > deadline:
            raise MigrationError(
                f"another process has been migrating for {WAIT_SECONDS:.0f} seconds: wait or end it, and run again"
            )
        await asyncio.sleep(_POLL_SECONDS)


async def _applied(connection: Any) -> dict[int, tuple[str, str]]:
    """Return the name and checksum of every applied migration by its version."""
    rows = await connection.fetch("SELECT version, name, checksum FROM schema_migration ORDER BY version")
    return {row["version"]: (row["name"], row["checksum"]) for row in rows}


async def _apply(connection: Any, migration: Migration) -> None:
    """Apply one migration and record it. Raises MigrationError."""
    if not migration.in_transaction:
        await _apply_statements(connection, migration)
        return
    for attempt in range(1, LOCK_ATTEMPTS + 1):
        try:
            async with connection.transaction():
                await connection.execute("SET LOCAL lock_timeout = '1s'")
                await connection.execute(migration.sql)
                await _record(connection, migration)
        except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError) as error:
            if attempt == LOCK_ATTEMPTS:
                raise MigrationError(
                    f"{migration.name} did not get its locks in {LOCK_ATTEMPTS} attempts: "
                    "end the long transactions that pg_stat_activity shows, and run again"
                ) from error
            await asyncio.sleep(LOCK_RETRY_SECONDS)
        except asyncpg.PostgresError as error:
            raise MigrationError(
                f"{_place(migration, migration.sql, error)}: mend it and run again"
            ) from error
        else:
            return


async def _apply_statements(connection: Any, migration: Migration) -> None:
    """Apply a migration that no transaction holds together; it is recorded when all of it is done."""
    for statement in migration.statements():
        try:
            await connection.execute(statement)
        except asyncpg.PostgresError as error:
            raise MigrationError(
                f"{_place(migration, statement, error)}: mend it and run again, it begins with its first statement"
            ) from error
    invalid = await connection.fetchval(_INVALID_INDEXES)
    if invalid:
        raise MigrationError(f"{migration.name} left indexes invalid ({invalid}): drop them and run again")
    await _record(connection, migration)


async def _record(connection: Any, migration: Migration) -> None:
    await connection.execute(
        "INSERT INTO schema_migration (version, name, checksum) VALUES ($1, $2, $3)",
        migration.version,
        migration.name,
        migration.checksum,
    )


def _place(migration: Migration, sql: str, error: asyncpg.PostgresError) -> str:
    """Tell what went wrong and, where PostgreSQL says so, in which line of the file."""
    position: str | None = getattr(error, "position", None)
    if not position:
        return f"{migration.name}: {_said(error)}"
    before = migration.sql[: migration.sql.index(sql) + int(position)]
    return f"{migration.name}, line {before.count(chr(10)) + 1}: {_said(error)}"


def _said(error: Exception) -> str:
    """Return the message without its details, which may hold customers' data."""
    return str(error).partition("\n")[0]


async def _bind_by_row_security(connection: Any) -> None:
    """Give a role that Row Level Security does not bind another one to step down to, with rights on all tables."""
    if not await connection.fetchval(_IS_UNBOUND):
        return
    try:
        with suppress(
            asyncpg.DuplicateObjectError, asyncpg.UniqueViolationError
        ):  # another database was first
            await connection.execute(_CREATE_ROLE)
        await connection.execute(_GRANT_TABLES)
        await _try_stepping_down(connection)
    except asyncpg.InsufficientPrivilegeError as error:
        raise MigrationError(
            f"Row Level Security does not bind this role, which may not make one that is bound ({_said(error)}): "
            "let an administrator run `CREATE ROLE fatura_app` and grant it to this role, or use one without BYPASSRLS"
        ) from error


async def _try_stepping_down(connection: Any) -> None:
    """Make sure that the role can be taken on and is bound. Raises MigrationError, InsufficientPrivilegeError."""
    try:
        async with connection.transaction():
            await connection.execute("SET LOCAL ROLE fatura_app")
            if not await connection.fetchval(_IS_UNBOUND):
                return
    except asyncpg.InsufficientPrivilegeError:
        await connection.execute("GRANT fatura_app TO CURRENT_USER")
        return
    raise MigrationError(
        "Row Level Security does not bind the role fatura_app: "
        "let it, by `ALTER ROLE fatura_app NOSUPERUSER NOBYPASSRLS`, and run again"
    )


_CREATE_TABLE = """
CREATE TABLE IF NOT EXISTS schema_migration (
    version integer NOT NULL,
    name text NOT NULL,
    checksum text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT schema_migration_pk PRIMARY KEY (version)
)
"""

_INVALID_INDEXES = """
SELECT string_agg(index.relname, ', ' ORDER BY index.relname)
FROM pg_index JOIN pg_class AS index ON index.oid = pg_index.indexrelid
WHERE NOT pg_index.indisvalid AND index.relnamespace = current_schema()::regnamespace
"""

_IS_UNBOUND = "SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user"

_CREATE_ROLE = """
DO $$ BEGIN
    IF to_regrole('fatura_app') IS NULL THEN
        CREATE ROLE fatura_app NOLOGIN NOSUPERUSER NOBYPASSRLS;
    END IF;
END $$
"""

_GRANT_TABLES = """
DO $$ BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO fatura_app', current_schema());
    EXECUTE format(
        'GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %I TO fatura_app', current_schema()
    );
    REVOKE INSERT, UPDATE, DELETE ON schema_migration FROM fatura_app;
END $$
"""
