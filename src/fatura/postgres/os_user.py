"""The operating system's user whom PostgreSQL runs as: ourselves, or somebody unprivileged for root."""

import errno
import os
import pwd
import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fatura.postgres.failure import EmbeddedPostgresError

_DESCRIPTORS = Path("/proc/self/fd")
_ANYWHERE = Path("/")
_UNPRIVILEGED = ("postgres", "_postgres", "nobody", "daemon")
_ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH")
_MAY_NOT_SWITCH = {errno.EPERM, errno.EINVAL}


@dataclass(frozen=True, slots=True)
class OsUser:
    """A user of the operating system; `switched` when it is not the one this process runs as.

    PostgreSQL refuses to run as root. Under root it runs as the owner of the cluster, else of the data
    folder, else as `postgres` or `nobody`: no user is added, and no folder above the data folder is touched.
    Where that user may not enter those folders (root's home is closed to it), its programs inherit the
    cluster's folder as an open descriptor and call it `/proc/self/fd/<number>`, to which nobody need walk.
    """

    uid: int
    gid: int
    name: str
    switched: bool

    def run(
        self,
        command: Sequence[str | Path],
        *,
        folder: Path = _ANYWHERE,
        text: str = "",
        output: int = subprocess.PIPE,
        kept_open: Sequence[int] = (),
    ) -> "subprocess.CompletedProcess[str]":
        """Run a program to its end, in a session of its own, so that no Ctrl-C reaches it.

        An argument that is `folder` is replaced by a name under which this user reaches it.
        Raises OSError when the program cannot be run, EmbeddedPostgresError when this user cannot be it.
        """
        with self._reach(folder) as (reached, opened):
            try:
                return subprocess.run(  # noqa: S603 - our own commands, no shell's line
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
                    pass_fds=[*kept_open, *opened],
                    start_new_session=True,
                    user=self.uid if self.switched else None,
                    group=self.gid if self.switched else None,
                    extra_groups=() if self.switched else None,
                )
            except OSError as error:
                if self.switched and error.errno in _MAY_NOT_SWITCH:
                    raise EmbeddedPostgresError(
                        f"PostgreSQL refuses to run as root, and here root may not become {self.name}: "
                        "start Fatura as an ordinary user, or name a database in FATURA_DATABASE_URL"
                    ) from error
                raise

    def may_run(self, command: Sequence[str | Path]) -> bool:
        """Return whether the program can be reached and run by this user."""
        try:
            return self.run(command).returncode == 0
        except OSError:
            return False

    def may_enter(self, folder: Path) -> bool:
        """Return whether this user can walk to the folder from the root of the file system."""
        return not self.switched or self.may_run(["/bin/sh", "-c", 'cd -- "$1"', "sh", folder])

    def interrupt(self, pid: int) -> None:
        """Send SIGINT to one of this user's processes, with no more right to it than this user has."""
        self.run(["/bin/sh", "-c", 'kill -INT "$1"', "sh", str(pid)])

    def own(self, path: Path) -> None:
        """Give the user a folder that was just made for it."""
        if self.switched:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)

    def open(self, path: Path, flags: int) -> int:
        """Open a file of the user's own, making it if need be; links are not followed."""
        descriptor = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        if self.switched:
            os.fchown(descriptor, self.uid, self.gid)
        return descriptor

    @contextmanager
    def _reach(self, folder: Path) -> Generator[tuple[Path, list[int]]]:
        """Give a name under which this user's programs reach the folder, and what they inherit for that."""
        if folder == _ANYWHERE or self.may_enter(folder):
            yield folder, []
            return
        if not _DESCRIPTORS.is_dir():
            raise EmbeddedPostgresError(
                f"PostgreSQL refuses to run as root, and {self.name} may not enter {folder}: "
                "choose a data folder which all may reach, such as /var/lib/fatura"
            )
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            yield _DESCRIPTORS / str(descriptor), [descriptor]
        finally:
            os.close(descriptor)


def choose(cluster: Path, data_dir: Path) -> OsUser:
    """Return the user to run PostgreSQL as, who for root is another one.

    Raises EmbeddedPostgresError when there is none.
    """
    if os.geteuid() != 0:
        return OsUser(os.geteuid(), os.getegid(), f"user {os.geteuid()}", switched=False)
    for folder in (cluster, data_dir):
        owner = folder.stat().st_uid if folder.exists() else 0
        known = _entry(owner)
        if owner != 0 and known:
            return known
        if owner != 0 and folder == cluster:
            return OsUser(owner, folder.stat().st_gid, f"user {owner}", switched=True)
    known = next(filter(None, map(_entry, _UNPRIVILEGED)), None)
    if known:
        return known
    raise EmbeddedPostgresError(
        "PostgreSQL refuses to run as root, and no unprivileged user such as nobody was found: "
        "start Fatura as an ordinary user, or name a database in FATURA_DATABASE_URL"
    )


def _entry(user: int | str) -> OsUser | None:
    """Return a user whom the system knows by name; initdb refuses one whom it does not."""
    try:
        entry = pwd.getpwuid(user) if isinstance(user, int) else pwd.getpwnam(user)
    except KeyError:
        return None
    return OsUser(entry.pw_uid, entry.pw_gid, entry.pw_name, switched=True)
