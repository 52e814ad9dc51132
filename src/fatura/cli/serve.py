"""`fatura api` and `fatura worker`: one process each, for who runs them apart."""

import asyncio

from fatura import bootstrap
from fatura.cli.options import (
    DEFAULT_HOST,
    DEFAULT_PORT,
    DataDir,
    Host,
    MetricsPort,
    Port,
    WithParent,
    read_settings,
)
from fatura.cli.processes import run_until_stopped


def api(
    host: Host = DEFAULT_HOST,
    port: Port = DEFAULT_PORT,
    *,
    data_dir: DataDir = None,
    until_stdin_closes: WithParent = False,
) -> None:
    """Serve the HTTP API."""
    settings = read_settings(data_dir)
    bootstrap.check_port(host, port)
    with bootstrap.migrated_database(settings) as url:

        async def serve(stop: asyncio.Event) -> None:
            await bootstrap.serve(settings, url, stop=stop, host=host, port=port)

        run_until_stopped(serve, with_parent=until_stdin_closes)


def worker(
    data_dir: DataDir = None,
    host: Host = DEFAULT_HOST,
    *,
    metrics_port: MetricsPort = None,
    until_stdin_closes: WithParent = False,
) -> None:
    """Generate, issue, reconcile and mirror whatever is due; any number of workers may run."""
    settings = read_settings(data_dir)
    if metrics_port is not None:
        bootstrap.check_port(host, metrics_port)
    with bootstrap.migrated_database(settings) as url:

        async def work(stop: asyncio.Event) -> None:
            await bootstrap.work(settings, url, stop=stop, host=host, metrics_port=metrics_port)

        run_until_stopped(work, with_parent=until_stdin_closes)
