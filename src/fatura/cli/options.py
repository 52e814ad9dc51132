"""What commands share: options, reading the settings, and running a function with the dependencies."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, TypeVar
from urllib.parse import urlsplit
from uuid import UUID

import typer

from fatura import bootstrap, postgres, settings
from fatura.bootstrap import Address
from fatura.cli.output import echo
from fatura.domain.text import unsafe_character
from fatura.observability import configure_logs, log
from fatura.settings import Settings, SettingsError
from fatura.usecases.deps import Deps

T = TypeVar("T")

DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        help="Folder of the embedded PostgreSQL and the key ring; default: FATURA_DATA_DIR or ./.fatura.",
    ),
]
Host = Annotated[str, typer.Option("--host", help="Address to listen on.")]
Port = Annotated[int, typer.Option("--port", min=1, max=65535, help="Port of the HTTP API.")]
MetricsPort = Annotated[
    int | None,
    typer.Option(
        "--metrics-port",
        min=1,
        max=65535,
        help="Serve /health, /health/ready and /metrics of this process on this port; by default, on none.",
    ),
]
UpMetricsPort = Annotated[
    int | None,
    typer.Option(
        "--metrics-port",
        min=1,
        max=65534,
        help="Serve /health, /health/ready and /metrics of the API on this port, and of the worker on the next one.",
    ),
]
MetricsHost = Annotated[
    str,
    typer.Option(
        "--metrics-host", help="Address of the metrics' port. Everyone who reaches it can read them."
    ),
]
AccountId = Annotated[
    UUID, typer.Argument(metavar="ACCOUNT", help="Id of the account, as `fatura account list` shows it.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
WithParent = Annotated[
    bool,
    typer.Option(
        "--until-stdin-closes",
        hidden=True,
        help="Stop when stdin closes, which happens when the parent process ends.",
    ),
]
BesideApi = Annotated[
    bool,
    typer.Option("--beside-api", hidden=True, help="Run at a lower priority than the API on this host."),
]
ACCOUNT_FAILED = 3
"""Exit code of a command over all accounts if it had to pass over an account (D-216)."""
DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8000


MAX_NAME_CHARS = 120


def checked_name(name: str) -> str:
    if not name.strip() or len(name) > MAX_NAME_CHARS:
        raise typer.BadParameter(f"must be 1 to {MAX_NAME_CHARS} characters")
    if unsafe_character(name) is not None:
        raise typer.BadParameter("must not contain control or invisible characters")
    return name


def metrics_address(host: str, port: int | None) -> Address | None:
    """Return the address for the metrics, or None if `port` is None. Raises PortTakenError if the port is in use."""
    if port is None:
        return None
    address = Address(host, port)
    bootstrap.check_port(address, option="--metrics-port")
    return address


def read_settings(data_dir: Path | None, *, quiet: bool = False) -> Settings:
    """Return the settings from the environment and the options, and configure logging. Raises SettingsError."""
    unknown = settings.unknown_variables(os.environ)
    found = settings.read(os.environ)
    if data_dir is not None:
        found = replace(found, data_dir=data_dir)
    if quiet:
        found = replace(found, log_level="error")
    configure_logs(format_=found.log_format, level=found.log_level)
    if unknown:
        log.warning("settings.unknown", names=unknown, advice="these variables change nothing")
    return found


def announce(settings: Settings, *, as_owner: bool = False) -> None:
    """Print to stderr which database, which role and which key ring the command uses.

    Call this only after the database was opened, because a malformed URL could show a part of its password.
    """
    folder = settings.data_dir.absolute()
    database = f"embedded database in {folder}"
    if settings.database_url is not None:
        parts = urlsplit((as_owner and settings.owner_url) or settings.database_url)
        user, _, hosts = parts.netloc.rpartition("@")
        database = f"database {parts.path[1:] or '(default)'} at {hosts or 'the local socket'}"
        if user:
            database += f" as {user.partition(':')[0]}"
    ring = "FATURA_SECRET_KEYS" if settings.secret_keys else str(folder / bootstrap.KEY_RING_FILE)
    echo(f"fatura: {database}; key ring: {ring}", err=True)


def require_database(settings: Settings) -> None:
    """Refuse to run without a database, because only `up`, `demo` and `migrate` create one. Raises SettingsError."""
    if settings.database_url is None and not postgres.exists(settings.data_dir):
        raise SettingsError(
            f"there is no database in {settings.data_dir.absolute()}: name the folder with --data-dir, set "
            "FATURA_DATABASE_URL, or create a database there with `fatura up` or `fatura migrate`"
        )


def run_with_deps(data_dir: Path | None, function: Callable[[Deps], Awaitable[T]]) -> T:
    """Run `function` with the engine's dependencies, and return its result.

    Raises SettingsError, and the errors of `migrated_database`, `opened` and `function`.
    """
    settings = read_settings(data_dir)
    require_database(settings)
    with bootstrap.migrated_database(settings) as url:
        announce(settings)
        return asyncio.run(_run(settings, url, function))


async def _run(settings: Settings, url: str, function: Callable[[Deps], Awaitable[T]]) -> T:
    async with bootstrap.opened(settings, url) as deps:
        return await function(deps)
