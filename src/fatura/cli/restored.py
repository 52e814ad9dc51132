"""`fatura restored`: compare charges at the gateways with a database restored from a backup (D-123)."""

import json
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Annotated
from uuid import UUID

import typer
from rich.console import Console
from rich.progress import Progress

from fatura import bootstrap
from fatura.cli.operator import operator
from fatura.cli.options import ACCOUNT_FAILED, DataDir, Json, run_with_deps
from fatura.cli.output import add_row, echo, table
from fatura.domain.calendar import EARLIEST_INSTANT
from fatura.usecases.deps import Deps
from fatura.usecases.operations.checks import all_accounts
from fatura.usecases.operations.each_account import EachAccount
from fatura.usecases.restore import comparison
from fatura.usecases.restore.comparison import RestoreReport
from fatura.usecases.restore.matching import MEANINGS, MatchKind

ERASED_AGAIN = (
    "If customers were erased after the backup, their data is back. Erase them again with `fatura erased apply FILE` "
    "before you start workers, and then repeat `fatura restored`: it reports the charges of subscriptions that are "
    "now canceled."
)


def restored(
    since: Annotated[
        str,
        typer.Option(
            help="When the backup was begun, with the zone (2026-11-20T03:00:00Z); an earlier time is safe."
        ),
    ],
    skip: Annotated[
        list[UUID] | None,
        typer.Option(
            help="A gateway connection whose charges you have compared by hand; may be given several times."
        ),
    ] = None,
    *,
    data_dir: DataDir = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count; change nothing.")] = False,
    json_: Json = False,
) -> None:
    """After a restore, find the charges that gateways made since the backup, so that no charge is made twice.

    Until an account's charges are compared, none of its invoices is generated or issued. You can repeat the command.
    Exits with 3 if a person must act: some charges remain unmatched, or an account or connection was not compared.
    """
    recover = partial(_recover, since=_instant(since), skipping=frozenset(skip or ()), dry_run=dry_run)
    reports = run_with_deps(data_dir, recover)
    typer.echo(json.dumps(_as_json(reports))) if json_ else _print(reports)
    echo(ERASED_AGAIN, err=True)
    if any(each.unmatched or each.problems for each in reports):
        raise typer.Exit(ACCOUNT_FAILED)


def _instant(text: str) -> datetime:
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        instant = None
    if instant is None or instant.tzinfo is None:
        message = "must be an instant with its zone, such as 2026-11-20T03:00:00Z"
        raise typer.BadParameter(message, param_hint="--since")
    if not EARLIEST_INSTANT <= instant <= bootstrap.real_clock():
        raise typer.BadParameter("must lie between the year 2000 and now", param_hint="--since")
    return instant.astimezone(UTC)


async def _recover(
    deps: Deps, *, since: datetime, skipping: frozenset[UUID], dry_run: bool
) -> Sequence[RestoreReport]:
    """Freeze all accounts, except in a dry run. Then compare each account with its gateways, and return the reports.

    An account that cannot be frozen is not compared. If a comparison fails, its account stays frozen. In both cases,
    the command continues with the next account (D-216).
    """
    accounts, freezing, comparing = await all_accounts(deps), EachAccount(deps), EachAccount(deps)
    reports: list[RestoreReport] = []
    with Progress(console=Console(stderr=True), transient=True) as progress:
        if not dry_run:
            for account_id in progress.track(accounts, description="freezing accounts"):
                async with freezing.attempt(account_id):
                    await comparison.freeze(deps, account_id)
        unfrozen = {failure.account_id for failure in freezing.failed}
        frozen = [each for each in accounts if each not in unfrozen]
        for account_id in progress.track(frozen, description="comparing with gateways"):
            async with comparing.attempt(account_id):
                if not dry_run:
                    await comparison.record(deps, account_id, asked_by=operator())
                reports.append(
                    await comparison.compare(
                        deps, account_id, since=since, skipping=skipping, dry_run=dry_run
                    )
                )
    for failed, is_frozen in ((comparing.failed, True), (freezing.failed, False)):
        reports += [RestoreReport(each.account_id, is_frozen, problems=[each.why]) for each in failed]
    return reports


def _as_json(reports: Sequence[RestoreReport]) -> dict[str, object]:
    counts = sum((each.counts for each in reports), Counter[MatchKind]())
    return {
        "accounts": len(reports),
        "charges": {str(kind): counts[kind] for kind in MatchKind},
        "unmatched": [
            {
                "accountId": str(each.account_id),
                "connectionId": str(unmatched.connection_id),
                "chargeId": unmatched.charge.charge_id,
                "invoiceId": str(unmatched.charge.invoice_id),
                "amountCents": unmatched.charge.amount_cents,
                "state": str(unmatched.charge.state),
                "why": unmatched.why,
            }
            for each in reports
            for unmatched in each.unmatched
        ],
        "notCompared": [
            {"accountId": str(each.account_id), "frozen": each.is_frozen, "why": problem}
            for each in reports
            for problem in each.problems
        ],
    }


def _print(reports: Sequence[RestoreReport]) -> None:
    counts = sum((each.counts for each in reports), Counter[MatchKind]())
    charges = table("charges", "", "", title=f"{len(reports)} account(s) compared with their gateways")
    for kind, meaning in MEANINGS.items():
        add_row(charges, counts[kind], kind, meaning)
    Console().print(charges)
    unmatched_charges = table(
        "account", "charge", "invoice", "cents", "state", "why", title="A person must check"
    )
    for each in reports:
        for unmatched in each.unmatched:
            charge = unmatched.charge
            ids = each.account_id, charge.charge_id, charge.invoice_id
            add_row(unmatched_charges, *ids, charge.amount_cents, charge.state, unmatched.why)
    if unmatched_charges.row_count:
        Console().print(unmatched_charges)
    for each in reports:
        for problem in each.problems:
            state = "stays frozen" if each.is_frozen else "may be billed, because it could not be frozen"
            echo(f"account {each.account_id} {state}: {problem}", err=True)
