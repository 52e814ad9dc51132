"""`fatura account`: open, list, show, suspend and resume accounts, and erase customers (D-242, D-243, D-255)."""

import json
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import msgspec
import typer
from rich.console import Console
from rich.table import Column

from fatura.cli import account_keys, credentials
from fatura.cli.operator import operator
from fatura.cli.options import AccountId, DataDir, Json, checked_name, run_with_deps
from fatura.cli.output import add_row, counted, echo, table
from fatura.domain.account import AccountStatus, AccountSummary
from fatura.domain.audit import Actor
from fatura.domain.credentials import Mode
from fatura.usecases.accounts import overview, suspension
from fatura.usecases.accounts.accounts import OpenedAccount, open_account
from fatura.usecases.accounts.overview import AccountDetail
from fatura.usecases.deps import Deps
from fatura.usecases.subscriptions import operator_erasure
from fatura.views.integration import ApiKeyView
from fatura.views.view import instant

app = typer.Typer(
    help="Open, show, suspend and resume accounts, and manage their API keys.", no_args_is_help=True
)
app.add_typer(account_keys.app, name="key")


@app.command()
def create(
    name: Annotated[str, typer.Argument(callback=checked_name, help="Name of the account.")],
    mode: Annotated[
        Mode, typer.Option(help="`sandbox` makes no real charges and has a test clock; `live` charges.")
    ],
    data_dir: DataDir = None,
    *,
    json_: Json = False,
) -> None:
    """Open an account and show its API key and integration secret, which are not shown again.

    If the output is not a terminal, they go into a file that only you can read. With --json, they are always printed.
    """
    opened, folder = run_with_deps(data_dir, partial(_create, name=name, mode=mode, opened_by=operator()))
    if json_:
        typer.echo(as_json(opened))
    else:
        show(opened, folder=folder)


async def _create(deps: Deps, *, name: str, mode: Mode, opened_by: Actor) -> tuple[OpenedAccount, Path]:
    return await open_account(deps, name=name, mode=mode, opened_by=opened_by), deps.settings.data_dir


@app.callback()
def accounts() -> None:
    """Open, show, suspend and resume accounts, and manage their API keys."""


@app.command("list")
def list_(data_dir: DataDir = None, *, json_: Json = False) -> None:
    """List all accounts, oldest first, and whether they are suspended."""
    listed = run_with_deps(data_dir, _list)
    if json_:
        typer.echo(json.dumps({"accounts": listed}))
        return
    accounts_ = table(Column("account", no_wrap=True), "name", "mode", "status")
    for each in listed:
        add_row(accounts_, each["accountId"], each["name"], each["mode"], each["status"])
    Console().print(accounts_)


async def _list(deps: Deps) -> list[dict[str, Any]]:
    return [_summary(each) async for each in overview.list_all(deps)]


@app.command("show")
def show_(account_id: AccountId, data_dir: DataDir = None, *, json_: Json = False) -> None:
    """Show an account: its status, its totals, its working API keys and its gateway connections. No secret is shown."""
    found = run_with_deps(data_dir, partial(overview.show, account_id=account_id))
    shown = _detail(found)
    if json_:
        typer.echo(json.dumps(shown))
        return
    for name in ("accountId", "name", "mode", "currency", "createdAt", "status", "suspendedAt"):
        if shown[name] is not None:
            echo(f"{name:<12}{shown[name]}")
    echo("".join(f"\n{name:<24}{total}" for name, total in shown["totals"].items()))
    keys = table(
        Column("API key", no_wrap=True), "name", "scopes", "last used", "expires", title="API keys (UTC)"
    )
    for each in shown["apiKeys"]:
        used, expires = _minute(each["lastUsedAt"]), _minute(each["expiresAt"])
        add_row(keys, each["id"], each["name"], "\n".join(each["scopes"]), used, expires)
    gateways = table(
        Column("connection", no_wrap=True), "provider", "label", "active", title="Gateway connections"
    )
    for each in shown["gateways"]:
        is_active = "yes" if each["active"] else "no"
        add_row(gateways, each["connectionId"], each["provider"], each["label"] or "", is_active)
    Console().print(keys, gateways)


def _minute(instant_: str | None) -> str:
    """Return an instant without its seconds, so that a table fits into 80 columns. Return "never" for None."""
    return "never" if instant_ is None else instant_[:16].replace("T", " ")


@app.command()
def suspend(account_id: AccountId, data_dir: DataDir = None, *, json_: Json = False) -> None:
    """Stop an account: it is not billed, nothing new is sent for it, and its API keys are refused.

    Payments of charges that exist are still recorded. `fatura account resume` lets the account continue.
    The command waits until no charge, refund or cancellation can still be sent: usually seconds, at most minutes.
    """
    suspend_now = partial(
        suspension.suspend, account_id=account_id, asked_by=operator(), on_wait=_say_waiting
    )
    since = instant(run_with_deps(data_dir, suspend_now))
    if json_:
        typer.echo(
            json.dumps(
                {"accountId": str(account_id), "status": AccountStatus.SUSPENDED, "suspendedAt": since}
            )
        )
    else:
        echo(f"Account {account_id} is suspended since {since}.")


def _say_waiting(seconds: float) -> None:
    echo(
        f"The account is suspended. Waiting for calls to gateways that had begun, at most {seconds:.0f} s.",
        err=True,
    )


@app.command()
def resume(account_id: AccountId, data_dir: DataDir = None, *, json_: Json = False) -> None:
    """Let a suspended account continue where it stopped. Missed cycles are billed, one per day."""
    changed = run_with_deps(data_dir, partial(suspension.resume, account_id=account_id, asked_by=operator()))
    if json_:
        typer.echo(
            json.dumps({"accountId": str(account_id), "status": AccountStatus.ACTIVE, "suspendedAt": None})
        )
    else:
        echo(f"Account {account_id} continues." if changed else f"Account {account_id} was not suspended.")


@app.command("erase-customer")
def erase_customer(
    account_id: AccountId,
    customer_id: Annotated[UUID, typer.Argument(metavar="CUSTOMER", help="Id of the customer.")],
    data_dir: DataDir = None,
    *,
    json_: Json = False,
) -> None:
    """Cancel a customer's subscriptions and erase the customer, even while the account is suspended.

    If the customer has an open invoice, or a call about an invoice is in progress, nothing changes. The erasure cannot
    be undone.
    """
    erase = partial(
        operator_erasure.erase, account_id=account_id, customer_id=customer_id, asked_by=operator()
    )
    done = run_with_deps(data_dir, erase)
    canceled = done.canceled_subscriptions
    if json_:
        shown = {"accountId": str(account_id), "customerId": str(customer_id)}
        typer.echo(json.dumps({**shown, "canceledSubscriptions": canceled, "erased": done.is_done}))
        return
    echo(f"{counted(canceled, 'subscription')} canceled.")
    if done.is_done:
        echo(f"Customer {customer_id} is erased.")
    else:
        echo(f"Customer {customer_id} is being erased; workers continue. Repeat the command to see the end.")


def _summary(account: AccountSummary) -> dict[str, Any]:
    return {
        "accountId": str(account.account_id),
        "name": account.name,
        "mode": account.mode,
        "currency": account.currency,
        "createdAt": instant(account.created_at),
        "status": account.status,
        "suspendedAt": instant(account.suspended_at),
    }


def _detail(found: AccountDetail) -> dict[str, Any]:
    names = ("connectionId", "provider", "label", "active")
    return {
        **_summary(found.summary),
        "totals": dict(found.totals),
        "apiKeys": [msgspec.to_builtins(ApiKeyView.of(each)) for each in found.api_keys],
        "gateways": [
            dict(zip(names, (str(each.connection_id), each.provider, each.label, each.active), strict=True))
            for each in found.connections
        ],
    }


def as_json(opened: OpenedAccount) -> str:
    return json.dumps(
        {"accountId": str(opened.account_id), "apiKey": opened.api_key, "secret": opened.secret}
    )


def show(opened: OpenedAccount, *, folder: Path) -> None:
    """Print a new account's credentials, or write them to a file (D-208).

    Raises SettingsError if the file cannot be written.
    """
    text = f"account   {opened.account_id}\nAPI key   {opened.api_key}\nsecret    {opened.secret}"
    credentials.show(text, folder=folder, name=f"account-{opened.account_id}.txt")
