"""A PostgreSQL server that all processes with the same data folder share; it runs while any of them uses it (D-47)."""

import os
import re
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from fatura.postgres import address, binaries, cluster, os_user
from fatura.postgres.address import Address, Answer
from fatura.postgres.failure import EmbeddedPostgresError, failed, folder_errors
from fatura.postgres.folder import DataFolder

START_RETRY_SECONDS = 10.0
"""`start` fails after this time if the server does not answer, or if every launched server exits."""
RECOVERY_SECONDS = 600.0
"""Maximum wait for a server that is starting, for example during crash recovery."""
STOP_SECONDS = 600.0
SIGNAL_AGAIN_SECONDS = 5
QUIT_AFTER_SECONDS = 30.0
"""A server that has not stopped after this time is stopped without a checkpoint; the next start recovers it.

For example, PostgreSQL 18 never stops if it is asked to stop while it recovers from the crash of one of its processes.
"""
_POLL_SECONDS = 0.01
_REASON = re.compile(r"(FATAL|PANIC):(?!\s+the database system is)")
_TEMPORARY = ("Address already in use", "pre-existing shared memory block")


@dataclass(slots=True, eq=False)
class Server:
    """One process's use of a server that other processes may share. A `with` block calls `stop` at its end.

    A SIGTERM handler must raise SystemExit or end the event loop, so that the block ends. If the process is killed by
    `kill -9`, the server continues, and the next `start` on the data folder uses this server.
    """

    url: str
    """URL of the database `fatura`, with the engine's role `fatura`, which Row Level Security binds."""
    owner_url: str
    """URL of the same database, with the role that owns the tables. Row Level Security binds this role too."""
    _folder: DataFolder = field(repr=False)
    _use: int | None = field(repr=False)

    def stop(self) -> None:
        """End this process's use of the server. If no other process uses the server, stop it. Safe to repeat.

        Raises EmbeddedPostgresError if the server does not stop within STOP_SECONDS.
        """
        if self._use is None:
            return
        with folder_errors(self._folder.path), self._folder.alone():
            use, self._use = self._use, None
            if not _leave(self._folder, use, STOP_SECONDS):
                raise EmbeddedPostgresError(
                    f"PostgreSQL in {self._folder.path} did not stop within {STOP_SECONDS:.0f} seconds: "
                    f"see {self._folder.log}"
                )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def exists(data_dir: Path) -> bool:
    """Return whether a data folder has a database. Raises EmbeddedPostgresError if the folder may not be read."""
    with folder_errors(data_dir):
        return (data_dir / "postgres").exists()


def start(
    data_dir: Path, *, bin_dir: Path | None = None, settings: Mapping[str, str] | None = None
) -> Server:
    """Use the running server of a data folder, or start one.

    If `bin_dir` is set, only its programs are used. `settings` apply only if this call starts the server.
    Raises EmbeddedPostgresError.
    """
    path = data_dir.absolute()
    with folder_errors(path):
        # If this process is root, PostgreSQL runs as another user, which must be able to enter the folder.
        path.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700, parents=True, exist_ok=True)
        folder = DataFolder(path.resolve(), os_user.choose(path / "postgres", path))
        with folder.alone():
            folder.cut_log()
            use = folder.join()
            launch = _Launch(folder, bin_dir, settings or {})
            try:
                at = launch.run()
                return Server(at.url(address.ROLE), at.url(address.OWNER), folder, use)
            except BaseException:
                if launch.launched:
                    _leave(folder, use, START_RETRY_SECONDS)
                else:
                    os.close(use)
                raise


@dataclass(slots=True, eq=False)
class _Launch:
    """The state of one call of `start`."""

    folder: DataFolder
    bin_dir: Path | None
    settings: Mapping[str, str]
    launched: bool = False
    log_offset_bytes: int = 0

    def run(self) -> Address:
        """Return the address of a server that answers. Launch a server if none runs, or if the launched one exits."""
        began = answered = time.monotonic()
        while True:
            now = time.monotonic()
            if not self.folder.is_alive():
                if self.launched:
                    self._raise_if_hopeless(now - began)
                self._launch()
                answered = time.monotonic()
            known = address.recorded(self.folder.cluster)
            answer = known[1].ask() if known else Answer.NOTHING
            if known and answer is Answer.READY:
                return known[1]
            if answer is Answer.NOT_YET:
                answered = now
            if now - answered > START_RETRY_SECONDS or now - began > RECOVERY_SECONDS:
                raise _unresponsive(self.folder, known)
            time.sleep(_POLL_SECONDS)

    def _launch(self) -> None:
        """Start a server in the background, detached from this process and its terminal."""
        folder = self.folder
        programs = binaries.reachable(
            binaries.find(self.bin_dir, cluster.major_of(folder.cluster)), folder.user
        )
        if not folder.cluster.exists():
            cluster.create(folder, programs)
        _clear_pid_file(folder)
        cluster.write_rules(folder)
        socket_folder = str(address.choose(folder)).replace('"', '""')
        settings = {
            "port": str(address.SOCKET_PORT),
            "listen_addresses": "",
            "unix_socket_directories": f'"{socket_folder}"',
            "unix_socket_permissions": "0700",
            **self.settings,
        }
        command: list[str | Path] = [programs.postgres, "-D", folder.cluster]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        with folder.open_log() as log, folder.server_lock() as lock:
            self.log_offset_bytes = os.fstat(log).st_size
            self.launched = True
            folder.user.run(
                ["/bin/sh", "-c", '"$@" </dev/null &', "sh", *command],
                folder=folder.cluster,
                output=log,
                kept_open=[lock],
            )

    def _raise_if_hopeless(self, elapsed_seconds: float) -> None:
        """If the exited server logged a permanent error, or if START_RETRY_SECONDS have passed, raise the logged error.

        Otherwise wait briefly. The caller then launches another server.
        """
        output = self.folder.log.read_bytes()[self.log_offset_bytes :].decode(errors="replace")
        hopeless = _REASON.search(output) and not any(sign in output for sign in _TEMPORARY)
        if hopeless or elapsed_seconds > START_RETRY_SECONDS:
            raise failed(f"starting PostgreSQL (see {self.folder.log}) in", output, where=self.folder.path)
        time.sleep(_POLL_SECONDS * 10)


def _clear_pid_file(folder: DataFolder) -> None:
    """Remove the pid file of a killed server.

    Another process may now have the process id in that file. PostgreSQL would mistake that process for a running
    server, and would not start.

    Raises EmbeddedPostgresError if a server that Fatura did not start uses the cluster.
    """
    known = address.recorded(folder.cluster)
    if known and known[1].ask() is not Answer.NOTHING:
        raise EmbeddedPostgresError(
            f"a PostgreSQL that Fatura did not start (process {known[0]}) uses {folder.cluster}: "
            f"stop it with `kill -INT {known[0]}` and start again"
        )
    (folder.cluster / "postmaster.pid").unlink(missing_ok=True)


def _leave(folder: DataFolder, use: int, stop_seconds: float) -> bool:
    """End this process's use of the server. If no process uses the server any more, stop it.

    Return False if the server still runs after `stop_seconds`. Call this inside `folder.alone()`.
    """
    os.close(use)
    if folder.is_used():
        return True
    began = time.monotonic()
    signaled, signaled_at = None, 0.0
    while folder.is_alive():
        known = address.recorded(folder.cluster)  # None until a new server has written its pid file
        now = time.monotonic()
        # The signal is repeated. A repeated SIGINT does not disturb a server that is already stopping.
        if known and (known[0] != signaled or now - signaled_at > SIGNAL_AGAIN_SECONDS):
            signaled, signaled_at = known[0], now
            is_patient = now - began < QUIT_AFTER_SECONDS
            folder.user.send(signal.SIGINT if is_patient else signal.SIGQUIT, pid=signaled)
        if now - began > stop_seconds:
            return False
        time.sleep(_POLL_SECONDS)
    address.forget(folder)
    return True


def _unresponsive(folder: DataFolder, known: tuple[int, Address] | None) -> EmbeddedPostgresError:
    main = f" (its main process is or was {known[0]})" if known else ""
    return EmbeddedPostgresError(
        f"processes of PostgreSQL in {folder.path}{main} run but do not answer: see {folder.log}, "
        "end them and start again"
    )
