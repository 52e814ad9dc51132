"""The unix socket of an embedded server: its folder, and whether a server answers on it."""

import shutil
import socket
import struct
import tempfile
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from urllib.parse import quote

from fatura.postgres.failure import EmbeddedPostgresError
from fatura.postgres.folder import DataFolder

ROLE = "fatura"
"""The role of the engine. It may read and write rows, but owns no table."""
OWNER = "fatura_owner"
"""The role that owns the tables, and migrates them."""
DATABASE = "fatura"
SOCKET_PORT = 5432
ASK_TIMEOUT_SECONDS = 2.0
_SOCKET_NAME = f".s.PGSQL.{SOCKET_PORT}"
_PROTOCOL = 3 << 16
_GREETING = b"".join(word.encode() + b"\0" for word in ("user", ROLE, "database", DATABASE, ""))
_NOT_YET = b"C57P03\0"


class Answer(Enum):
    """How a server responds when `Address.ask` begins a connection."""

    READY = auto()
    NOT_YET = auto()
    NOTHING = auto()


@dataclass(frozen=True, slots=True)
class Address:
    """The folder of a unix socket, and the port in the socket's name."""

    folder: str
    port: int

    def url(self, role: str) -> str:
        return f"postgresql://{role}@/{DATABASE}?host={quote(self.folder)}&port={self.port}"

    def ask(self) -> Answer:
        """Begin a connection and return whether the server is running, is starting, or does not answer."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(ASK_TIMEOUT_SECONDS)
            try:
                connection.connect(f"{self.folder}/.s.PGSQL.{self.port}")
                connection.sendall(struct.pack("!ii", 8 + len(_GREETING), _PROTOCOL) + _GREETING)
                reply = connection.recv(1024)
            except OSError:
                return Answer.NOTHING
        if reply.startswith(b"E") and _NOT_YET in reply:
            return Answer.NOT_YET
        # A server that refuses the connection for another reason, such as too many connections, is running.
        return Answer.READY if reply[:1] in {b"R", b"E"} else Answer.NOTHING


def recorded(cluster: Path) -> tuple[int, Address] | None:
    """Return the process id and the address in a server's pid file, or None if the file is missing or incomplete."""
    try:
        lines = (cluster / "postmaster.pid").read_text(errors="surrogateescape").splitlines()
        pid, _, _, port, socket_folder, _ = lines[:6]
        return int(pid), Address(socket_folder, int(port))
    except (FileNotFoundError, ValueError):
        return None


def forget(folder: DataFolder) -> None:
    """Remove the folder of the socket after the server has stopped."""
    if folder.socket.is_symlink():
        shutil.rmtree(folder.socket.readlink(), ignore_errors=True)
        folder.socket.unlink()
    elif folder.socket.exists():
        shutil.rmtree(folder.socket)


def choose(folder: DataFolder) -> Path:
    """Return a folder for the socket of a new server. Only the user that runs the server may enter the folder.

    Call this only while no server runs, because it removes an earlier server's socket. Raises EmbeddedPostgresError.

    Return a temporary folder in two cases: the data folder cannot hold a socket (for example because its path is longer
    than about 107 bytes), or the server runs as another user than this process. `socket` in the data folder then
    becomes a link to the temporary folder. The next call finds this link and returns the same folder, so a restarted
    server has the same URL.
    """
    if not folder.user.switched and not folder.socket.is_symlink():
        folder.socket.mkdir(mode=0o700, exist_ok=True)
        if _takes_socket(folder.socket):
            return folder.socket
        folder.socket.rmdir()
    if folder.socket.is_symlink():
        known = folder.socket.readlink()
        if _is_private(known, folder) and _takes_socket(known):
            return known
        folder.socket.unlink()
    for parent in dict.fromkeys((tempfile.gettempdir(), "/tmp")):  # noqa: S108 - a new folder for one user
        try:
            made = Path(tempfile.mkdtemp(prefix="fatura-", dir=parent))
        except OSError:
            continue
        folder.user.own(made)
        if _takes_socket(made):
            folder.socket.symlink_to(made)
            return made
        made.rmdir()
    raise EmbeddedPostgresError(f"no unix socket can be created in {folder.path} or /tmp")


def _is_private(path: Path, folder: DataFolder) -> bool:
    """Return True if the folder belongs to the server's user and if no other user may enter it."""
    if not path.is_dir() or path.is_symlink():
        return False
    found = path.stat()
    return found.st_uid == folder.user.uid and not found.st_mode & 0o077


def _takes_socket(path: Path) -> bool:
    """Return whether a socket can be created in the folder. Removes an earlier server's socket and lock file."""
    if "," in str(path):  # clients would read a path with a comma as a list of hosts
        return False
    name = path / _SOCKET_NAME
    try:
        name.unlink(missing_ok=True)
        name.with_name(f"{_SOCKET_NAME}.lock").unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as probe:
            probe.bind(str(name))
    except OSError:
        return False
    finally:
        name.unlink(missing_ok=True)
    return True
