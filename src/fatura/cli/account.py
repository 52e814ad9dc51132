"""`fatura account`: open accounts."""

import json
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fatura.cli import credentials
from fatura.cli.operator import operator
from fatura.cli.options import DataDir, Json, run_with_deps
from fatura.domain.audit import Actor
from fatura.domain.credentials import Mode
from fatura.domain.text import unsafe_character
from fatura.usecases.accounts.accounts import OpenedAccount, open_account
from fatura.usecases.deps import Deps

app = typer.Typer(help="Open accounts.", no_args_is_help=True)
MAX_NAME_CHARS = 120


def _checked_name(name: str) -> str:
    if not name.strip() or len(name) > MAX_NAME_CHARS:
        raise typer.BadParameter(f"must be 1 to {MAX_NAME_CHARS} characters")
    if unsafe_character(name) is not None:
        raise typer.BadParameter("must not contain control or invisible characters")
    return name


@app.command()
def create(
    name: Annotated[str, typer.Argument(callback=_checked_name, help="Name of the account.")],
    mode: Annotated[
        Mode, typer.Option(help="`sandbox` makes no real charges and has a test clock; `live` charges.")
    ],
    data_dir: DataDir = None,
    *,
    json_: Json = False,
) -> None:
    """Open an account and show its API key and integration secret, which are not shown again.

    If the output is not a terminal, they go into a file that only you can read, unless you ask for --json.
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
    """Open accounts."""


def as_json(opened: OpenedAccount) -> str:
    return json.dumps(
        {"accountId": str(opened.account_id), "apiKey": opened.api_key, "secret": opened.secret}
    )


def show(opened: OpenedAccount, *, folder: Path) -> None:
    """Show a new account's credentials (D-208). Raises SettingsError."""
    text = f"account   {opened.account_id}\nAPI key   {opened.api_key}\nsecret    {opened.secret}"
    credentials.show(text, folder=folder, name=f"account-{opened.account_id}.txt")
