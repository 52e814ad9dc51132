"""`fatura check`: check the invariants of the stored data."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from prometheus_client import write_to_textfile
from rich.console import Console
from rich.progress import Progress

from fatura.cli.failed_accounts import failed_as_json, print_failed
from fatura.cli.options import ACCOUNT_FAILED, DataDir, Json, run_with_deps
from fatura.cli.output import add_row, table
from fatura.usecases.deps import Deps
from fatura.usecases.operations.checks import (
    INVARIANTS,
    Finding,
    all_accounts,
    findings,
    missing_accounts,
    set_metrics,
)
from fatura.usecases.operations.each_account import EachAccount, FailedAccount

TextFile = Annotated[
    Path | None,
    typer.Option(
        "--textfile", help="Also write the result to this file as Prometheus metrics, for node_exporter."
    ),
]


def check(data_dir: DataDir = None, *, json_: Json = False, textfile: TextFile = None) -> None:
    """Check the invariants of all accounts; print violations and exit 1 if there are any.

    An account that cannot be checked is passed over; the exit code is then 3.
    """
    checked = run_with_deps(data_dir, _check)
    if textfile is not None and not checked.failed:
        write_to_textfile(str(textfile), set_metrics(checked.found))
    typer.echo(json.dumps(_as_json(checked))) if json_ else _print(checked)
    if checked.failed:
        raise typer.Exit(ACCOUNT_FAILED)
    if checked.found:
        raise typer.Exit(1)


@dataclass(frozen=True, slots=True)
class _Checked:
    """The result of the command. `accounts` counts all accounts, including the `failed` ones."""

    accounts: int
    found: Sequence[Finding]
    failed: Sequence[FailedAccount]


async def _check(deps: Deps) -> _Checked:
    accounts, each = await all_accounts(deps), EachAccount(deps)
    found = list(await missing_accounts(deps, accounts))
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("checking accounts", total=len(accounts) * len(INVARIANTS))
        advance = partial(progress.advance, task)
        for account_id in accounts:
            async with each.attempt(account_id):
                found += await findings(deps, account_id, progress=advance)
    return _Checked(len(accounts), found, each.failed)


def _as_json(checked: _Checked) -> dict[str, object]:
    findings_ = [
        {
            "accountId": str(finding.account_id),
            "invariant": finding.invariant.name,
            "description": finding.invariant.description,
            "offenders": [str(offender) for offender in finding.offenders],
        }
        for finding in checked.found
    ]
    return {"accounts": checked.accounts, "findings": findings_, "notChecked": failed_as_json(checked.failed)}


def _print(checked: _Checked) -> None:
    if checked.found:
        title = f"{len(checked.found)} violations"
        violations = table("account", "invariant", "which says", "violated by", title=title)
        violations.show_lines = True
        for finding in checked.found:
            offenders = "\n".join(map(str, finding.offenders))
            account, invariant = str(finding.account_id), finding.invariant
            add_row(violations, account, invariant.name, invariant.description, offenders)
        Console().print(violations)
    elif not checked.failed:
        typer.echo(f"clean: every invariant holds in {checked.accounts} account(s)")
    print_failed(checked.failed, "was not checked")
