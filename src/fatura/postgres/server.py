"""A PostgreSQL server that lives as long as somebody uses its data folder, shared by all who do (D-47)."""

import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from fatura.postgres import address, binaries, cluster, os_user
from fatura.postgres.address import Address, Answer
from fatura.postgres.failure import EmbeddedPostgresError, failed, text_from, told_plainly
from fatura.postgres.folder import DataFolder

START_RETRY_SECONDS = 10.0
"""How long a server that dies at start is tried again, and one that does not answer is waited for."""
RECOVERY_SECONDS = 600.0
"""How long a server that asks to wait (crash recovery) is waited for."""
STOP_SECONDS = 600.0
TELL_AGAIN_SECONDS = 5
_POLL_SECONDS = 0.01
_REASON = re.compile(r"(FATAL|PANIC):(?!\s+the database system is)")
_MENDS_ITSELF = ("Address already in use", "pre-existing shared memory block")


@dataclass(slots=True, eq=False)
class Server:
    """One process's use of the server; a context manager that ends with `stop`.

    Whoever installs a SIGTERM handler lets it raise SystemExit or end the event loop, so that the block is
    left. After kill -9 the server stays, and the next `start` on the data folder takes it over.
    """

    url: str
    """Connects as the role `fatura`, which Row Level Security binds, to its database `fatura`."""
    _folder: DataFolder = field(repr=False)
    _use: int | None = field(repr=False)

    def stop(self) -> None:
        """End this use; the last user stops the server. May be called again.

        Raises EmbeddedPostgresError when the server does not stop within STOP_SECONDS.
        """
        if self._use is None:
            return
        with told_plainly(self._folder.path), self._folder.alone():
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


def start(
    data_dir: Path,
    *,
    bin_dir: Path | None = None,
    settings: Mapping[str, str] | None = None,
    tcp: bool = False,
) -> Server:
    """Use the PostgreSQL of a data folder: the one that runs already, or a new one.

    `bin_dir` names the programs to use instead of the wheel's or the system's. `settings` and `tcp` (listen
    on 127.0.0.1 with a password, not on a unix socket) hold for a server that this call starts.
    Raises EmbeddedPostgresError, whose message tells the next step.
    """
    path = data_dir.absolute()
    with told_plainly(path):
        # Root's PostgreSQL runs as another user, who must be able to walk through.
        path.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700, parents=True, exist_ok=True)
        folder = DataFolder(path.resolve(), os_user.choose(path / "postgres", path))
        with folder.alone():
            folder.cut_log()
            use = folder.join()
            launch = _Launch(folder, bin_dir, settings or {}, tcp=tcp)
            try:
                where = launch.run()
                return Server(where.url(_password(folder, where)), folder, use)
            except BaseException:
                if launch.launched:
                    _leave(folder, use, START_RETRY_SECONDS)
                else:
                    os.close(use)
                raise


@dataclass(slots=True, eq=False)
class _Launch:
    """The way from whatever a data folder holds to a server that answers."""

    folder: DataFolder
    bin_dir: Path | None
    settings: Mapping[str, str]
    tcp: bool
    launched: bool = False
    log_offset_bytes: int = 0

    def run(self) -> Address:
        """Return the address of a server that answers, launching one as often as it takes."""
        began = heard = time.monotonic()
        while True:
            now = time.monotonic()
            if not self.folder.is_alive():
                if self.launched:
                    self._judge_death(now - began)
                self._launch()
                heard = time.monotonic()
            known = address.recorded(self.folder.cluster)
            answer = known[1].ask() if known else Answer.NOTHING
            if known and answer is Answer.READY:
                return known[1]
            if answer is Answer.NOT_YET:
                heard = now
            if now - heard > START_RETRY_SECONDS or now - began > RECOVERY_SECONDS:
                raise _mute(self.folder, known)
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
        where = address.choose(folder, tcp=self.tcp)
        if not where.is_socket:
            cluster.set_password(folder, programs)
        command: list[str | Path] = [programs.postgres, "-D", folder.cluster]
        for name, value in {**_wiring(where), **self.settings}.items():
            command += ["-c", f"{name}={value}"]
        with folder.open_log() as log, folder.life() as life:
            self.log_offset_bytes = os.fstat(log).st_size
            self.launched = True
            folder.user.run(
                ["/bin/sh", "-c", '"$@" </dev/null &', "sh", *command],
                folder=folder.cluster,
                output=log,
                kept_open=[life],
            )

    def _judge_death(self, elapsed_seconds: float) -> None:
        """Raise why the server died, unless trying again may help: it was killed, or what it met mends itself."""
        said = text_from(self.folder.log, self.log_offset_bytes)
        hopeless = _REASON.search(said) and not any(sign in said for sign in _MENDS_ITSELF)
        if hopeless or elapsed_seconds > START_RETRY_SECONDS:
            raise failed(f"starting PostgreSQL (see {self.folder.log}) in", said, where=self.folder.path)
        time.sleep(_POLL_SECONDS * 10)


def _wiring(where: Address) -> dict[str, str]:
    """Return the settings that belong to an address."""
    quoted = where.host.replace('"', '""')
    return {
        "port": str(where.port),
        "listen_addresses": "" if where.is_socket else where.host,
        "unix_socket_directories": f'"{quoted}"' if where.is_socket else "",
        "unix_socket_permissions": "0700",
    }


def _clear_pid_file(folder: DataFolder) -> None:
    """Remove the pid file of a server that was killed: its number may be another process's by now.

    Raises EmbeddedPostgresError when a server that Fatura did not start runs the cluster.
    """
    known = address.recorded(folder.cluster)
    if known and known[1].ask() is not Answer.NOTHING:
        raise EmbeddedPostgresError(
            f"a PostgreSQL that Fatura did not start (process {known[0]}) uses {folder.cluster}: "
            f"stop it with `kill -INT {known[0]}` and start again"
        )
    (folder.cluster / "postmaster.pid").unlink(missing_ok=True)


def _password(folder: DataFolder, where: Address) -> str:
    return "" if where.is_socket else folder.password.read_text()


def _leave(folder: DataFolder, use: int, patience_seconds: float) -> bool:
    """End a use, and stop the server if it was the last; return whether it obeyed. Under the lock only."""
    os.close(use)
    if folder.is_used():
        return True
    deadline = time.monotonic() + patience_seconds
    told, told_at = None, 0.0
    while folder.is_alive():
        known = address.recorded(folder.cluster)  # not there at once, if the start is broken off
        now = time.monotonic()
        if known and (known[0] != told or now - told_at > TELL_AGAIN_SECONDS):
            told, told_at = known[0], now
            folder.user.interrupt(told)  # once more changes nothing for a server that heard it
        if now > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    address.forget(folder)
    return True


def _mute(folder: DataFolder, known: tuple[int, Address] | None) -> EmbeddedPostgresError:
    """Return the error of a server that lives but does not answer."""
    main = f" (its main process is or was {known[0]})" if known else ""
    return EmbeddedPostgresError(
        f"processes of PostgreSQL in {folder.path}{main} run but do not answer: see {folder.log}, "
        "end them and start again"
    )
