"""`fatura worker`: run background work without the HTTP API."""

from fatura import bootstrap
from fatura.cli.options import (
    DEFAULT_HOST,
    BesideApi,
    DataDir,
    MetricsHost,
    MetricsPort,
    WithParent,
    announce,
    metrics_address,
    read_settings,
    require_database,
)
from fatura.cli.processes import run_until_stopped


def worker(
    data_dir: DataDir = None,
    *,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = DEFAULT_HOST,
    until_stdin_closes: WithParent = False,
    beside_api: BesideApi = False,
) -> None:
    """Run background work: billing, charging, webhooks. Any number of workers may run."""
    settings = read_settings(data_dir)
    require_database(settings)
    metrics = metrics_address(metrics_host, metrics_port)
    with bootstrap.migrated_database(settings) as url:
        if not until_stdin_closes:  # `fatura up` calls `announce` itself, so its children do not
            announce(settings)
        run_until_stopped(
            lambda stop: bootstrap.work(settings, url, stop=stop, metrics=metrics, beside_api=beside_api),
            with_parent=until_stdin_closes,
        )
