"""The data folder: its files, and the locks that show whether the server is in use and whether it is running."""

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
    """A data folder and the user that PostgreSQL runs as.

    All locks are `flock`s: the kernel releases a lock when the last process that holds it ends.

    - `lock` (exclusive) is held while the server is started or stopped.
    - `lock.users` (shared) is held by every process that uses the server.
    - `lock.server` (exclusive) is inherited by the postmaster and its children. While this lock is free, none of these
      processes runs, even if there is a pid file.
    """

    path: Path
    user: OsUser

    @property
    def cluster(self) -> Path:
        return self.path / "postgres"

    @property
    def log(self) -> Path:
        return self.path / "postgres.log"

    @property
    def socket(self) -> Path:
        """The folder of the unix socket, or a link to it."""
        return self.path / "socket"

    @contextmanager
    def alone(self) -> Generator[None]:
        """Lock the folder against starts and stops by other processes."""
        descriptor = self._open("lock")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def join(self) -> int:
        """Register this process as a user of the server until the returned descriptor is closed."""
        descriptor = self._open("lock.users")
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        return descriptor

    def is_used(self) -> bool:
        return not self._is_free("lock.users")

    def is_alive(self) -> bool:
        """Return whether any process of the server runs."""
        return not self._is_free("lock.server")

    @contextmanager
    def server_lock(self) -> Generator[int]:
        """Take the lock that a new server inherits, and yield the descriptor of the lock."""
        descriptor = self._open("lock.server")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def open_log(self) -> Generator[int]:
        descriptor = self.user.open(self.log, os.O_RDWR | os.O_APPEND)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def cut_log(self) -> None:
        """Keep only the end of a log larger than LOG_LIMIT_BYTES. A running server continues to append to the log."""
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
