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
from fatura.cli.gateway import fields, statement
from fatura.cli.options import Json
from fatura.cli.output import add_row, counted, echo, table

GATEWAYS = "/v1/integration/gateways"
POLL_SECONDS = 1
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
    label: Annotated[str | None, typer.Option("--label", help="Your own name for the connection.")] = None,
    json_: Json = False,
) -> None:
    """Connect a payment gateway, and show what the connection can do.

    The command asks for each required setting or credential that `--set` does not give. The provider checks the
    credentials before Fatura stores them.

    Examples:
    - `fatura gateway connect pix_key`
    - `fatura gateway connect pix_key --set pixKey=pix@example.com --set merchantName=Sol --set merchantCity=Recife`
    """

    async def work(client: Client) -> Any:
        known = await _provider(client, provider)
        values = fields.collect([*known["settings"], *known["credentials"]], set_ or ())
        form = _split(known, values) | {"provider": provider, "label": label}
        return await client.post(GATEWAYS, form)

    made = _run(api, api_key, work)
    if json_:
        typer.echo(json.dumps(made))
    else:
        _show_connection(made)


@app.command("list")
@_errors_reported()
def list_(api_key: ApiKey, *, api: Api = DEFAULT_API, json_: Json = False) -> None:
    """List the account's gateway connections, oldest first."""
    found = _run(api, api_key, lambda client: client.get(GATEWAYS))
    if json_:
        typer.echo(json.dumps(found))
        return
    shown = table(Column("connection", no_wrap=True), "provider", "label", "methods", "health")
    for each in found["data"]:
        health, methods = each["health"]["state"], ", ".join(each["methods"])
        add_row(shown, each["connectionId"], each["provider"], each["label"] or "", methods, health)
    Console().print(shown)


@app.command()
@_errors_reported()
def check(
    connection_id: ConnectionId, api_key: ApiKey, *, api: Api = DEFAULT_API, json_: Json = False
) -> None:
    """Ask the provider whether it accepts the stored credentials. The command exits with 1 if it does not."""
    checked = _run(api, api_key, lambda client: client.post(f"{GATEWAYS}/{connection_id}/check", None))
    error = checked["error"]
    if json_:
        typer.echo(json.dumps(checked))
    elif error is None:
        echo("The provider accepts the credentials.")
    else:
        echo(f"The check failed: {error['detail']} ({error['code']})", err=True)
    if error is not None:
        raise typer.Exit(1)


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

    The command asks for each of them that `--set NAME=@FILE` does not give. The provider checks the new credentials
    before Fatura stores them.
    """

    async def work(client: Client) -> Any:
        connection = await _connection(client, connection_id)
        known = await _provider(client, connection["provider"])
        secret = [field for field in (*known["settings"], *known["credentials"]) if field["secret"]]
        if not secret:
            raise ApiError(f"a connection to {connection['provider']} has no secrets to replace")
        changes = _split(known, fields.collect(secret, set_ or (), required=False))
        sent = {name: values for name, values in changes.items() if values}
        return await client.patch(f"{GATEWAYS}/{connection_id}", sent)

    changed = _run(api, api_key, work)
    typer.echo(json.dumps(changed)) if json_ else _show_connection(changed)


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
    """
    path, form = f"{GATEWAYS}/{connection_id}/statement", statement.read(file) | {"confirmed": confirm or []}
    shown = result = _run(api, api_key, lambda client: client.post(path, form | {"dryRun": True}))
    if not json_:
        statement.show(shown)
    # an import of duplicates only completes an earlier import that stopped (D-257)
    is_wanted = shown["new"] or shown["duplicates"]
    if is_wanted and not dry_run and (not shown["new"] or _is_confirmed("Import the new payments?", yes=yes)):
        result = _run(api, api_key, lambda client: client.post(path, form))
        if not json_:
            statement.show_import(result, shown=shown)
    if json_:
        typer.echo(json.dumps(result))


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
    result = _run(api, api_key, lambda client: client.post(path, body | {"dryRun": True}))
    if not json_:
        _show_move("would move", result)
    if result["moved"] and not dry_run and _is_confirmed("Move them?", yes=yes):
        result = _run(api, api_key, lambda client: _move(client, path, body, total=result["moved"]))
        if not json_:
            _show_move("moved", result)
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


def _show_move(verb: str, result: Any) -> None:
    echo(
        f"{counted(result['moved'], 'subscription')} {verb}; the other connection cannot bill "
        f"{result['skippedCount']}."
    )
    for each in result["skipped"]:
        echo(f"  {each['subscriptionId']}  {each['reason']}")


async def _provider(client: Client, name: str) -> Any:
    """Return a provider that the account can connect. Raises ApiError if there is none of this name."""
    offered = {each["provider"]: each for each in (await client.get("/v1/integration/providers"))["data"]}
    if name not in offered:
        raise ApiError(f"this account cannot connect {name}; it can connect {', '.join(offered)}")
    return offered[name]


async def _connection(client: Client, connection_id: UUID) -> Any:
    for each in (await client.get(GATEWAYS))["data"]:
        if each["connectionId"] == str(connection_id):
            return each
    raise ApiError(f"there is no connection {connection_id}; `fatura gateway list` shows all")


def _split(provider: Any, values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the values as the members `settings` and `credentials` of a request."""
    return {
        kind: {field["name"]: values[field["name"]] for field in provider[kind] if field["name"] in values}
        for kind in ("settings", "credentials")
    }


def _show_connection(connection: Any) -> None:
    installments = connection["maxInstallments"]
    minimum = connection["minAmountCents"]
    echo(f"connection     {connection['connectionId']}")
    echo(f"provider       {connection['provider']}")
    echo(f"methods        {', '.join(connection['methods'])}")
    if installments > 1:
        echo(f"installments   up to {installments} on a card")
    if minimum is not None:
        echo(f"lowest charge  {minimum} cents")
    echo(f"refunds        {'through the gateway' if connection['refunds'] else 'only outside Fatura'}")


def _is_confirmed(question: str, *, yes: bool) -> bool:
    """Return whether the person agrees. Raises ApiError if nobody can be asked."""
    if yes:
        return True
    if not sys.stdin.isatty():
        echo("fatura: nothing was changed, because stdin is not a terminal; add --yes to confirm", err=True)
        raise typer.Exit(1)
    return typer.confirm(question, err=True)


def _run(api: str, api_key: str, work: Callable[[Client], Awaitable[Any]]) -> Any:
    """Return the result of `work`. Raises ApiError."""

    async def main() -> Any:
        async with connect(api, api_key) as client:
            return await work(client)

    return asyncio.run(main())
