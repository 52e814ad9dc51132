"""The data folder: its files, and the three locks that tell who uses the server and whether it lives."""

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fatura.postgres.os_user import OsUser

LOG_LIMIT_BYTES = 10_000_000
LOG_KEPT_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class DataFolder:
    """A data folder and the user whose cluster lies in it.

    All locks are `flock`s, so the kernel drops them with the last process that holds them, however it ends:

    - `lock`, exclusive, is held while the server is started or stopped;
    - `lock.users`, shared, is held by every process that uses the server: free, it has none;
    - `lock.server`, exclusive, is inherited by the postmaster and by all its children: free, none of them
      lives, whatever a pid file says.
    """

    path: Path
    user: OsUser

    @property
    def cluster(self) -> Path:
        """PostgreSQL's own folder."""
        return self.path / "postgres"

    @property
    def log(self) -> Path:
        """What PostgreSQL says."""
        return self.path / "postgres.log"

    @property
    def socket(self) -> Path:
        """The folder of the unix socket, or a link to it where this path is too long for one."""
        return self.path / "socket"

    @property
    def password(self) -> Path:
        """The password of the role, where the server listens on TCP."""
        return self.path / "postgres.password"

    @contextmanager
    def alone(self) -> Generator[None]:
        """Keep every other process from starting or stopping the server meanwhile."""
        descriptor = self._open("lock")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def join(self) -> int:
        """Become a user of the server; closing the returned descriptor ends that."""
        descriptor = self._open("lock.users")
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        return descriptor

    def is_used(self) -> bool:
        """Return whether any process uses the server."""
        return not self._is_free("lock.users")

    def is_alive(self) -> bool:
        """Return whether any process of the server lives."""
        return not self._is_free("lock.server")

    @contextmanager
    def life(self) -> Generator[int]:
        """Hold the descriptor whose lock a new server inherits."""
        descriptor = self._open("lock.server")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def open_log(self) -> Generator[int]:
        """Open the log to append to it."""
        descriptor = self.user.open(self.log, os.O_RDWR | os.O_APPEND)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def cut_log(self) -> None:
        """Keep the end of a log that outgrew LOG_LIMIT_BYTES; a living server appends, so it may be cut."""
        with self.open_log() as log:
            size = os.fstat(log).st_size
            if size > LOG_LIMIT_BYTES:
                end = os.pread(log, LOG_KEPT_BYTES, size - LOG_KEPT_BYTES)
                os.ftruncate(log, 0)
                os.write(log, end)

    def _is_free(self, name: str) -> bool:
        descriptor = self._open(name)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(descriptor)
        return True

    def _open(self, name: str) -> int:
        return self.user.open(self.path / name, os.O_RDWR)
