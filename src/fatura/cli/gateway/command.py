"""The commands of `fatura gateway` (D-259)."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn
from rich.table import Column

from fatura.cli.api_options import DEFAULT_API, Api, ApiKey
from fatura.cli.client import NOT_AN_API, ApiError, Client, connect
from fatura.cli.gateway import connections, fields, statement
from fatura.cli.gateway.connections import GATEWAYS
from fatura.cli.options import Json
from fatura.cli.output import add_row, counted, echo, table

POLL_SECONDS = 1
NEEDS_PERSON = 3
"""Exit code of an import with `--yes` if a person must decide about credits."""
app = typer.Typer(
    help="Connect payment gateways, check and change connections, and import bank statements.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
ConnectionId = Annotated[
    UUID,
    typer.Argument(metavar="CONNECTION", help="Id of the connection, as `fatura gateway list` shows it."),
]
Values = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A value; NAME=@FILE reads it from a file. Repeatable."),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")]
Label = Annotated[str | None, typer.Option("--label", help="Your own name for the connection.")]


@contextmanager
def _errors_reported() -> Generator[None]:
    """Print why a command cannot continue, and exit with 1: an ApiError, or an answer without an expected member."""
    try:
        yield
    except ApiError as error:
        echo(f"fatura: {error}", err=True)
        raise typer.Exit(1) from error
    except (AttributeError, LookupError, TypeError) as error:
        echo(f"fatura: {NOT_AN_API}", err=True)
        raise typer.Exit(1) from error


@app.command("connect")
@_errors_reported()
def connect_(
    provider: Annotated[str, typer.Argument(help="Name of the provider, such as pix_key.")],
    api_key: ApiKey,
    *,
    api: Api = DEFAULT_API,
    set_: Values = None,
    label: Label = None,
    json_: Json = False,
) -> None:
    """Connect a payment gateway, and show what the connection can do.

    The command asks for each required setting or credential that `--set` does not give. The provider checks the
    credentials before Fatura stores them.

    Examples:
    - `fatura gateway connect pix_key`
    - `fatura gateway connect pix_key --set pixKey=pix@example.com --set merchantName=Sol --set merchantCity=Recife`
    """
    known = _run(api, api_key, lambda client: connections.provider(client, provider))
    values = fields.collect([*known["settings"], *known["credentials"]], set_ or ())
    form = connections.split(known, values) | {"provider": provider, "label": label}
    # before the new connection exists, because a failure afterwards would look as if it did not exist
    others = _run(api, api_key, lambda client: connections.active(client, provider))
    made = _run(api, api_key, lambda client: client.post(GATEWAYS, form))
    if json_:
        typer.echo(json.dumps(made))
    else:
        connections.show(made, known)
    if others:
        echo(
            f"This account has other active connections to {provider}: {', '.join(others)}. New subscriptions must "
            "name their gatewayConnectionId, until only one connection is active (fatura gateway set ID --inactive).",
            err=True,
        )


@app.command("list")
@_errors_reported()
def list_(api_key: ApiKey, *, api: Api = DEFAULT_API, json_: Json = False) -> None:
    """List the account's gateway connections, oldest first."""
    found = _run(api, api_key, lambda client: client.get(GATEWAYS))
    shown = table(Column("connection", no_wrap=True), "provider", "label", "active", "methods", "health")
    for each in found["data"]:
        active, health = "yes" if each["active"] else "no", each["health"]["state"]
        methods = ", ".join(each["methods"])
        add_row(shown, each["connectionId"], each["provider"], each["label"] or "", active, methods, health)
    typer.echo(json.dumps(found)) if json_ else Console().print(shown)


@app.command()
@_errors_reported()
def check(
    connection_id: ConnectionId, api_key: ApiKey, *, api: Api = DEFAULT_API, json_: Json = False
) -> None:
    """Ask the provider whether it accepts the stored credentials. The command exits with 1 if it does not."""

    async def work(client: Client) -> tuple[Any, Any]:
        checked = await client.post(f"{GATEWAYS}/{connection_id}/check", None)
        return checked, await connections.provider(client, checked["connection"]["provider"])

    checked, known = _run(api, api_key, work)
    error = checked["error"]
    if json_:
        typer.echo(json.dumps(checked))
    elif error is not None:
        echo(f"The check failed: {error['detail']} ({error['code']})", err=True)
    elif known["credentials"]:
        echo("The provider accepts the credentials.")
    else:
        echo(f"A connection to {known['provider']} has no credentials that could be checked.")
    if error is not None:
        raise typer.Exit(1)


@app.command("set")
@_errors_reported()
def set_command(
    connection_id: ConnectionId,
    api_key: ApiKey,
    *,
    api: Api = DEFAULT_API,
    set_: Values = None,
    label: Label = None,
    active: Annotated[
        bool | None,
        typer.Option(
            "--active/--inactive",
            help="Whether new subscriptions can use the connection, and its invoices are issued.",
        ),
    ] = None,
    json_: Json = False,
) -> None:
    """Change settings of a connection, its label, or whether it is active. Other settings stay as they are.

    Example: `fatura gateway set CONNECTION --set merchantCity=Recife`
    """

    async def work(client: Client) -> tuple[Any, Any]:
        connection = await connections.connection(client, connection_id)
        known = await connections.provider(client, connection["provider"])
        changes: dict[str, Any] = {
            "settings": fields.given(known["settings"], set_ or ()) or None,
            "label": label,
            "active": active,
        }
        sent = {name: value for name, value in changes.items() if value is not None}
        if not sent:
            raise ApiError("name a change: --set, --label, --active or --inactive")
        return await client.patch(f"{GATEWAYS}/{connection_id}", sent), known

    changed, known = _run(api, api_key, work)
    typer.echo(json.dumps(changed)) if json_ else connections.show(changed, known)


@app.command()
@_errors_reported()
def rotate(
    connection_id: ConnectionId,
    api_key: ApiKey,
    *,
    api: Api = DEFAULT_API,
    set_: Values = None,
    json_: Json = False,
) -> None:
    """Replace the credentials and the secret settings of a connection.

    The command asks for each of them that `--set NAME=@FILE` does not give. A secret setting that you leave empty stays
    as it is, but new credentials replace all stored ones. The provider checks them before Fatura stores them.
    """

    async def find(client: Client) -> Any:
        connection = await connections.connection(client, connection_id)
        return await connections.provider(client, connection["provider"])

    known = _run(api, api_key, find)
    # unlike the credentials, the settings that are not sent stay as they are
    settings = [field | {"required": False} for field in known["settings"] if field["secret"]]
    asked = [*known["credentials"], *settings]
    if not asked:
        raise ApiError(f"a connection to {known['provider']} has no secrets to replace")
    changes = connections.split(known, fields.collect(asked, set_ or (), with_optional=True))
    sent = {name: values for name, values in changes.items() if values}
    if not sent:
        raise ApiError("no value was given, so nothing was changed")
    changed = _run(api, api_key, lambda client: client.patch(f"{GATEWAYS}/{connection_id}", sent))
    if json_:
        typer.echo(json.dumps(changed))
        return
    echo("The new values are stored.")
    connections.show(changed, known)


@app.command("import")
@_errors_reported()
def import_(
    connection_id: ConnectionId,
    file: Annotated[Path, typer.Argument(help="Bank statement, as an OFX or CSV file.")],
    api_key: ApiKey,
    *,
    api: Api = DEFAULT_API,
    confirm: Annotated[
        list[str] | None,
        typer.Option("--confirm", metavar="BANK_ID", help="A `similar` credit that is a payment of its own."),
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    json_: Json = False,
) -> None:
    """Import the Pix payments of a bank statement into a connection with a Pix key.

    The command first shows what it would import, and then asks. Importing a statement again records nothing twice.
    With `--yes`, it exits with 3 if a person must decide about credits.
    """
    path, form = f"{GATEWAYS}/{connection_id}/statement", statement.read(file) | {"confirmed": confirm or []}
    shown = result = _run(api, api_key, lambda client: client.post(path, form | {"dryRun": True}))
    if not json_:
        statement.show(shown)
    # an import of duplicates only completes an earlier import that stopped (D-257)
    is_wanted = (shown["new"] or shown["duplicates"]) and not dry_run
    if is_wanted and (not shown["new"] or _is_confirmed("Import the new payments?", yes=yes, json_=json_)):
        result = _run(api, api_key, lambda client: client.post(path, form))
        if not json_:
            statement.show_import(result, shown=shown)
    if json_:
        typer.echo(json.dumps(result))
    if yes and result["needsYou"]:
        raise typer.Exit(NEEDS_PERSON)


@app.command()
@_errors_reported()
def move(
    from_id: Annotated[UUID, typer.Argument(metavar="FROM", help="Id of the connection that bills now.")],
    to_id: Annotated[UUID, typer.Argument(metavar="TO", help="Id of the connection that bills from now on.")],
    api_key: ApiKey,
    *,
    api: Api = DEFAULT_API,
    dry_run: DryRun = False,
    yes: Yes = False,
    json_: Json = False,
) -> None:
    """Move all active subscriptions of a connection to another connection, from their next cycle on.

    The command first shows how many subscriptions would move, and then asks. It shows the progress until the move ends;
    if you interrupt the command, the move continues.
    """
    path, body = f"{GATEWAYS}/{from_id}/move", {"toConnectionId": str(to_id)}

    async def try_out(client: Client) -> Any:
        await connections.connection(client, from_id)
        to = await connections.connection(client, to_id)
        if not to["active"]:
            raise ApiError(
                f"connection {to_id} is inactive; activate it with `fatura gateway set {to_id} --active`"
            )
        if not to["issuesCharges"]:
            raise ApiError(f"connection {to_id} cannot create charges")
        return await client.post(path, body | {"dryRun": True})

    result = _run(api, api_key, try_out)
    if not json_:
        _show_move(result, moved="would move", skipped="would be skipped")
    if result["moved"] and not dry_run and _is_confirmed("Move them?", yes=yes, json_=json_):
        result = _run(api, api_key, lambda client: _move(client, path, body, total=result["moved"]))
        if not json_:
            _show_move(result, moved="moved", skipped="skipped")
    if json_:
        typer.echo(json.dumps(result))
    if result.get("status") == "stopped":
        echo(f"The move stopped, because connection {to_id} was made inactive.", err=True)
        raise typer.Exit(1)


async def _move(client: Client, path: str, body: object, *, total: int) -> Any:
    """Start the move, wait until it ends, and return its result."""
    await client.post(path, body)
    columns = SpinnerColumn(), TextColumn("{task.completed:,.0f} of {task.total:,.0f} subscriptions moved")
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("move", total=total)
        while (moved := await client.get(path))["status"] == "running":
            progress.update(task, completed=moved["moved"])
            await asyncio.sleep(POLL_SECONDS)
    return moved


def _show_move(result: Any, *, moved: str, skipped: str) -> None:
    echo(f"{counted(result['moved'], 'subscription')} {moved}, {result['skippedCount']} {skipped}.")
    for each in result["skipped"]:
        echo(f"  {each['subscriptionId']}  {each['reason']}")


def _is_confirmed(question: str, *, yes: bool, json_: bool) -> bool:
    """Return whether the person agrees. Exit with 1 if there is no terminal to ask."""
    if yes:
        return True
    if json_ or not sys.stdin.isatty():
        why = "--json asks nothing" if json_ else "stdin is not a terminal"
        echo(f"fatura: nothing was changed, because {why}; add --yes to confirm", err=True)
        raise typer.Exit(1)
    is_confirmed = typer.confirm(question, err=True)
    if not is_confirmed:
        echo("Nothing was changed.", err=True)
    return is_confirmed


def _run(api: str, api_key: str, work: Callable[[Client], Awaitable[Any]]) -> Any:
    """Return the result of `work`. Raises ApiError."""

    async def main() -> Any:
        async with connect(api, api_key) as client:
            return await work(client)

    return asyncio.run(main())
