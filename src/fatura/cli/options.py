"""What commands share: options, reading the settings, and running a function with the dependencies."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from fatura import bootstrap, postgres, settings
from fatura.observability import configure_logs
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
        help="Serve this worker's /health, /health/ready and /metrics on this port; by default, on none.",
    ),
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
DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8000


def read_settings(data_dir: Path | None, *, quiet: bool = False) -> Settings:
    """Read the environment, apply the options, and configure logging. Raises SettingsError."""
    found = settings.read(os.environ)
    if data_dir is not None:
        found = replace(found, data_dir=data_dir)
    if quiet:
        found = replace(found, log_level="error")
    configure_logs(format_=found.log_format, level=found.log_level)
    return found


def run_with_deps(
    data_dir: Path | None, function: Callable[[Deps], Awaitable[T]], *, may_create: bool = False
) -> T:
    """Run `function` with the engine's dependencies. A missing embedded database is created only with `may_create`.

    Raises SettingsError and what `migrated_database` and `opened` raise.
    """
    settings = read_settings(data_dir)
    if settings.database_url is None and not may_create and not postgres.exists(settings.data_dir):
        raise SettingsError(
            f"there is no database in {settings.data_dir}: set FATURA_DATABASE_URL, or name the folder with --data-dir"
        )
    with bootstrap.migrated_database(settings) as url:
        return asyncio.run(_run(settings, url, function))


async def _run(settings: Settings, url: str, function: Callable[[Deps], Awaitable[T]]) -> T:
    async with bootstrap.opened(settings, url) as deps:
        return await function(deps)
