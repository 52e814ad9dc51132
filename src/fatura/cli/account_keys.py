"""`fatura account key`: create and revoke an account's API keys on the host, without an API key (D-243)."""

import json
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated
from uuid import UUID

import msgspec
import typer

from fatura.cli import credentials
from fatura.cli.operator import operator
from fatura.cli.options import AccountId, DataDir, Json, checked_name, run_with_deps
from fatura.cli.output import echo
from fatura.domain.audit import Actor, Origin
from fatura.domain.audit_actions import API_KEY_CREATE, API_KEY_REVOKE
from fatura.domain.credentials import ALL_SCOPES, Scope
from fatura.usecases.accounts import api_keys, overview
from fatura.usecases.audit_draft import AuditDraft
from fatura.usecases.deps import Deps
from fatura.usecases.transaction import in_audited_transaction
from fatura.views.integration import NewApiKeyView

app = typer.Typer(help="Create and revoke API keys of an account.", no_args_is_help=True)
Scopes = Annotated[
    list[Scope] | None,
    typer.Option("--scope", help="A scope of the key; repeat it for several. Default: all."),
]
Expires = Annotated[
    datetime | None,
    typer.Option(
        "--expires",
        formats=["%Y-%m-%dT%H:%M:%S%z"],
        help="When the key expires, such as 2027-01-31T12:00:00Z. By default, it does not expire.",
    ),
]


@app.command()
def create(
    account_id: AccountId,
    name: Annotated[
        str, typer.Option("--name", callback=checked_name, help="Name of the key, which lists show.")
    ],
    scope: Scopes = None,
    expires: Expires = None,
    data_dir: DataDir = None,
    *,
    json_: Json = False,
) -> None:
    """Create an API key and show it once, for example if an account has lost all its keys.

    If the output is not a terminal, the key goes into a file that only you can read. With --json, it is always printed.
    """
    scopes = frozenset(scope) if scope else ALL_SCOPES
    key, folder = run_with_deps(
        data_dir,
        partial(
            _create, account_id=account_id, name=name, scopes=scopes, expires=expires, asked_by=operator()
        ),
    )
    if json_:
        typer.echo(json.dumps(msgspec.to_builtins(key)))
    else:
        text = f"account   {account_id}\nkey id    {key.id}\nAPI key   {key.key}"
        credentials.show(text, folder=folder, name=f"api-key-{key.id}.txt")


async def _create(
    deps: Deps,
    *,
    account_id: UUID,
    name: str,
    scopes: frozenset[Scope],
    expires: datetime | None,
    asked_by: Actor,
) -> tuple[NewApiKeyView, Path]:
    account = await overview.load(deps, account_id)
    draft = AuditDraft(Origin(asked_by), API_KEY_CREATE)
    key = await in_audited_transaction(
        deps, account, draft, api_keys.issue, name, scopes=scopes, expires_at=expires
    )
    return key, deps.settings.data_dir


@app.command()
def revoke(
    account_id: AccountId,
    key_id: Annotated[UUID, typer.Argument(metavar="KEY", help="Id of the key, as `account show` shows it.")],
    data_dir: DataDir = None,
    *,
    json_: Json = False,
) -> None:
    """Revoke an API key immediately and permanently. The account's last key can be revoked too."""
    run_with_deps(data_dir, partial(_revoke, account_id=account_id, key_id=key_id, asked_by=operator()))
    if json_:
        typer.echo(json.dumps({"accountId": str(account_id), "id": str(key_id), "revoked": True}))
    else:
        echo(f"API key {key_id} is revoked.")


async def _revoke(deps: Deps, *, account_id: UUID, key_id: UUID, asked_by: Actor) -> None:
    account = await overview.load(deps, account_id)
    draft = AuditDraft(Origin(asked_by), API_KEY_REVOKE)
    await in_audited_transaction(deps, account, draft, api_keys.revoke, key_id, may_be_last=True)
