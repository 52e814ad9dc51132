"""`fatura trigger`: cause an event in a sandbox account with requests to the API."""

import asyncio
import json
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from fatura.cli.api_options import DEFAULT_API, Api, ApiKey
from fatura.cli.client import ApiError, Client, connect
from fatura.cli.event_stream import Stream
from fatura.cli.options import Json
from fatura.cli.output import echo
from fatura.cli.processes import run_until_set, run_until_stopped
from fatura.cli.trigger.recipes import RECIPES
from fatura.cli.trigger.scene import Scene
from fatura.domain.events import CATALOGUE

NAME_CHARS = 30


def _print_list(asked: bool) -> None:  # noqa: FBT001 - typer passes the flag by position
    if not asked:
        return
    for name in CATALOGUE:
        recipe = RECIPES.get(name)
        says = "cannot be triggered" if recipe is None else recipe.says
        clock = "; moves the test clock" if recipe is not None and recipe.moves_clock else ""
        echo(f"{name:<{NAME_CHARS}}  {says}{clock}")
    raise typer.Exit


def _checked_event(name: str) -> str:
    if name in RECIPES:
        return name
    if name in CATALOGUE:
        raise typer.BadParameter(f"{name} cannot be triggered; `fatura trigger --list` shows which can")
    raise typer.BadParameter(f"{name} is no event type; `fatura trigger --list` shows all")


def _complete(incomplete: str) -> Sequence[tuple[str, str]]:
    return [(name, recipe.says) for name, recipe in RECIPES.items() if name.startswith(incomplete)]


def trigger(
    event: Annotated[
        str,
        typer.Argument(
            callback=_checked_event, autocompletion=_complete, help="Type of the event, such as invoice.paid."
        ),
    ],
    api_key: ApiKey,
    *,
    api: Api = DEFAULT_API,
    connection: Annotated[
        str | None,
        typer.Option("--connection", help="Id of the gateway connection; default: the oldest active one."),
    ] = None,
    json_: Json = False,
    _list: Annotated[
        bool,
        typer.Option(
            "--list", callback=_print_list, is_eager=True, help="List all events, and how each is caused."
        ),
    ] = False,
) -> None:
    """Make an event happen in a sandbox account, and print it.

    The command sends the requests that cause the event: it creates a product and a plan, subscribes a new customer,
    and changes the charge in the sandbox gateway. Your webhook gets all events that these requests cause. A worker
    must run; `fatura up` starts one. For some events, the command moves the account's test clock, and other
    invoices of the account may then fall due too.

    Examples:
    - `fatura trigger invoice.paid`
    - `fatura trigger invoice.pricing_exhausted --json`
    - `fatura trigger --list`
    """
    caused: list[Any] = []

    async def work(stop: asyncio.Event) -> None:
        async with connect(api, api_key) as client:

            async def cause() -> None:
                caused.append(await cause_event(client, event, connection=connection))

            await run_until_set(stop, cause)

    try:
        run_until_stopped(work)
    except ApiError as error:
        _note(f"fatura: {error}")
        raise typer.Exit(1) from error
    if not caused:
        raise typer.Exit(1)
    (found,) = caused
    if json_:
        typer.echo(json.dumps(found))
    else:
        echo(f"#{found['sequence']}  {found['type']}  {found['id']}")


async def cause_event(client: Client, event: str, *, connection: str | None) -> Any:
    """Cause the event and return it. Raises ApiError."""
    integration = await client.get("/v1/integration")
    if integration["mode"] != "sandbox":
        raise ApiError(
            "events can be triggered in sandbox accounts only, and this API key belongs to a live account"
        )
    after = await Stream(client, print_note=_note).last_sequence()
    scene = Scene(client, after=after, connection_id=_connection(integration, connection), note=_note)
    await RECIPES[event].act(scene)
    return await scene.wait_for(event)


def _connection(integration: Any, wanted: str | None) -> str:
    """Return the id of an active connection that issues charges: `wanted`, or the first one if `wanted` is None.

    Raises ApiError if there is no such connection.
    """
    usable = [
        each["connectionId"] for each in integration["gateways"] if each["active"] and each["issuesCharges"]
    ]
    if wanted is None and usable:
        return usable[0]
    if wanted is not None and wanted in usable:
        return wanted
    raise ApiError("there is no such active gateway connection; GET /v1/integration lists the connections")


def _note(text: str) -> None:
    echo(text, err=True)
