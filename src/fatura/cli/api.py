"""`fatura api`: serve the HTTP API without background work."""

from fatura import bootstrap
from fatura.bootstrap import Address
from fatura.cli.options import (
    DEFAULT_HOST,
    DEFAULT_PORT,
    DataDir,
    Host,
    MetricsHost,
    MetricsPort,
    Port,
    WithParent,
    announce,
    metrics_address,
    read_settings,
    require_database,
)
from fatura.cli.processes import run_until_stopped


def api(
    host: Host = DEFAULT_HOST,
    port: Port = DEFAULT_PORT,
    *,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = DEFAULT_HOST,
    data_dir: DataDir = None,
    until_stdin_closes: WithParent = False,
) -> None:
    """Serve the HTTP API; run `fatura worker` for the background work."""
    settings = read_settings(data_dir)
    require_database(settings)
    address = Address(host, port)
    bootstrap.check_port(address)
    metrics = metrics_address(metrics_host, metrics_port)
    with bootstrap.migrated_database(settings) as url:
        if not until_stdin_closes:  # `fatura up` calls `announce` itself, so its children do not
            announce(settings)
        run_until_stopped(
            lambda stop: bootstrap.serve(settings, url, stop=stop, address=address, metrics=metrics),
            with_parent=until_stdin_closes,
        )
