"""The composition root: builds a process's dependencies from its settings."""

import asyncio
import gc
import os
import resource
import socket
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote, urlsplit

from fatura import postgres, tracing
from fatura.domain.audit import Actor
from fatura.domain.credentials import Mode
from fatura.domain.endpoint_url import UrlRules
from fatura.domain.tags import Tagger
from fatura.failure_text import OwnTextError
from fatura.gateways.http import ProviderClient
from fatura.observability import log
from fatura.outbound.http import MerchantClient
from fatura.postgres import EmbeddedPostgresError, newer_minor
from fatura.providers import providers
from fatura.settings import Settings, SettingsError
from fatura.store import key_ring_file
from fatura.store.accounts import tag_keys
from fatura.store.db import Database, DatabaseUnavailableError, connect
from fatura.store.migrations import runner
from fatura.store.migrations.distribute import AT_MOST_GIB as AT_MOST_GIB  # noqa: PLC0414 - `cli.migrate` uses it
from fatura.store.migrations.distribute import distribute as distribute  # noqa: PLC0414 - as above
from fatura.store.migrations.runner import MigrationError, alone, pending
from fatura.store.notify import Notifier, listen
from fatura.store.vault import KeyRingError, Vault
from fatura.tracing import TracingError
from fatura.usecases.accounts import accounts, tag_key
from fatura.usecases.accounts.accounts import OpenedAccount
from fatura.usecases.database_clock import DatabaseClock, WrongClockError
from fatura.usecases.deps import Deps
from fatura.workers.lanes import LANES
from fatura.workers.loop import Loop

KEY_RING_FILE = "secret_keys"
MAX_OPEN_FILES = 65_536
WORKER_NICENESS = 5
"""Niceness of a worker beside an API. If both compete for a processor, the API gets three quarters of the CPU time."""


@dataclass(frozen=True, slots=True)
class Address:
    """The host and port on which a server listens."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """Return a URL with which a browser on this host reaches the server."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104 - compared, not bound
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"


class PortTakenError(OwnTextError):
    """The address to listen on is in use or does not belong to this host."""


STARTUP_FAILURES = (
    DatabaseUnavailableError,
    EmbeddedPostgresError,
    KeyRingError,
    MigrationError,
    PortTakenError,
    SettingsError,
    TracingError,
    WrongClockError,
)
"""Failures that the operator can fix; each message says how."""


def real_clock() -> datetime:
    return datetime.now(UTC)


async def key_ring(settings: Settings, db: Database) -> tuple[str, ...]:
    """Return the key ring from FATURA_SECRET_KEYS or, if the variable is not set, from the file in the data folder.

    If the variable is not set, the file does not exist, and the database has no secrets yet, create the file.
    Raises KeyRingError if neither has keys but the database has secrets, because a new key ring cannot decrypt them.
    Raises KeyRingError also if the file cannot be created or read, or if other users may open it.
    """
    if settings.secret_keys:
        return settings.secret_keys
    path = settings.data_dir / KEY_RING_FILE
    ring = key_ring_file.read(path)
    if not ring:
        await _check_has_no_secrets(db, path)
    if ring is None:
        key_ring_file.create(path)
        log.warning(
            "key_ring.created",
            path=str(path),
            advice="copy it to every host and to a safe place apart from your backups",
        )
        ring = key_ring_file.read(path)
    assert ring is not None, "this process or another one has created the file"
    return ring


async def _check_has_no_secrets(db: Database, path: Path) -> None:
    if await tag_keys.is_needed(db):
        message = (
            "the database has secrets, but the key ring that sealed them is missing or empty; put the old keys back: "
            f"set FATURA_SECRET_KEYS, or copy the file {KEY_RING_FILE} to {path.parent}"
        )
        raise KeyRingError(message)


def url_rules(settings: Settings) -> Mapping[Mode, UrlRules]:
    """Return the rules for the URLs of merchants' endpoints, by the mode of the account (D-47)."""
    ports, for_all = settings.outbound_ports, settings.outbound_allow_live
    return {
        Mode.LIVE: UrlRules(ports, for_all),
        Mode.SANDBOX: UrlRules(ports, (*settings.outbound_allow, *for_all)),
    }


def wire(
    settings: Settings,
    db: Database,
    *,
    vault: Vault,
    tagger: Tagger,
    clock: Callable[[], datetime] = real_clock,
    notify: Callable[[str], None],
) -> Deps:
    """Build the dependencies. Tests pass their own clock."""
    rules = url_rules(settings)
    calls = ProviderClient(denied=settings.outbound_deny)
    return Deps(
        settings=settings,
        db=db,
        vault=vault,
        tagger=tagger,
        providers=providers(db, calls),
        url_rules=rules,
        provider_client=calls,
        merchants=MerchantClient(rules, denied=settings.outbound_deny),
        clock=DatabaseClock(clock),
        notify=notify,
    )


@dataclass(frozen=True, slots=True)
class DatabaseUrls:
    """URLs of one database: `url` with the engine's role, `owner_url` with the role that owns the tables (D-238)."""

    url: str
    owner_url: str


@contextmanager
def database(settings: Settings) -> Generator[DatabaseUrls]:
    """Yield the URLs of the database in FATURA_DATABASE_URL or, if it is not set, of the embedded PostgreSQL (D-47).

    The embedded server is started if it does not run; all processes with the same data folder share it.

    Raises EmbeddedPostgresError.
    """
    if settings.database_url is not None:
        yield DatabaseUrls(settings.database_url, settings.owner_url or settings.database_url)
        return
    with postgres.start(settings.data_dir, bin_dir=settings.pg_bin) as server:
        yield DatabaseUrls(server.url, server.owner_url)


def migrate(urls: DatabaseUrls) -> Sequence[str]:
    """Apply the pending migrations as the owner of the tables, and return their names.

    Raises MigrationError, SettingsError.
    """
    return asyncio.run(runner.migrate(urls.owner_url, engine_role=_engine_role(urls)))


def _engine_role(urls: DatabaseUrls) -> str | None:
    """Return the engine's role, which needs rights on the tables, or None if this role owns the tables.

    Raises SettingsError if the engine's URL names no role.
    """
    if urls.url == urls.owner_url:
        return None
    try:
        role = urlsplit(urls.url).username
    except ValueError:
        role = None
    if not role:
        message = "FATURA_DATABASE_URL must name the engine's role when FATURA_OWNER_URL is set: postgresql://role@..."
        raise SettingsError(message)
    return unquote(role)


def revive_database(settings: Settings) -> None:
    """Restart the embedded PostgreSQL if it died. If FATURA_DATABASE_URL is set, do nothing.

    Call this only inside the block of `database`. Outside that block, this function stops the server again if no other
    process uses it.

    Raises EmbeddedPostgresError.
    """
    if settings.database_url is None:
        postgres.start(settings.data_dir, bin_dir=settings.pg_bin).stop()


@contextmanager
def migrated_database(settings: Settings) -> Generator[str]:
    """Migrate the embedded database, or check that the database in FATURA_DATABASE_URL is migrated; yield its URL.

    Raises EmbeddedPostgresError, MigrationError.
    """
    with database(settings) as urls:
        if settings.database_url is None:
            migrate(urls)
        elif waiting := asyncio.run(pending(urls.url)):
            message = f"the database lacks {len(waiting)} migration(s); run `fatura migrate` first"
            raise MigrationError(message)
        yield urls.url


@asynccontextmanager
async def opened(settings: Settings, url: str, *, niceness: int = 0) -> AsyncGenerator[Deps]:
    """Connect to the database and yield one process's dependencies.

    With an embedded PostgreSQL, `niceness` lowers the priority of the server processes that serve these connections.

    Raises DatabaseUnavailableError, TracingError, and KeyRingError if the key ring is missing, cannot be read or cannot
    decrypt the stored secrets.
    """
    tracing.switch_on(os.environ)
    db = await connect(
        url,
        max_connections=settings.max_connections,
        pooler_url=settings.pooler_url,
        niceness=niceness if settings.database_url is None else 0,
    )
    try:
        vault = Vault(await key_ring(settings, db))
        tagger = await tag_key.load(db, vault)
        notifier = Notifier(db)
        deps = wire(settings, db, vault=vault, tagger=tagger, notify=notifier)
        try:
            yield deps
        finally:
            await deps.merchants.close()
            await deps.provider_client.close()
            await notifier.finish()
    finally:
        await db.close()


def warn_of_server(db: Database) -> None:
    """Log a warning if a newer minor release exists (D-239), or if the engine's role owns the tables (D-238)."""
    major, minor = db.server_version
    if newest := newer_minor(major, minor):
        log.warning(
            "postgres.outdated",
            version=f"{major}.{minor}",
            newest=newest,
            advice="install the newest minor release, which fixes known faults and needs no migration",
        )
    if db.owns_tables:
        log.warning(
            "database.role_owns_tables",
            advice="let another role own the tables, and name it in FATURA_OWNER_URL for `fatura migrate`",
        )


async def open_account(
    settings: Settings, url: str, *, name: str, mode: Mode, opened_by: Actor
) -> OpenedAccount:
    """Open an account (D-44, D-47). Raises the errors of `opened`, and WrongClockError."""
    async with opened(settings, url) as deps:
        return await accounts.open_account(deps, name=name, mode=mode, opened_by=opened_by)


async def open_first_account(
    settings: Settings, url: str, *, name: str, mode: Mode, opened_by: Actor
) -> OpenedAccount | None:
    """Open an account and return it, or return None if an account exists already (D-47).

    Of several processes that start at the same time, only one opens an account.
    Raises MigrationError and the errors of `open_account`.
    """
    async with alone(url), opened(settings, url) as deps:
        if await accounts.newest_account(deps) is not None:
            return None
        return await accounts.open_account(deps, name=name, mode=mode, opened_by=opened_by)


def check_port(address: Address, *, option: str = "--port") -> None:
    """Check that a server can listen on the address. Call this before starting anything.

    Raises PortTakenError, whose message names the option that chooses another port.
    """
    try:
        with socket.create_server((address.host, address.port)):
            return
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        message = f"cannot listen on {address.host}:{address.port} ({reason}); choose another with {option}"
        raise PortTakenError(message) from error


def allow_many_open_files() -> None:
    """Raise this process's limit of open files, up to MAX_OPEN_FILES, for thousands of concurrent calls (D-31)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


async def work(
    settings: Settings,
    url: str,
    *,
    stop: asyncio.Event,
    metrics: Address | None = None,
    beside_api: bool = False,
) -> None:
    """Run all background work until `stop` is set. Serve health and metrics on `metrics`, if it is given (D-128).

    If `beside_api` is true, this process and its database connections run at a lower priority than the API on the host.
    Raises the errors of `opened`.
    """
    allow_many_open_files()
    niceness = WORKER_NICENESS if beside_api else 0
    os.nice(niceness)
    async with opened(settings, url, niceness=niceness) as deps:
        warn_of_server(deps.db)
        loop = Loop(deps, LANES)
        listening = asyncio.create_task(listen(url, loop.notify))
        try:
            await asyncio.gather(loop.run(stop), _serve_metrics(deps, stop, metrics))
        finally:
            listening.cancel()


async def serve(
    settings: Settings, url: str, *, stop: asyncio.Event, address: Address, metrics: Address | None = None
) -> None:
    """Serve the HTTP API until `stop` is set. Serve health and metrics on `metrics`, if it is given (D-202).

    Raises the errors of `opened`.
    """
    from fatura.api.app import create_app  # noqa: PLC0415 - the framework takes longer to import than all else
    from fatura.api.http.server import run_server  # noqa: PLC0415 - as above

    allow_many_open_files()
    async with opened(settings, url) as opened_deps:
        warn_of_server(opened_deps.db)
        deps = replace(opened_deps, stopping=stop, listens_at=address.url)
        api = run_server(
            create_app(deps),
            stop,
            host=address.host,
            port=address.port,
            limits_addresses=not settings.trusted_proxies,
        )
        # otherwise a garbage collection would visit the objects of all modules, and stop all requests for 50 ms
        gc.freeze()
        await asyncio.gather(api, _serve_metrics(deps, stop, metrics))


async def _serve_metrics(deps: Deps, stop: asyncio.Event, address: Address | None) -> None:
    if address is None:
        return
    from fatura.api.app import create_watch_app  # noqa: PLC0415 - slow to import, see `serve`
    from fatura.api.http.server import run_server  # noqa: PLC0415 - slow to import, see `serve`

    await run_server(create_watch_app(deps), stop, host=address.host, port=address.port)
