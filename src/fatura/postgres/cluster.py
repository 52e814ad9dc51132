"""Create the cluster, its roles and its database. An interrupted creation leaves no cluster."""

import os
import shutil
from pathlib import Path

from fatura.postgres.address import DATABASE, OWNER, ROLE
from fatura.postgres.binaries import Binaries
from fatura.postgres.failure import EmbeddedPostgresError, failed
from fatura.postgres.folder import DataFolder

SUPERUSER = "postgres"
"""The role that creates the cluster. The engine does not connect as this role: Row Level Security does not bind it."""

_SETTINGS = """
# Settings of Fatura for a small machine. They are written once; you may change them.
fsync = on
synchronous_commit = on
full_page_writes = on
max_connections = 100
shared_buffers = 128MB
max_wal_size = 1GB
wal_compression = on
jit = off
autovacuum_naptime = 5s                 # if tables grow fast, plans for small tables are slow until an ANALYZE
max_parallel_workers_per_gather = 0
max_parallel_maintenance_workers = 0
timezone = 'UTC'
log_timezone = 'UTC'
log_checkpoints = off
log_error_verbosity = terse             # no data of customers in the log
log_min_error_statement = panic
log_parameter_max_length_on_error = 0
"""

_BOOTSTRAP = f"""
CREATE ROLE {OWNER} LOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE NOREPLICATION;
CREATE ROLE {ROLE} LOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE NOREPLICATION;
CREATE DATABASE {DATABASE} OWNER {OWNER};
REVOKE ALL ON DATABASE {DATABASE} FROM PUBLIC;
GRANT CONNECT, TEMPORARY ON DATABASE {DATABASE} TO {ROLE};
"""
_RULES = """# Fatura writes this file at each start. Only the users in pg_ident.conf may connect, over the unix socket.
local all all peer map=fatura
"""


def major_of(cluster: Path) -> int | None:
    """Return the major version of the PostgreSQL that created the cluster, or None if there is no cluster.

    An empty folder is removed, and counts as no cluster.
    Raises EmbeddedPostgresError if the folder is neither empty nor a cluster, or may not be read.
    """
    if not cluster.exists():
        return None
    try:
        return int((cluster / "PG_VERSION").read_text())
    except PermissionError as error:
        raise EmbeddedPostgresError(
            f"{cluster} belongs to another user: run Fatura as that user, or choose another data folder"
        ) from error
    except (FileNotFoundError, NotADirectoryError, ValueError) as error:
        if cluster.is_dir() and not any(cluster.iterdir()):
            cluster.rmdir()
            return None
        raise EmbeddedPostgresError(
            f"{cluster} is neither empty nor a PostgreSQL cluster: move it away or choose another data folder"
        ) from error


def create(folder: DataFolder, binaries: Binaries) -> None:
    """Create the cluster in a temporary folder, then rename it. Raises EmbeddedPostgresError if a program fails."""
    unfinished = folder.cluster.with_name("postgres.new")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(mode=0o700)
    try:
        folder.user.own(unfinished)
        _fill(folder, binaries, unfinished)
        unfinished.rename(folder.cluster)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    _sync_folder(folder.path)


def write_rules(folder: DataFolder) -> None:
    """Write which users of the operating system may connect, and as which roles. The server rejects all others."""
    names = "".join(
        f"fatura {_quoted(user)} {role}\n"
        for user in folder.user.clients
        for role in (ROLE, OWNER, SUPERUSER)
    )
    for name, text in (("pg_hba.conf", _RULES), ("pg_ident.conf", names)):
        descriptor = folder.user.open(folder.cluster / name, os.O_WRONLY | os.O_TRUNC)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _fill(folder: DataFolder, binaries: Binaries, cluster: Path) -> None:
    initdb = [
        binaries.initdb,
        "--pgdata",
        cluster,
        f"--username={SUPERUSER}",
        "--encoding=UTF8",
        "--locale=C",
        "--data-checksums",
        "--auth-local=peer",
        "--auth-host=reject",
        "--no-instructions",
    ]
    made = folder.user.run(initdb, folder=cluster)
    if made.returncode != 0:
        raise failed("creating a database in", made.stdout, where=folder.path)
    descriptor = folder.user.open(cluster / "postgresql.conf", os.O_WRONLY | os.O_APPEND)
    with os.fdopen(descriptor, "w") as file:
        file.write(_SETTINGS)
    alone = [binaries.postgres, "--single", "-D", cluster, "-c", "exit_on_error=on", "postgres"]
    prepared = folder.user.run(alone, folder=cluster, text=_BOOTSTRAP)
    if prepared.returncode != 0:
        raise failed("preparing", prepared.stdout, where=cluster)


def _sync_folder(folder: Path) -> None:
    """Write the folder's entries to disk, so that a rename in it survives a crash."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
