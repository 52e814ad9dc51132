"""A pgbouncer in transaction mode in front of the test server. Needs pgbouncer to be installed."""

import os
import pwd
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from tests.support.fatura_processes import free_port, is_open
from tests.support.postgres_processes import allow_os_user, until

PROGRAM = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
SERVER_CONNECTIONS = 3
"""The size of the pool. It is small, so that several clients share each server connection."""


@contextmanager
def pgbouncer(database_url: str, folder: Path) -> Generator[str]:
    """Run pgbouncer during the block, and yield a URL that reaches the database through pgbouncer."""
    assert PROGRAM, "check PROGRAM before"
    parts = urlsplit(database_url)
    socket_folder = parse_qs(parts.query)["host"][0]
    port = free_port()
    settings = folder / "pgbouncer.ini"
    settings.write_text(
        f"""
        [databases]
        * = host={socket_folder} port={parse_qs(parts.query)["port"][0]} user={parts.username}
        [pgbouncer]
        listen_addr = 127.0.0.1
        listen_port = {port}
        unix_socket_dir =
        auth_type = any
        pool_mode = transaction
        default_pool_size = {SERVER_CONNECTIONS}
        max_client_conn = 500
        """.replace("        ", "")
    )
    command = [PROGRAM, "-q"]
    if os.geteuid() == 0:  # pgbouncer refuses to run as root, so it runs as the owner of the server's socket
        owner = Path(socket_folder).stat().st_uid
        folder.chmod(0o711)
        name = pwd.getpwuid(owner).pw_name
        allow_os_user(database_url, name)
        command += ["-u", name]
    with (folder / "pgbouncer.log").open("wb") as log:
        process = subprocess.Popen([*command, settings], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        until(lambda: is_open(port), seconds=30)
        yield f"postgresql://{parts.username}@127.0.0.1:{port}{parts.path}"
    finally:
        process.terminate()
        process.wait(30)
