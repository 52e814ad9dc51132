"""`fatura up`: run database, API and worker. An empty folder is enough to start (D-47)."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

import typer

from fatura import bootstrap
from fatura.bootstrap import Address
from fatura.cli import account
from fatura.cli.client import connect
from fatura.cli.operator import operator
from fatura.cli.options import (
    DEFAULT_HOST,
    DEFAULT_PORT,
    DataDir,
    Host,
    MetricsHost,
    Port,
    UpMetricsPort,
    announce,
    metrics_address,
    read_settings,
)
from fatura.cli.output import echo
from fatura.cli.processes import Child, run_until_set, run_until_stopped
from fatura.domain.credentials import Mode
from fatura.failure_text import reason_of
from fatura.observability import log
from fatura.settings import Settings

DATABASE_CHECK_SECONDS = 2
"""Interval between checks that the embedded PostgreSQL runs."""


def up(
    host: Host = DEFAULT_HOST,
    port: Port = DEFAULT_PORT,
    *,
    metrics_port: UpMetricsPort = None,
    metrics_host: MetricsHost = DEFAULT_HOST,
    data_dir: DataDir = None,
) -> None:
    """Start PostgreSQL (unless FATURA_DATABASE_URL is set), migrate, and run API and worker until Ctrl-C."""
    settings = read_settings(data_dir)
    address = Address(host, port)
    bootstrap.check_port(address)
    metrics = metrics_address(metrics_host, metrics_port)
    if metrics_port is not None:
        metrics_address(metrics_host, metrics_port + 1)
    with bootstrap.database(settings) as urls:
        bootstrap.migrate(urls)
        announce(settings)
        _show_account(settings, urls.url)
        greet = partial(greet_when_ready, address)
        run_until_stopped(
            lambda stop: run_engine(settings, stop, address=address, metrics=metrics, meanwhile=greet)
        )


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


async def greet_when_ready(address: Address) -> None:
    """Wait until the API is ready, then print its addresses, so that a request to them succeeds."""
    host = f"[{address.host}]" if ":" in address.host else address.host
    url = f"http://{host}:{address.port}"
    async with connect(url, api_key="") as client:
        while True:
            try:
                await client.wait_until_ready()
                break
            except TimeoutError:
                echo(
                    f"The API at {url} is not ready yet; still waiting. {url}/health/ready says what is missing."
                )
    echo(f"API       {url}/v1\ndocs      {url}/docs\nPress Ctrl-C to stop.")


async def run_engine(
    settings: Settings,
    stop: asyncio.Event,
    *,
    address: Address,
    metrics: Address | None = None,
    meanwhile: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Run API and worker as child processes, and call `meanwhile`. Stop when `stop` is set or `meanwhile` fails.

    The API serves its metrics on the address `metrics`, and the worker serves its own on the next port.
    """
    api = ["api", "--host", address.host, "--port", str(address.port)]
    worker = ["worker", "--beside-api"]
    if metrics is not None:
        for place, command in enumerate((api, worker)):
            command += ["--metrics-host", metrics.host, "--metrics-port", str(metrics.port + place)]
    children = [Child(command, settings=settings) for command in (api, worker)]
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
        log.error("up.failed", error=reason_of(error))
        stop.set()
        raise


async def _keep_database_running(settings: Settings, stop: asyncio.Event) -> None:
    """Restart the embedded PostgreSQL whenever it dies, until `stop` is set."""
    while not stop.is_set():
        try:
            await asyncio.to_thread(bootstrap.revive_database, settings)
        except bootstrap.STARTUP_FAILURES as error:
            log.error("database.not_started", error=reason_of(error))
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), DATABASE_CHECK_SECONDS)
