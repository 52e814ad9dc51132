"""Where a server listens and whether it answers there: a unix socket, or 127.0.0.1 where none is possible."""

import shutil
import socket
import struct
import tempfile
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from urllib.parse import quote

from fatura.postgres.folder import DataFolder

ROLE = "fatura"
DATABASE = "fatura"
LOOPBACK = "127.0.0.1"
SOCKET_PORT = 5432
ASK_TIMEOUT_SECONDS = 2.0
_SOCKET_NAME = f".s.PGSQL.{SOCKET_PORT}"
_PROTOCOL = 3 << 16
_GREETING = b"".join(word.encode() + b"\0" for word in ("user", ROLE, "database", DATABASE, ""))
_NOT_YET = b"C57P03\0"


class Answer(Enum):
    """What came back from an address."""

    READY = auto()
    NOT_YET = auto()
    NOTHING = auto()


@dataclass(frozen=True, slots=True)
class Address:
    """A host, which is the socket's folder when it begins with `/`, and a port."""

    host: str
    port: int

    @property
    def is_socket(self) -> bool:
        """Whether clients come through a unix socket."""
        return self.host.startswith("/")

    def url(self, password: str) -> str:
        """Return the URL by which asyncpg connects as our role to our database."""
        if self.is_socket:
            return f"postgresql://{ROLE}@/{DATABASE}?host={quote(self.host)}&port={self.port}"
        return f"postgresql://{ROLE}:{password}@{self.host}:{self.port}/{DATABASE}"

    def ask(self) -> Answer:
        """Begin a connection and return whether the server takes it, asks to wait, or says nothing."""
        family = socket.AF_UNIX if self.is_socket else socket.AF_INET
        where = f"{self.host}/.s.PGSQL.{self.port}" if self.is_socket else (self.host, self.port)
        with socket.socket(family, socket.SOCK_STREAM) as connection:
            connection.settimeout(ASK_TIMEOUT_SECONDS)
            try:
                connection.connect(where)
                connection.sendall(struct.pack("!ii", 8 + len(_GREETING), _PROTOCOL) + _GREETING)
                reply = connection.recv(1024)
            except OSError:
                return Answer.NOTHING
        if reply.startswith(b"E") and _NOT_YET in reply:
            return Answer.NOT_YET
        # A refusal such as "too many connections" comes from a server that runs, too.
        return Answer.READY if reply[:1] in {b"R", b"E"} else Answer.NOTHING


def choose(folder: DataFolder, *, tcp: bool) -> Address:
    """Return where a new server shall listen; only while none runs, for what the last one left is removed."""
    host = None if tcp else _socket_folder(folder)
    if host:
        return Address(str(host), SOCKET_PORT)
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return Address(LOOPBACK, probe.getsockname()[1])


def recorded(cluster: Path) -> tuple[int, Address] | None:
    """Return the server's process id and address as it wrote them into its pid file, if it got that far."""
    try:
        lines = (cluster / "postmaster.pid").read_text(errors="surrogateescape").splitlines()
        pid, _, _, port, socket_folder, listens_on = lines[:6]
        return int(pid), Address(socket_folder or listens_on, int(port))
    except (FileNotFoundError, ValueError):
        return None


def forget(folder: DataFolder) -> None:
    """Remove the socket's folder after the server has stopped."""
    if folder.socket.is_symlink():
        shutil.rmtree(folder.socket.readlink(), ignore_errors=True)
        folder.socket.unlink()
    elif folder.socket.exists():
        shutil.rmtree(folder.socket)


def _socket_folder(folder: DataFolder) -> Path | None:
    """Return a folder for the socket that only the server's user may enter.

    It lies in the data folder. Where that path is too long for a socket's name (about 107 bytes), or closed
    to the server's user, it is a folder in /tmp, and `socket` is a link to it: a server that is started again
    after a crash has the same URL, so its users find it.
    """
    if folder.user.may_enter(folder.path) and not folder.socket.is_symlink():
        folder.socket.mkdir(mode=0o700, exist_ok=True)
        folder.user.own(folder.socket)
        if _takes_socket(folder.socket):
            return folder.socket
        folder.socket.rmdir()
    if folder.socket.is_symlink():
        known = folder.socket.readlink()
        if _is_private(known, folder) and _takes_socket(known):
            return known
        folder.socket.unlink()
    for parent in dict.fromkeys((tempfile.gettempdir(), "/tmp")):  # noqa: S108 - a fresh folder, ours alone
        try:
            made = Path(tempfile.mkdtemp(prefix="fatura-", dir=parent))
        except OSError:
            continue
        folder.user.own(made)
        if _takes_socket(made):
            folder.socket.symlink_to(made)
            return made
        made.rmdir()
    return None


def _is_private(path: Path, folder: DataFolder) -> bool:
    """Return whether the folder is the server's user's own and closed to others."""
    if not path.is_dir() or path.is_symlink():
        return False
    found = path.stat()
    return found.st_uid == folder.user.uid and not found.st_mode & 0o077


def _takes_socket(path: Path) -> bool:
    """Return whether a socket can be made in the folder; an earlier server's is removed, and its lock."""
    if "," in str(path):  # a list of hosts, to clients
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
