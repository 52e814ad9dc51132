"""Several processes share the embedded PostgreSQL, which survives the death of any of them. [D-47]"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest

from fatura.postgres import start
from fatura.store.migrations.runner import migrate
from tests.support.databases import as_owner
from tests.support.postgres_processes import is_running, postmaster, until, using, value

pytestmark = pytest.mark.faults


def test_a_new_database_has_a_role_that_row_security_binds(data_dir: Path):
    with start(data_dir) as server:
        rights = (
            "SELECT rolsuper OR rolbypassrls OR rolcreaterole OR rolcreatedb "
            "FROM pg_roles WHERE rolname = current_user"
        )
        for url, role in ((server.url, "fatura"), (server.owner_url, "fatura_owner")):
            assert value(url, rights) is False
            assert value(url, "SELECT current_user || ' ' || current_database()") == f"{role} fatura"
        settings = {
            "server_encoding": "UTF8",
            "lc_collate": "C",
            "data_checksums": "on",
            "fsync": "on",
            "synchronous_commit": "on",
            "TimeZone": "UTC",
            "max_connections": "100",
        }
        found = value(
            server.url,
            "SELECT string_agg(name || '=' || setting, ' ') FROM pg_settings",
            server_settings={"timezone": "UTC"},
        )
        collation = value(server.url, "SELECT datcollate FROM pg_database WHERE datname = 'fatura'")
        assert collation == settings.pop("lc_collate")
        assert [f"{name}={setting}" for name, setting in settings.items()] == [
            each for name in settings for each in found.split() if each.startswith(f"{name}=")
        ]


def test_the_log_has_no_data_of_rows(data_dir: Path):
    """[D-219]"""
    with start(data_dir) as server:
        value(server.owner_url, "CREATE TABLE mail AS SELECT 'ana@example.com' AS address")
        value(server.owner_url, "CREATE UNIQUE INDEX mail_once ON mail (address)")
        for statement in ("INSERT INTO mail VALUES ($1)", "INSERT INTO mail VALUES ('ana@example.com')"):
            with pytest.raises(asyncpg.UniqueViolationError, match="mail_once"):
                asyncio.run(_execute(server.owner_url, statement))
        log = (data_dir / "postgres.log").read_text()
    assert "mail_once" in log
    assert "ana@example.com" not in log


async def _execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement, *["ana@example.com"] * statement.count("$1"))
    finally:
        await connection.close()


def test_only_the_user_of_the_server_can_enter_the_folder_of_its_socket(data_dir: Path):
    with start(data_dir) as server:
        folder = Path(parse_qs(urlsplit(server.url).query)["host"][0])
        assert folder.stat().st_mode & 0o777 == 0o700
        assert value(server.url, "SHOW listen_addresses") == ""


def test_the_engine_owns_no_table_and_other_users_are_rejected(data_dir: Path):
    """[D-238]"""
    with start(data_dir) as server:
        asyncio.run(migrate(server.owner_url, engine_role="fatura"))
        assert value(server.url, "SELECT count(*) FROM account") == 0
        for refused in (
            "ALTER TABLE invoice DISABLE TRIGGER ALL",
            "DROP TABLE invoice",
            "CREATE TABLE mine (id int)",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                value(server.url, refused)
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            value(server.url, "DELETE FROM schema_migration RETURNING 1")
        with pytest.raises(asyncpg.InvalidAuthorizationSpecificationError):
            value(server.url.replace("//fatura@", "//pg_read_all_data@"), "SELECT 1")
        if os.geteuid() == 0:
            server_user = Path(f"/proc/{postmaster(data_dir)}").stat().st_uid
            assert "Peer authentication failed" in _connect_as(server_user, server.url)


def _connect_as(uid: int, url: str) -> str:
    """Connect as another user of the operating system, and return what PostgreSQL says."""
    program = (
        "import asyncio, os, sys; import asyncpg\n"
        "os.setgroups([]); os.setuid(int(sys.argv[2]))\n"
        "try: asyncio.run(asyncpg.connect(sys.argv[1], timeout=10))\n"
        "except asyncpg.PostgresError as error: print(error)"
    )
    return subprocess.run(
        [sys.executable, "-c", program, url, str(uid)], capture_output=True, text=True, check=True
    ).stdout


def test_data_survives_a_stop(data_dir: Path):
    with start(data_dir) as server:
        value(server.owner_url, "CREATE TABLE kept AS SELECT 7 AS n")
        pid = postmaster(data_dir)
    assert not is_running(pid)
    server.stop()  # a repeated stop has no effect
    with start(data_dir) as server:
        assert value(server.owner_url, "SELECT n FROM kept") == 7


def test_processes_share_a_server_and_the_last_one_stops_it(data_dir: Path):
    with using(data_dir) as first, using(data_dir) as second:
        assert first.says() == second.says()  # both processes began to start the server at the same time
        pid = postmaster(data_dir)
        with start(data_dir) as server:
            assert value(server.url, "SELECT 1") == 1
        assert first.leave() == 0
        assert is_running(pid)
        assert second.leave() == 0
        assert not is_running(pid)


def test_sigterm_of_the_last_user_stops_the_server(data_dir: Path):
    with using(data_dir) as owner:
        assert owner.says().startswith("postgresql://")
        pid = postmaster(data_dir)
        assert owner.end(signal.SIGTERM) == 143
        assert not is_running(pid)


@pytest.mark.parametrize("after_seconds", [0.1, 0.25, 0.4])
def test_sigterm_during_the_first_start_leaves_no_server(data_dir: Path, after_seconds: float):
    with using(data_dir) as owner:
        until((data_dir / "lock.users").exists)
        time.sleep(after_seconds)
        owner.end(signal.SIGTERM)
        pid_file = data_dir / "postgres" / "postmaster.pid"
        assert not pid_file.exists()
    with start(data_dir) as server:
        assert value(server.url, "SELECT 1") == 1


def test_ctrl_c_does_not_reach_the_server(data_dir: Path):
    with using(data_dir) as owner:
        url = owner.says()
        os.killpg(owner.process.pid, signal.SIGINT)
        assert owner.says() == "interrupted"
        assert value(url, "SELECT 1") == 1
        assert owner.leave() == 0


def test_the_next_start_uses_the_server_of_a_killed_process(data_dir: Path):
    with using(data_dir) as owner:
        owner.says()
        orphan = postmaster(data_dir)
        owner.end(signal.SIGKILL)
        with start(data_dir) as server:
            assert postmaster(data_dir) == orphan
            assert value(server.url, "SELECT 1") == 1
        assert not is_running(orphan)


def test_users_of_a_killed_postmaster_reach_the_next_one(data_dir: Path):
    with using(data_dir) as user:
        url = user.says()
        value(as_owner(url), "CREATE TABLE kept AS SELECT 7 AS n")
        os.kill(postmaster(data_dir), signal.SIGKILL)
        with start(data_dir) as server:
            assert server.url == url
            assert value(as_owner(url), "SELECT n FROM kept") == 7
        assert value(as_owner(url), "SELECT n FROM kept") == 7
        assert user.leave() == 0


@pytest.fixture
def stranger() -> Generator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "3600"]) as process:
        yield process
        process.kill()


def test_a_pid_file_may_name_a_process_of_someone_else(data_dir: Path, stranger: subprocess.Popen[bytes]):
    with using(data_dir) as owner:
        owner.says()
        pid_file = data_dir / "postgres" / "postmaster.pid"
        left = pid_file.read_text().splitlines()
        os.kill(postmaster(data_dir), signal.SIGKILL)
        owner.end(signal.SIGKILL)
        pid_file.write_text("\n".join([str(stranger.pid), *left[1:], ""]))
        with start(data_dir) as server:
            assert value(server.url, "SELECT 1") == 1
        assert stranger.poll() is None


async def test_a_killed_backend_costs_a_reconnect_within_five_seconds(data_dir: Path):
    with start(data_dir) as server:
        connection = await asyncpg.connect(server.url)
        os.kill(await connection.fetchval("SELECT pg_backend_pid()"), signal.SIGKILL)
        with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
            await connection.fetchval("SELECT 1")
        deadline = time.monotonic() + 5
        while True:
            try:
                connection = await asyncpg.connect(server.url)
                break
            except (asyncpg.PostgresError, OSError):
                assert time.monotonic() < deadline
        assert await connection.fetchval("SELECT 1") == 1
        await connection.close()


@pytest.mark.faults
async def test_a_server_that_recovers_from_a_crash_can_be_stopped(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("fatura.postgres.server.QUIT_AFTER_SECONDS", 1)
    with start(data_dir) as server:
        connection = await asyncpg.connect(server.owner_url)
        await connection.execute("CREATE TABLE kept AS SELECT 7 AS n")
        os.kill(await connection.fetchval("SELECT pg_backend_pid()"), signal.SIGKILL)
        with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
            await connection.fetchval("SELECT 1")
        pid = postmaster(data_dir)
    assert not is_running(pid)
    with start(data_dir) as server:
        connection = await asyncpg.connect(server.owner_url)
        assert await connection.fetchval("SELECT n FROM kept") == 7
        await connection.close()


@pytest.mark.parametrize("name", ["d" * 120, "a space, a comma, an é and a \"quote'"])
def test_the_data_folder_may_have_any_path(tmp_path: Path, name: str):
    data_dir = tmp_path / name
    with start(data_dir) as server:
        assert value(server.url, "SELECT 1") == 1
        socket_dir = (data_dir / "socket").resolve()
        assert len(str(socket_dir)) < 90
        with start(data_dir) as again:
            assert again.url == server.url
    assert not socket_dir.exists()


def test_the_first_user_chooses_the_settings(data_dir: Path):
    with start(data_dir, settings={"fsync": "off"}) as server:
        assert value(server.url, "SHOW fsync") == "off"


def test_a_large_log_is_cut(data_dir: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("fatura.postgres.folder.LOG_LIMIT_BYTES", 4000)
    monkeypatch.setattr("fatura.postgres.folder.LOG_KEPT_BYTES", 1000)
    with start(data_dir) as server:
        log = data_dir / "postgres.log"
        for _ in range(100):
            with pytest.raises(asyncpg.UndefinedTableError):
                value(server.url, "SELECT 1 FROM missing_table")
        assert log.stat().st_size > 4000
        with start(data_dir):
            assert log.stat().st_size == 1000
        with pytest.raises(asyncpg.UndefinedTableError):
            value(server.url, "SELECT 1 FROM last_table")
        assert log.read_bytes().strip(b"\n").endswith(b'"last_table" does not exist at character 15')
