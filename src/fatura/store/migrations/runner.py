"""The migration runner: forward-only plain SQL files, each applied once, in order, and recorded."""

import asyncio
import hashlib
import re
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg

from fatura.failure_text import OwnTextError, reason_of
from fatura.store import multi_host

MIGRATIONS = Path(__file__).parent
OLDEST_MAJOR = 15
LOCK_SECONDS = 600
"""Maximum wait for the migration of another process."""
LOCK_ATTEMPTS = 20
"""Maximum number of attempts to lock the tables.

Each attempt waits only a second, because other transactions queue behind an attempt that waits.
"""
LOCK_RETRY_SECONDS = 1.0
_FILE_NAME = re.compile(r"(\d{4})_[a-z0-9_]+\.sql")
_SETTINGS = {
    "application_name": "fatura migrate",
    "idle_in_transaction_session_timeout": "0",
    "lock_timeout": f"{LOCK_SECONDS}s",
    "statement_timeout": "0",
    # This setting makes a pooler refuse the connection. Behind a pooler, other clients could share the advisory lock.
    "fatura.direct": "on",
}


class MigrationError(OwnTextError):
    """The database could not be migrated; the message names the next step."""


@dataclass(frozen=True, slots=True)
class Migration:
    """One file: its number, its name without the ending, and its SQL."""

    version: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        """SHA-256 of the SQL. It is the same for Windows and Unix line endings, because `read` converts them."""
        return hashlib.sha256(self.sql.encode()).hexdigest()


def read(folder: Path) -> list[Migration]:
    """Return the migrations of a folder in order. Raises MigrationError unless they are numbered 0001, 0002, ..."""
    migrations: list[Migration] = []
    for number, path in enumerate(sorted(folder.glob("*.sql")), start=1):
        named = _FILE_NAME.fullmatch(path.name)
        if not named or int(named[1]) != number:
            raise MigrationError(f"{path} has the wrong name: name it {number:04}_<what_it_does>.sql")
        migrations.append(Migration(number, path.stem, path.read_text("utf-8")))
    if not migrations:
        raise MigrationError(f"{folder} holds no migrations: install Fatura again")
    return migrations


async def migrate(url: str, *, folder: Path = MIGRATIONS, engine_role: str | None = None) -> list[str]:
    """Apply the pending migrations, each in a transaction, and return their names.

    If another process is migrating, first wait for it. After the migrations, give `engine_role` the rights that the
    engine needs on the tables. If `engine_role` is None, the engine uses the role of the URL. If that role bypasses Row
    Level Security, create the role `fatura_app`, which every transaction of the engine then takes.

    The URL must lead to PostgreSQL itself, not to a pooler. Raises MigrationError.
    """
    migrations = read(folder)
    async with connected(url) as connection:
        await lock_migrations(connection)
        # Check first: a role that may not create tables can then still find that no migration is pending.
        if await connection.fetchval("SELECT to_regclass('schema_migration') IS NULL"):
            await connection.execute(_CREATE_TABLE)
        applied = await _applied(connection)
        unknown = [name for version, (name, _) in applied.items() if version > len(migrations)]
        if unknown:
            raise MigrationError(
                f"the database is newer than this Fatura, which does not know {', '.join(unknown)}: "
                "run the Fatura that migrated it, or restore a backup made before"
            )
        unapplied = _pending(migrations, applied)
        for migration in unapplied:
            await _apply(connection, migration)
        if engine_role is None:
            await _bind_by_row_security(connection)
        else:
            await _grant(connection, engine_role)
    return [migration.name for migration in unapplied]


async def pending(url: str, *, folder: Path = MIGRATIONS) -> list[str]:
    """Return the names of the pending migrations. If a newer Fatura migrated the database, none is pending.

    Raises MigrationError if the database is unavailable, or an applied file was changed or is missing.
    """
    migrations = read(folder)
    async with connected(url) as connection:
        known = await connection.fetchval("SELECT to_regclass('schema_migration') IS NOT NULL")
        applied = await _applied(connection) if known else {}
    return [migration.name for migration in _pending(migrations, applied)]


def _pending(migrations: Sequence[Migration], applied: Mapping[int, tuple[str, str]]) -> list[Migration]:
    """Return the migrations that are not applied.

    Raises MigrationError if an applied migration differs from its file, or if a file with a lower number than the last
    applied migration was not applied.
    """
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
    """Yield a connection. Raises MigrationError for any error of the database, also for errors in the block."""
    with _translated_errors():
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


@asynccontextmanager
async def alone(url: str) -> AsyncGenerator[None]:
    """Until the block ends, keep other processes from migrating, and from entering a block of `alone`.

    Errors of the block are raised unchanged. Raises MigrationError if the lock cannot be taken.
    """
    with _translated_errors():
        connection = await multi_host.connect(url, server_settings=_SETTINGS)
    try:
        with _translated_errors():
            await lock_migrations(connection)
        yield
    finally:
        await connection.close()


@contextmanager
def _translated_errors() -> Generator[None]:
    """Raise MigrationError instead of the errors of the database."""
    try:
        yield
    except asyncpg.ProtocolViolationError as error:
        raise MigrationError(
            f"the URL leads to a pooler ({_summary(error)}): "
            "name PostgreSQL itself in FATURA_DATABASE_URL, and the pooler in FATURA_POOLER_URL"
        ) from error
    except asyncpg.InsufficientPrivilegeError as error:
        raise MigrationError(
            f"the role may not do this ({_summary(error)}): migrate as the role that owns the tables, and name it in "
            "FATURA_OWNER_URL"
        ) from error
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError) as error:
        raise MigrationError(
            f"the database cannot be used ({_first_line(reason_of(error))}): "
            "correct that, or FATURA_DATABASE_URL, and run again"
        ) from error


async def lock_migrations(connection: Any) -> None:
    """Keep other processes from migrating until this connection is closed. Raises MigrationError after LOCK_SECONDS."""
    try:
        await connection.execute("SELECT pg_advisory_lock(7021764182957110127)")
    except asyncpg.LockNotAvailableError as error:
        raise MigrationError(
            f"another process has been migrating for {LOCK_SECONDS} seconds: wait or end it, and run again"
        ) from error


async def _applied(connection: Any) -> dict[int, tuple[str, str]]:
    """Return a mapping from the version of each applied migration to its name and checksum."""
    rows = await connection.fetch("SELECT version, name, checksum FROM schema_migration ORDER BY version")
    return {row["version"]: (row["name"], row["checksum"]) for row in rows}


async def _apply(connection: Any, migration: Migration) -> None:
    """Apply one migration and record it. Raises MigrationError."""
    for attempt in range(1, LOCK_ATTEMPTS + 1):
        try:
            async with connection.transaction():
                await connection.execute("SET LOCAL lock_timeout = '1s'")
                await connection.execute(migration.sql)
                await connection.execute(_RECORD, migration.version, migration.name, migration.checksum)
        except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError) as error:
            if attempt == LOCK_ATTEMPTS:
                raise MigrationError(
                    f"{migration.name} did not get its locks in {LOCK_ATTEMPTS} attempts: "
                    "end the long transactions that pg_stat_activity shows, and run again"
                ) from error
            await asyncio.sleep(LOCK_RETRY_SECONDS)
        except asyncpg.InsufficientPrivilegeError:
            raise  # `_translated_errors` says which role may migrate
        except asyncpg.PostgresError as error:
            raise MigrationError(f"{_located(migration, error)}: correct it and run again") from error
        else:
            return


def _located(migration: Migration, error: asyncpg.PostgresError) -> str:
    """Return the error with the name of the file and, if PostgreSQL reports it, the line."""
    position: str | None = getattr(error, "position", None)
    if not position:
        return f"{migration.name}: {_summary(error)}"
    line = migration.sql[: int(position)].count("\n") + 1
    return f"{migration.name}, line {line}: {_summary(error)}"


def _summary(error: Exception) -> str:
    """Return the first line of the message. The other lines may contain customers' data."""
    return _first_line(str(error))


def _first_line(text: str) -> str:
    return text.partition("\n")[0]


async def _grant(connection: Any, role: str) -> None:
    """Let a role read and write the rows of all tables, but not alter the tables. Raises MigrationError."""
    is_unbound = await connection.fetchval(_IS_ROLE_UNBOUND, role)
    if is_unbound is None:
        raise MigrationError(
            f"the role {role} of FATURA_DATABASE_URL does not exist: create it with "
            "`CREATE ROLE ... LOGIN NOSUPERUSER NOBYPASSRLS`"
        )
    if is_unbound:
        raise MigrationError(
            f"Row Level Security does not bind the role {role} of FATURA_DATABASE_URL: "
            "run `ALTER ROLE ... NOSUPERUSER NOBYPASSRLS`, and run again"
        )
    await _grant_tables(connection, role)


async def _grant_tables(connection: Any, role: str) -> None:
    for (statement,) in await connection.fetch(_GRANTS, role):
        await connection.execute(statement)


async def _bind_by_row_security(connection: Any) -> None:
    """Create `fatura_app` with rights on all tables if the connection's role bypasses Row Level Security."""
    if not await connection.fetchval(_IS_UNBOUND):
        return
    try:
        # All databases of a server share the roles, so another migration may create the role at the same moment.
        with suppress(asyncpg.DuplicateObjectError, asyncpg.UniqueViolationError):
            await connection.execute(_CREATE_ROLE)
        await _grant_tables(connection, "fatura_app")
        await _try_role(connection)
    except asyncpg.InsufficientPrivilegeError as error:
        raise MigrationError(
            f"Row Level Security does not bind this role, which may not create or use fatura_app ({_summary(error)}): "
            "let an administrator run `CREATE ROLE fatura_app` and grant it to this role, or use one without BYPASSRLS"
        ) from error


async def _try_role(connection: Any) -> None:
    """Check that the connection can take the role `fatura_app`. If not, grant `fatura_app` to the connection's role.

    Raises MigrationError if `fatura_app` bypasses Row Level Security. Raises InsufficientPrivilegeError if the grant
    is refused.
    """
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
        "run `ALTER ROLE fatura_app NOSUPERUSER NOBYPASSRLS`, and run again"
    )


_CREATE_TABLE = """
CREATE TABLE schema_migration (
    version integer NOT NULL,
    name text NOT NULL,
    checksum text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT schema_migration_pk PRIMARY KEY (version)
)
"""

_RECORD = "INSERT INTO schema_migration (version, name, checksum) VALUES ($1, $2, $3)"

_IS_UNBOUND = "SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user"

_IS_ROLE_UNBOUND = "SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = $1"

_GRANTS = """
SELECT format(statement, current_schema(), $1::text) FROM unnest(ARRAY[
    'GRANT USAGE ON SCHEMA %1$I TO %2$I',
    'GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %1$I TO %2$I',
    'REVOKE INSERT, UPDATE, DELETE ON schema_migration FROM %2$I'
]) AS statement
"""

_CREATE_ROLE = """
DO $$ BEGIN
    IF to_regrole('fatura_app') IS NULL THEN
        CREATE ROLE fatura_app NOLOGIN NOSUPERUSER NOBYPASSRLS;
    END IF;
END $$
"""
