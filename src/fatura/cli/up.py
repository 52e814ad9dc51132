"""`fatura up`: run database, API and worker. An empty folder is enough to start (D-47)."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

import typer

from fatura import bootstrap
from fatura.cli import account
from fatura.cli.client import connect
from fatura.cli.operator import operator
from fatura.cli.options import DEFAULT_HOST, DEFAULT_PORT, DataDir, Host, Port, announce, read_settings
from fatura.cli.processes import Child, run_until_set, run_until_stopped
from fatura.domain.credentials import Mode
from fatura.observability import log
from fatura.settings import Settings

DATABASE_CHECK_SECONDS = 2
"""Interval between checks that the embedded PostgreSQL runs."""


def up(host: Host = DEFAULT_HOST, port: Port = DEFAULT_PORT, *, data_dir: DataDir = None) -> None:
    """Start PostgreSQL (unless FATURA_DATABASE_URL is set), migrate, and run API and worker until Ctrl-C."""
    settings = read_settings(data_dir)
    bootstrap.check_port(host, port)
    with bootstrap.database(settings) as urls:
        bootstrap.migrate(urls)
        announce(settings)
        _show_account(settings, urls.url)
        greet = partial(_greet_when_ready, host, port)
        run_until_stopped(lambda stop: run_engine(settings, stop, host=host, port=port, meanwhile=greet))


def _show_account(settings: Settings, url: str) -> None:
    first = asyncio.run(
        bootstrap.open_first_account(settings, url, name="Sandbox", mode=Mode.SANDBOX, opened_by=operator())
    )
    if first is not None:
        typer.echo("A sandbox account was opened for you.")
        account.show(first, folder=settings.data_dir)
    else:
        typer.echo(
            "The database has accounts; open another with `fatura account create NAME --mode sandbox`."
        )


async def _greet_when_ready(host: str, port: int) -> None:
    """Print the addresses once the API answers, so that the first request succeeds."""
    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    async with connect(url, api_key="") as client:
        with suppress(TimeoutError):
            await client.wait_until_ready()
    typer.echo(f"API       {url}/v1\ndocs      {url}/docs\nPress Ctrl-C to stop.")


async def run_engine(
    settings: Settings,
    stop: asyncio.Event,
    *,
    host: str,
    port: int,
    meanwhile: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Run API and worker as child processes, and call `meanwhile`. Stop when `stop` is set or `meanwhile` fails."""
    children = [
        Child(["api", "--host", host, "--port", str(port)], settings=settings),
        Child(["worker", "--beside-api"], settings=settings),
    ]
    async with asyncio.TaskGroup() as group:
        for child in children:
            group.create_task(child.keep_running(stop))
        group.create_task(_keep_database_running(settings, stop))
        if meanwhile is not None:
            group.create_task(_run_meanwhile(meanwhile, stop))


async def _run_meanwhile(meanwhile: Callable[[], Awaitable[None]], stop: asyncio.Event) -> None:
    try:
        await run_until_set(stop, meanwhile)
    except Exception as error:
        log.error("demo.failed", error=f"{type(error).__name__}: {error}")
        stop.set()
        raise


async def _keep_database_running(settings: Settings, stop: asyncio.Event) -> None:
    """Restart the embedded PostgreSQL when it dies."""
    while not stop.is_set():
        try:
            await asyncio.to_thread(bootstrap.revive_database, settings)
        except bootstrap.STARTUP_FAILURES as error:
            log.error("database.not_started", error=str(error))
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), DATABASE_CHECK_SECONDS)
