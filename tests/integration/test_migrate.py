"""Processes that migrate concurrently apply each migration once, in order, completely or not at all. [D-47]"""

import asyncio
import itertools
import os
import pwd
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import asyncpg
import pytest

from fatura.postgres import Server, start
from fatura.store.migrations import runner
from fatura.store.migrations.runner import MigrationError, migrate, pending
from tests.support.populated import connected
from tests.support.postgres_processes import allow_os_user, sweep, until, value

PEOPLE = "CREATE TABLE person (id int CONSTRAINT person_pk PRIMARY KEY, name text);"
HELD = """
SELECT count(*) FROM pg_locks WHERE relation = 'person'::regclass AND mode = 'AccessExclusiveLock' AND granted
"""
DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
_numbers = itertools.count()


@contextmanager
def running(data_dir: Path, **settings: str) -> Generator[Server]:
    try:
        with start(data_dir, settings={"fsync": "off", **settings}) as server:
            yield server
    finally:
        sweep(data_dir)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[Server]:
    with running(tmp_path_factory.mktemp("migrate") / "data") as server:
        yield server


@pytest.fixture
def url(server: Server) -> str:
    name = f"migrated_{next(_numbers)}"
    value(as_user(server.url, "postgres"), f"CREATE DATABASE {name} OWNER fatura")
    return server.url.replace("/fatura?", f"/{name}?")


@pytest.fixture
def own_server(tmp_path: Path) -> Generator[Server]:
    """A server for one test, because the test changes roles, which all databases of a server share."""
    with running(tmp_path / "data") as server:
        yield server


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "migrations"
    path.mkdir()
    return path


def write(folder: Path, **files: str) -> None:
    """Write migrations. The argument `_0001_person` becomes the file 0001_person.sql."""
    for name, sql in files.items():
        (folder / f"{name.removeprefix('_')}.sql").write_text(sql)


def as_user(url: str, name: str) -> str:
    return url.replace("//fatura@", f"//{name}@")


def process(url: str, folder: Path) -> "subprocess.Popen[str]":
    program = (
        "import asyncio, sys; from pathlib import Path; from fatura.store.migrations.runner import migrate\n"
        "print(*asyncio.run(migrate(sys.argv[1], folder=Path(sys.argv[2]))))"
    )
    return subprocess.Popen([sys.executable, "-c", program, url, folder], stdout=subprocess.PIPE, text=True)


async def refusal(url: str, folder: Path) -> str:
    with pytest.raises(MigrationError) as caught:
        await migrate(url, folder=folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_engines_own_migrations_are_applied_once(url: str):
    names = asyncio.run(pending(url))
    assert names[0].startswith("0001_")
    assert asyncio.run(migrate(url)) == names
    assert asyncio.run(migrate(url)) == []
    assert asyncio.run(pending(url)) == []
    assert value(url, "SELECT array_agg(name ORDER BY version) FROM schema_migration") == names


async def test_a_new_file_is_applied_after_the_old_ones(url: str, folder: Path):
    write(folder, _0001_person=PEOPLE)
    assert await migrate(url, folder=folder) == ["0001_person"]
    write(folder, _0002_age="ALTER TABLE person ADD COLUMN age int;")
    assert await pending(url, folder=folder) == ["0002_age"]
    assert await migrate(url, folder=folder) == ["0002_age"]


async def test_a_broken_file_leaves_nothing_and_names_its_line(url: str, folder: Path):
    write(
        folder, _0001_person=PEOPLE, _0002_bad="CREATE TABLE half (id int);\nALTER TABLE missing ADD x int;"
    )
    assert (
        await refusal(url, folder) == '0002_bad: relation "missing" does not exist: correct it and run again'
    )
    write(folder, _0002_bad="CREATE TABLE half (id int);\n\nALTER TABLE person ADD x it;")
    assert '0002_bad, line 3: type "it" does not exist' in await refusal(url, folder)
    write(folder, _0002_bad="CREATE TABLE half (id int);")
    assert await migrate(url, folder=folder) == ["0002_bad"]


@pytest.mark.parametrize(
    ("broken", "error"),
    [
        ({"_0001_person": PEOPLE + " "}, "0001_person was changed after it was applied (as 0001_person)"),
        (
            {"_0001_people": PEOPLE, "_0001_person": ""},
            "0001_people was changed after it was applied (as 0001_person)",
        ),
        ({"_0002_age": ""}, "the database is newer than this Fatura, which does not know 0002_age"),
        ({"_0004_more": "SELECT 1;"}, "0004_more.sql has the wrong name: name it 0003_<what_it_does>.sql"),
        ({"_0003-more": "SELECT 1;"}, "0003-more.sql has the wrong name"),
        ({"_0001_person": "", "_0002_age": ""}, "holds no migrations"),
    ],
)
async def test_files_that_differ_from_the_database_are_refused(
    url: str, folder: Path, broken: dict[str, str], error: str
):
    write(folder, _0001_person=PEOPLE, _0002_age="ALTER TABLE person ADD COLUMN age int;")
    await migrate(url, folder=folder)
    write(folder, **broken)
    for name in (name for name, sql in broken.items() if not sql):
        (folder / f"{name.removeprefix('_')}.sql").unlink()
    assert error in await refusal(url, folder)


async def test_a_missing_earlier_migration_is_reported(url: str, folder: Path):
    write(folder, _0001_person=PEOPLE, _0002_age="ALTER TABLE person ADD COLUMN age int;")
    await migrate(url, folder=folder)
    await asyncio.to_thread(value, url, "DELETE FROM schema_migration WHERE version = 1")
    assert "0001_person was left out, though migration 2 is applied" in await refusal(url, folder)


async def test_a_newer_database_has_nothing_pending(url: str, folder: Path):
    write(folder, _0001_person=PEOPLE, _0002_age="ALTER TABLE person ADD COLUMN age int;")
    await migrate(url, folder=folder)
    (folder / "0002_age.sql").unlink()
    assert await pending(url, folder=folder) == []


async def test_line_ends_do_not_change_a_file(url: str, folder: Path):
    write(folder, _0001_person=PEOPLE + "\n")
    await migrate(url, folder=folder)
    (folder / "0001_person.sql").write_bytes(PEOPLE.encode() + b"\r\n")
    assert await pending(url, folder=folder) == []


def test_a_second_process_waits_for_the_first(url: str, folder: Path):
    index = "CREATE INDEX person_name ON person (name);"
    write(folder, _0001_person=f"{PEOPLE} SELECT pg_sleep(0.5);", _0002_index=index)
    with process(url, folder) as first, process(url, folder) as second:
        assert sorted(each.communicate(timeout=30)[0] for each in (first, second)) == [
            "\n",
            "0001_person 0002_index\n",
        ]
        assert (first.returncode, second.returncode) == (0, 0)


def test_the_next_process_repeats_a_killed_migration(url: str, folder: Path):
    write(folder, _0001_person=f"{PEOPLE} SELECT pg_sleep(1);")
    busy = (
        "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(1)%' AND pid <> pg_backend_pid()"
    )
    with process(url, folder) as killed:
        until(lambda: value(url, busy) == 1)
        killed.kill()
    assert asyncio.run(migrate(url, folder=folder)) == ["0001_person"]


async def test_a_migration_retries_short_waits_for_a_table_in_use(
    url: str, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    write(folder, _0001_person=PEOPLE)
    await migrate(url, folder=folder)
    write(folder, _0002_age="ALTER TABLE person ADD COLUMN age int;")
    async with connected(url) as user, user.transaction():
        await user.execute("SELECT 1 FROM person")
        monkeypatch.setattr(runner, "LOCK_ATTEMPTS", 1)
        began = time.monotonic()
        assert "0002_age did not get its locks in 1 attempts" in await refusal(url, folder)
        assert time.monotonic() - began < 3
        monkeypatch.setattr(runner, "LOCK_ATTEMPTS", 20)
        monkeypatch.setattr(runner, "LOCK_RETRY_SECONDS", 0.1)
        waiting = asyncio.create_task(migrate(url, folder=folder))
        await asyncio.sleep(1.5)
    assert await waiting == ["0002_age"]


@pytest.mark.faults
async def test_a_migration_is_retried_after_a_deadlock(tmp_path: Path, folder: Path) -> None:
    """[D-47]"""
    with running(tmp_path / "data", deadlock_timeout="100ms") as server:
        write(folder, _0001_tables=f"{PEOPLE} CREATE TABLE place (id int);")
        await migrate(server.owner_url, folder=folder)
        steps = "ALTER TABLE person ADD COLUMN a int; SELECT pg_sleep(1); ALTER TABLE place ADD COLUMN a int;"
        write(folder, _0002_steps=steps)
        async with connected(as_user(server.url, "postgres")) as user:
            await user.execute("SET deadlock_timeout = '1h'")
            async with user.transaction():
                await user.execute("SELECT 1 FROM place")
                migrating = asyncio.create_task(migrate(server.owner_url, folder=folder))
                await asyncio.to_thread(until, lambda: value(server.url, HELD) == 1)
                await user.execute("SELECT 1 FROM person")
        assert await migrating == ["0002_steps"]
        await asyncio.to_thread(until, lambda: value(server.url, DEADLOCKS) == 1)


async def test_a_superuser_gets_a_role_that_row_security_binds(own_server: Server, folder: Path):
    url = as_user(own_server.url, "postgres")
    secret = (
        "CREATE TABLE {0} (id int); ALTER TABLE {0} ENABLE ROW LEVEL SECURITY; INSERT INTO {0} VALUES (1);"
    )
    both = "SELECT (SELECT count(*) FROM old) + (SELECT count(*) FROM new)"
    write(folder, _0001_old=secret.format("old"))
    await migrate(url, folder=folder)
    write(folder, _0002_new=secret.format("new"))
    await migrate(url, folder=folder)
    async with connected(url) as connection:
        assert await connection.fetchval(both) == 2
        await connection.execute("SET ROLE fatura_app")
        assert await connection.fetchval(both) == 0
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute("DELETE FROM schema_migration")
        await connection.execute("RESET ROLE; ALTER ROLE fatura_app BYPASSRLS")
    assert "ALTER ROLE fatura_app NOSUPERUSER NOBYPASSRLS" in await refusal(url, folder)


@pytest.mark.parametrize("may_make_roles", [True, False])
async def test_a_role_that_bypasses_row_security_gets_another_one(
    own_server: Server, folder: Path, *, may_make_roles: bool
):
    write(folder, _0001_person=PEOPLE)
    url = as_user(own_server.url, "cloud")
    async with connected(as_user(own_server.url, "postgres")) as admin:
        await admin.execute(f"CREATE ROLE cloud LOGIN BYPASSRLS {'CREATEROLE' if may_make_roles else ''}")
        await admin.execute("GRANT ALL ON SCHEMA public TO cloud; GRANT CONNECT ON DATABASE fatura TO cloud")
        allow_os_user(own_server.url, pwd.getpwuid(os.geteuid()).pw_name, role="cloud")
        if not may_make_roles:
            assert "let an administrator run `CREATE ROLE fatura_app`" in await refusal(url, folder)
            await admin.execute("CREATE ROLE fatura_app; GRANT fatura_app TO cloud")
    await migrate(url, folder=folder)
    await migrate(url, folder=folder)
    async with connected(url) as connection:
        await connection.execute("SET ROLE fatura_app")
        assert await connection.fetchval("SELECT count(*) FROM person") == 0


async def test_an_ordinary_role_creates_no_other_role(own_server: Server, folder: Path):
    write(folder, _0001_person=PEOPLE)
    await migrate(own_server.owner_url, folder=folder)
    known = await asyncio.to_thread(value, own_server.owner_url, "SELECT to_regrole('fatura_app') IS NULL")
    assert known is True


async def test_a_role_that_owns_no_tables_is_refused(own_server: Server, folder: Path):
    """[D-238]"""
    write(folder, _0001_person=PEOPLE)
    assert "FATURA_OWNER_URL" in await refusal(own_server.url, folder)
    await migrate(own_server.owner_url, folder=folder)
    write(folder, _0002_more="ALTER TABLE person ADD COLUMN age int;")
    assert "FATURA_OWNER_URL" in await refusal(own_server.url, folder)


async def test_a_missing_database_is_reported(folder: Path, tmp_path: Path):
    write(folder, _0001_person=PEOPLE)
    error = await refusal(f"postgresql://fatura@/fatura?host={tmp_path}", folder)
    assert "cannot be used (the socket file does not exist; start the server" in error
    assert "FATURA_DATABASE_URL" in error
