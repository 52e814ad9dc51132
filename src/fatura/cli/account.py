"""`fatura account`: open accounts."""

import json
from functools import partial
from typing import Annotated

import typer

from fatura.cli.operator import operator
from fatura.cli.options import DataDir, Json, run_with_deps
from fatura.domain.credentials import Mode
from fatura.usecases.accounts.accounts import OpenedAccount, open_account

app = typer.Typer(help="Open accounts.", no_args_is_help=True)
MAX_NAME_CHARS = 120


def _checked_name(name: str) -> str:
    if not name.strip() or len(name) > MAX_NAME_CHARS:
        raise typer.BadParameter(f"must be 1 to {MAX_NAME_CHARS} characters")
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
    """Open an account and print its API key and integration secret, which are not shown again."""
    open_ = partial(open_account, name=name, mode=mode, opened_by=operator())
    opened = run_with_deps(data_dir, open_)
    typer.echo(as_json(opened) if json_ else as_text(opened))


@app.callback()
def accounts() -> None:
    """Open accounts."""


def as_json(opened: OpenedAccount) -> str:
    return json.dumps(
        {"accountId": str(opened.account_id), "apiKey": opened.api_key, "secret": opened.secret}
    )


def as_text(opened: OpenedAccount) -> str:
    return (
        f"account   {opened.account_id}\n"
        f"API key   {opened.api_key}\n"
        f"secret    {opened.secret}\n"
        "Store the API key and the secret now: they are not shown again."
    )
