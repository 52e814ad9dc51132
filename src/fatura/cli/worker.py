"""`fatura worker`: run background work without the HTTP API."""

from fatura import bootstrap
from fatura.cli.options import (
    DEFAULT_HOST,
    BesideApi,
    DataDir,
    Host,
    MetricsPort,
    WithParent,
    announce,
    read_settings,
    require_database,
)
from fatura.cli.processes import run_until_stopped


def worker(
    data_dir: DataDir = None,
    host: Host = DEFAULT_HOST,
    *,
    metrics_port: MetricsPort = None,
    until_stdin_closes: WithParent = False,
    beside_api: BesideApi = False,
) -> None:
    """Run background work: billing, charging, webhooks. Any number of workers may run."""
    settings = read_settings(data_dir)
    require_database(settings)
    if metrics_port is not None:
        bootstrap.check_port(host, metrics_port)
    with bootstrap.migrated_database(settings) as url:
        if not until_stdin_closes:  # `fatura up` has printed this line for its children
            announce(settings)
        run_until_stopped(
            lambda stop: bootstrap.work(
                settings, url, stop=stop, host=host, metrics_port=metrics_port, beside_api=beside_api
            ),
            with_parent=until_stdin_closes,
        )
