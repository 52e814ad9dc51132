"""`fatura erased`: export the ids of erased customers, and erase them again after a restore from a backup (D-230)."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import typer
from rich.console import Console
from rich.progress import Progress

from fatura.cli.failed_accounts import failed_as_json, print_failed
from fatura.cli.operator import operator
from fatura.cli.options import ACCOUNT_FAILED, DataDir, Json, run_with_deps
from fatura.cli.output import counted, echo
from fatura.usecases.deps import Deps
from fatura.usecases.operations.checks import all_accounts
from fatura.usecases.operations.each_account import EachAccount, FailedAccount
from fatura.usecases.subscriptions import erased_list
from fatura.usecases.subscriptions.erased_list import Applied, Result

app = typer.Typer(help="List erased customers, and erase them again after a restore.", no_args_is_help=True)


@dataclass(frozen=True, slots=True)
class ErasedId:
    account_id: UUID
    customer_id: UUID


@dataclass(frozen=True, slots=True)
class _Report:
    applied: list[tuple[ErasedId, Applied]] = field(default_factory=list[tuple[ErasedId, Applied]])
    failed: list[FailedAccount] = field(default_factory=list[FailedAccount])


@app.command()
def export(data_dir: DataDir = None) -> None:
    """Print the ids of all erased customers, one JSON object per line: `accountId` and `customerId`.

    Export the list after each erasure, and keep it apart from the database and its backups: after a restore, you need
    the ids of the customers who were erased after the backup. An account that cannot be read is passed over; the exit
    code is then 3.
    """
    failed = run_with_deps(data_dir, _export)
    print_failed(failed, "was not exported")
    if failed:
        raise typer.Exit(ACCOUNT_FAILED)


async def _export(deps: Deps) -> Sequence[FailedAccount]:
    each = EachAccount(deps)
    for account_id in await all_accounts(deps):
        async with each.attempt(account_id):
            async for customer_id in erased_list.erased_ids(deps, account_id):
                typer.echo(json.dumps({"accountId": str(account_id), "customerId": str(customer_id)}))
    return each.failed


@app.command()
def apply(
    file: Annotated[
        Path, typer.Argument(help="The output of `fatura erased export`.", exists=True, dir_okay=False)
    ],
    data_dir: DataDir = None,
    *,
    json_: Json = False,
) -> None:
    """After a restore from a backup, erase again the customers that FILE lists, and cancel their subscriptions.

    Run this before `fatura restored`, while no other `fatura` process runs. You can repeat the command. Exits with 3
    if a customer could not be erased.
    """
    report = run_with_deps(data_dir, partial(_apply, listed=_read(file)))
    typer.echo(json.dumps(_as_json(report))) if json_ else _print(report)
    if report.failed:
        raise typer.Exit(ACCOUNT_FAILED)


def _read(file: Path) -> Sequence[ErasedId]:
    """Return the ids in a file. Raises typer.BadParameter if a line is malformed; nothing is erased in this case."""
    listed: list[ErasedId] = []
    for number, line in enumerate(file.read_text("utf-8").splitlines(), 1):
        if line.strip():
            try:
                values: Any = json.loads(line)
                listed.append(ErasedId(UUID(values["accountId"]), UUID(values["customerId"])))
            except (ValueError, TypeError, KeyError, AttributeError):
                message = f'line {number} must be like {{"accountId": "...", "customerId": "..."}}; nothing was erased'
                raise typer.BadParameter(message, param_hint="FILE") from None
    return listed


async def _apply(deps: Deps, *, listed: Sequence[ErasedId]) -> _Report:
    known, each, report = {*await all_accounts(deps)}, EachAccount(deps), _Report()
    with Progress(console=Console(stderr=True), transient=True) as progress:
        for erased in progress.track(listed, description="erasing customers"):
            if erased.account_id not in known:
                report.applied.append((erased, Applied(Result.UNKNOWN)))
                continue
            async with each.attempt(erased.account_id):
                applied = await erased_list.apply(
                    deps, erased.account_id, erased.customer_id, asked_by=operator()
                )
                report.applied.append((erased, applied))
    report.failed.extend(each.failed)
    return report


def _counts(report: _Report) -> Counter[Result]:
    return Counter(applied.result for _, applied in report.applied)


def _as_json(report: _Report) -> dict[str, object]:
    counts = _counts(report)
    return {
        "erased": counts[Result.ERASED],
        "erasedBefore": counts[Result.ERASED_BEFORE],
        "unknown": counts[Result.UNKNOWN],
        "canceledSubscriptions": sum(applied.canceled_subscriptions for _, applied in report.applied),
        "openInvoices": [
            {"accountId": str(erased.account_id), "invoiceId": str(invoice_id)}
            for erased, applied in report.applied
            for invoice_id in applied.open_invoice_ids
        ],
        "failed": failed_as_json(report.failed),
    }


def _print(report: _Report) -> None:
    counts = _counts(report)
    canceled = sum(applied.canceled_subscriptions for _, applied in report.applied)
    echo(
        f"{counted(counts[Result.ERASED], 'customer')} erased, {counts[Result.ERASED_BEFORE]} erased before, "
        f"{counts[Result.UNKNOWN]} not in this database; {counted(canceled, 'subscription')} canceled"
    )
    for erased, applied in report.applied:
        for invoice_id in applied.open_invoice_ids:
            echo(f"account {erased.account_id}: invoice {invoice_id} of an erased customer is open; close it")
    print_failed(report.failed, "has a customer that was not erased")
