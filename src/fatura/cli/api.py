"""`fatura api`: serve the HTTP API without background work."""

from fatura import bootstrap
from fatura.cli.options import (
    DEFAULT_HOST,
    DEFAULT_PORT,
    DataDir,
    Host,
    Port,
    WithParent,
    announce,
    read_settings,
    require_database,
)
from fatura.cli.processes import run_until_stopped


def api(
    host: Host = DEFAULT_HOST,
    port: Port = DEFAULT_PORT,
    *,
    data_dir: DataDir = None,
    until_stdin_closes: WithParent = False,
) -> None:
    """Serve the HTTP API; run `fatura worker` for the background work."""
    settings = read_settings(data_dir)
    require_database(settings)
    bootstrap.check_port(host, port)
    with bootstrap.migrated_database(settings) as url:
        if not until_stdin_closes:  # `fatura up` has printed this line for its children
            announce(settings)
        run_until_stopped(
            lambda stop: bootstrap.serve(settings, url, stop=stop, host=host, port=port),
            with_parent=until_stdin_closes,
        )
