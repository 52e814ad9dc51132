"""`fatura check`: check the invariants of the stored data."""

import json
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from prometheus_client import write_to_textfile
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from fatura.cli.options import DataDir, Json, run_with_deps
from fatura.usecases.deps import Deps
from fatura.usecases.operations.checks import (
    INVARIANTS,
    Finding,
    all_accounts,
    findings,
    missing_accounts,
    set_metrics,
)

TextFile = Annotated[
    Path | None,
    typer.Option(
        "--textfile", help="Also write the result to this file as Prometheus metrics, for node_exporter."
    ),
]


def check(data_dir: DataDir = None, *, json_: Json = False, textfile: TextFile = None) -> None:
    """Check the invariants of all accounts; print violations and exit 1 if there are any."""
    accounts, found = run_with_deps(data_dir, _check)
    if textfile is not None:
        write_to_textfile(str(textfile), set_metrics(found))
    if json_:
        typer.echo(json.dumps({"accounts": accounts, "findings": [_as_json(finding) for finding in found]}))
    else:
        _print(accounts, found)
    if found:
        raise typer.Exit(1)


async def _check(deps: Deps) -> tuple[int, list[Finding]]:
    accounts = await all_accounts(deps)
    found = list(await missing_accounts(deps, accounts))
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("checking accounts", total=len(accounts) * len(INVARIANTS))
        advance = partial(progress.advance, task)
        for account_id in accounts:
            found.extend([each async for each in findings(deps, account_id, progress=advance)])
    return len(accounts), found


def _as_json(finding: Finding) -> dict[str, object]:
    return {
        "accountId": str(finding.account_id),
        "invariant": finding.invariant.name,
        "description": finding.invariant.description,
        "offenders": [str(offender) for offender in finding.offenders],
    }


def _print(accounts: int, found: list[Finding]) -> None:
    if not found:
        typer.echo(f"clean: every invariant holds in {accounts} account(s)")
        return
    table = Table(
        "account", "invariant", "which says", "violated by", title=f"{len(found)} violations", show_lines=True
    )
    for finding in found:
        offenders = "\n".join(map(str, finding.offenders))
        table.add_row(
            str(finding.account_id), finding.invariant.name, finding.invariant.description, offenders
        )
    Console().print(table)
