"""`fatura migrate`: update the tables to this version of Fatura, and optionally distribute them over Citus."""

import asyncio
import json
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from fatura import bootstrap
from fatura.cli.options import DataDir, Json, announce, read_settings

Distribute = Annotated[
    bool,
    typer.Option(
        "--distribute",
        help="After migrating, distribute all tables by account over a Citus cluster; repeat after each upgrade.",
    ),
]

AtMostGib = Annotated[
    int, typer.Option("--at-most-gib", min=1, help="Largest amount of data that --distribute may copy.")
]


def migrate(
    data_dir: DataDir = None,
    *,
    distribute: Distribute = False,
    at_most_gib: AtMostGib = bootstrap.AT_MOST_GIB,
    json_: Json = False,
) -> None:
    """Update the database's tables to this version of Fatura. Create the embedded database if there is none."""
    settings = read_settings(data_dir)
    distributed: Sequence[str] = ()
    with bootstrap.database(settings) as urls:
        applied = bootstrap.migrate(urls)
        announce(settings, as_owner=True)
        if distribute:
            distributed = _distribute(urls.owner_url, at_most_gib)
    if json_:
        typer.echo(json.dumps({"applied": applied, "distributed": distributed}))
        return
    for name in applied:
        typer.echo(f"applied {name}")
    if not applied:
        typer.echo("nothing to do: the database is up to date")
    if distribute:
        typer.echo(
            f"distributed {len(distributed)} table(s)"
            if distributed
            else "nothing to do: all tables are distributed"
        )


def _distribute(url: str, at_most_gib: int) -> Sequence[str]:
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("distributing tables")

        def report(name: str, percent: int) -> None:
            progress.update(task, description=f"distributing {name}", completed=percent)

        return asyncio.run(bootstrap.distribute(url, at_most_gib=at_most_gib, progress=report))
