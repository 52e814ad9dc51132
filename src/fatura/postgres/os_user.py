"""The operating system's user that PostgreSQL runs as: this process's user or, if that is root, another one."""

import errno
import os
import pwd
import signal
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from fatura.postgres.failure import EmbeddedPostgresError

_DESCRIPTORS = Path("/proc/self/fd")
_ANYWHERE = Path("/")
_UNPRIVILEGED = ("postgres", "nobody")
_ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH")
_MAY_NOT_SWITCH = {errno.EPERM, errno.EINVAL}


@dataclass(frozen=True, slots=True)
class OsUser:
    """The user of the operating system that PostgreSQL runs as.

    `switched` is true if this process runs as root. PostgreSQL refuses to run as root, so it runs as another user. This
    user may be unable to enter the folders above the cluster. So PostgreSQL inherits a descriptor of the cluster's
    folder, and uses the path `/proc/self/fd/<number>`.

    `clients` are the names of the users that may connect to the server.
    """

    uid: int
    gid: int
    name: str
    switched: bool
    clients: tuple[str, ...]

    def run(
        self,
        command: Sequence[str | Path],
        *,
        folder: Path = _ANYWHERE,
        text: str = "",
        output: int = subprocess.PIPE,
        kept_open: Sequence[int] = (),
    ) -> "subprocess.CompletedProcess[str]":
        """Run a program to its end, in its own session, so that Ctrl-C does not reach it.

        An argument that equals `folder` is replaced by a path through which this user can open that folder.
        Raises OSError if the program cannot be run, and EmbeddedPostgresError if root may not become this user.
        """
        with ExitStack() as stack:
            inherited, reached = list(kept_open), folder
            if self.switched and folder != _ANYWHERE:
                descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
                stack.callback(os.close, descriptor)
                inherited.append(descriptor)
                reached = _DESCRIPTORS / str(descriptor)
            try:
                return subprocess.run(  # noqa: S603 - our own commands, without a shell
                    [reached if part == folder else part for part in command],
                    check=False,
                    cwd=_ANYWHERE,
                    env={
                        **{name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
                        "LC_ALL": "C",
                        "TZ": "UTC",
                    },
                    input=text,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    text=True,
                    errors="replace",
                    pass_fds=inherited,
                    start_new_session=True,
                    user=self.uid if self.switched else None,
                    group=self.gid if self.switched else None,
                    extra_groups=() if self.switched else None,
                )
            except OSError as error:
                if self.switched and error.errno in _MAY_NOT_SWITCH:
                    raise _refused(f"root may not become {self.name} here") from error
                raise

    def may_run(self, command: Sequence[str | Path]) -> bool:
        try:
            return self.run(command).returncode == 0
        except OSError:
            return False

    def send(self, number: signal.Signals, *, pid: int) -> None:
        """Send a signal as this user, not as root: a stale pid file may name a process that belongs to someone else."""
        self.run(["/bin/sh", "-c", 'kill -"$1" "$2"', "sh", str(int(number)), str(pid)])

    def own(self, path: Path) -> None:
        """Make this user the owner of a folder that was just created."""
        if self.switched:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)

    def open(self, path: Path, flags: int) -> int:
        """Open or create a file, and make this user its owner. Links are not followed."""
        descriptor = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        if self.switched:
            os.fchown(descriptor, self.uid, self.gid)
        return descriptor


def choose(cluster: Path, data_dir: Path) -> OsUser:
    """Return the user that PostgreSQL runs as: the user of this process, unless that is root.

    For root, return the owner of the cluster. If there is no cluster or root owns it, return the owner of the data
    folder. If root also owns the data folder, return `postgres` or, if there is no such user, `nobody`.
    Raises EmbeddedPostgresError if this user does not exist, or if a root process has no `/proc/self/fd`.
    """
    if os.geteuid() != 0:
        entry = _entry(os.geteuid())
        return OsUser(
            entry.pw_uid, os.getegid(), entry.pw_name, switched=False, clients=(entry.pw_name, "root")
        )
    if not _DESCRIPTORS.is_dir():
        raise _refused("Fatura can start it as another user only on Linux")
    owners = [folder.stat().st_uid for folder in (cluster, data_dir) if folder.exists()]
    owner = next((uid for uid in owners if uid != 0), None)
    users = _UNPRIVILEGED if owner is None else (owner,)
    for user in users:
        with suppress(KeyError):
            entry = pwd.getpwuid(user) if isinstance(user, int) else pwd.getpwnam(user)
            # a user that does not own the data folder may also run other programs, and these must not connect
            is_theirs = data_dir.exists() and data_dir.stat().st_uid == entry.pw_uid
            clients = (entry.pw_name, "root") if is_theirs else ("root",)
            return OsUser(entry.pw_uid, entry.pw_gid, entry.pw_name, switched=True, clients=clients)
    raise _refused(f"there is no user {' or '.join(map(str, users))}")


def _entry(uid: int) -> pwd.struct_passwd:
    try:
        return pwd.getpwuid(uid)
    except KeyError:
        raise EmbeddedPostgresError(
            f"PostgreSQL needs a named user, but user {uid} has no name here: add one to /etc/passwd, or name a "
            "database in FATURA_DATABASE_URL"
        ) from None


def _refused(reason: str) -> EmbeddedPostgresError:
    return EmbeddedPostgresError(
        f"PostgreSQL refuses to run as root, and {reason}: "
        "start Fatura as an ordinary user, or name a database in FATURA_DATABASE_URL"
    )
