"""`fatura migrate`: brings the tables up to this version, and spreads them over machines."""

import asyncio
import json
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from fatura import bootstrap
from fatura.cli.options import DataDir, Json, read_settings

Distribute = Annotated[
    bool,
    typer.Option(
        "--distribute",
        help="Then spread all tables by account over the nodes of a Citus cluster; again after an upgrade.",
    ),
]

AtMostGib = Annotated[
    int, typer.Option("--at-most-gib", min=1, help="How much may be copied by --distribute in one go.")
]


def migrate(
    data_dir: DataDir = None,
    *,
    distribute: Distribute = False,
    at_most_gib: AtMostGib = bootstrap.AT_MOST_GIB,
    json_: Json = False,
) -> None:
    """Bring the database's tables up to this version."""
    settings = read_settings(data_dir)
    spread: Sequence[str] = ()
    with bootstrap.database(settings) as url:
        applied = asyncio.run(bootstrap.migrate(url))
        if distribute:
            spread = _distribute(url, at_most_gib)
    if json_:
        typer.echo(json.dumps({"applied": applied, "distributed": spread}))
        return
    for name in applied:
        typer.echo(f"applied {name}")
    if not applied:
        typer.echo("nothing to do: the database is up to date")
    if distribute:
        typer.echo(f"spread {len(spread)} table(s)" if spread else "nothing to spread: all tables are")


def _distribute(url: str, at_most_gib: int) -> Sequence[str]:
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("spreading tables")

        def tell(name: str, percent: int) -> None:
            progress.update(task, description=f"spreading {name}", completed=percent)

        return asyncio.run(bootstrap.distribute(url, at_most_gib=at_most_gib, progress=tell))
