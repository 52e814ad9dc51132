"""Fill two small disks while clients send writes: first the disk of the tables, then the disk of the WAL."""

import asyncio
import errno
import os
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

import asyncpg

from tests.faults.database.engine import open_engine
from tests.faults.database.faults import Scene
from tests.faults.database.load import loaded
from tests.faults.database.server import Server, server
from tests.faults.report import Options, Report
from tests.support.databases import as_owner
from tests.support.postgres_processes import IS_ROOT

NEEDS = "disk full needs root and permission to mount a tmpfs"
SMALL_LOG = {"min_wal_size": "32MB", "max_wal_size": "64MB"}
REFUSED = 20
"""The disk stays full until the API has refused this many requests."""
_CHUNK = bytes(1 << 16)


@dataclass(frozen=True, slots=True)
class SmallDisk:
    path: Path

    @property
    def data(self) -> Path:
        return self.path / "data"

    @contextmanager
    def full(self) -> Generator[None]:
        """Fill the disk during the block, then free the space."""
        filler = self.path / "filler"
        try:
            with filler.open("wb", buffering=0) as file:
                _write_until_full(file.fileno())
            yield
        finally:
            filler.unlink()


@contextmanager
def small_disk(path: Path, *, megabytes: int) -> Generator[SmallDisk]:
    """Mount a small tmpfs during the block. Raises subprocess.CalledProcessError if mounting is not allowed."""
    path.mkdir(mode=0o711)
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0711", "tmpfs", path]
    subprocess.run(command, check=True, capture_output=True)
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)


def may_mount(folder: Path) -> bool:
    if not IS_ROOT:
        return False
    try:
        with small_disk(folder / "probe", megabytes=1):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


async def fill_disks(options: Options, report: Report, folder: Path) -> None:
    """Fill one disk after the other while clients send writes, and add the results to the report."""
    if not may_mount(folder):
        report.left_out = NEEDS
        return
    with (
        small_disk(folder / "tables", megabytes=96) as tables,
        small_disk(folder / "log", megabytes=160) as log,
        server(folder / "small", SMALL_LOG, before=lambda data: _move_log(data, log)) as database,
    ):
        await _move_tables(database, tables)
        async with open_engine(
            database.url, folder, seed=options.seed, owner_url=as_owner(database.url)
        ) as engine:
            scene = Scene(engine, Random(options.seed))  # noqa: S311 - not for security
            async with loaded(scene, report, owner_url=database.owner_url, title="disk full", full=True):
                await _fill_tables(scene, tables)
                await scene.recovered("the tables' disk was full", since=await database.returned())
                await _fill_log(scene, database, log)
                await scene.recovered("the log's disk was full", since=await database.returned())


async def _fill_tables(scene: Scene, tables: SmallDisk) -> None:
    """Fill the tables' disk. Statements that need another page fail, and the server stays up."""
    with tables.full():
        await scene.refused(REFUSED)


async def _fill_log(scene: Scene, database: Server, log: SmallDisk) -> None:
    """Fill the WAL's disk until the server panics. Free the space, and start the server again."""
    with log.full():
        switching = asyncio.create_task(_use_up_log(database))
        await scene.refused(REFUSED)
        switching.cancel()
    await asyncio.to_thread(database.start)


async def _use_up_log(database: Server) -> None:
    """Start new WAL files until the server fails."""
    try:
        async with database.owner() as owner:
            while True:
                await owner.execute("SELECT pg_switch_wal(), pg_logical_emit_message(true, 'full', 'disk')")
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError):
        return


def _move_log(data: Path, log: SmallDisk) -> None:
    here = data / "postgres" / "pg_wal"
    subprocess.run(["mv", here, log.data], check=True)
    here.symlink_to(log.data)


async def _move_tables(database: Server, tables: SmallDisk) -> None:
    _give(tables.data, like=database.folder / "postgres")
    connection = await asyncpg.connect(database.owner_url.replace("@/fatura?", "@/postgres?"))
    await connection.execute(f"CREATE TABLESPACE small LOCATION '{tables.data}'")
    await connection.execute("ALTER DATABASE fatura SET TABLESPACE small")
    await connection.close()


def _give(folder: Path, *, like: Path) -> None:
    folder.mkdir(mode=0o700)
    subprocess.run(["chown", f"--reference={like}", folder], check=True)


def _write_until_full(descriptor: int) -> None:
    chunk = _CHUNK
    while chunk:
        try:
            os.write(descriptor, chunk)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            chunk = chunk[: len(chunk) // 2]
