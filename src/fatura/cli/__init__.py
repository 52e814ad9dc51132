"""The command `fatura`: `main` runs it, and modules and packages of this folder define its subcommands (D-47)."""

import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from fatura import __version__
from fatura.bootstrap import STARTUP_FAILURES
from fatura.cli import account, api, check, erased, keys, migrate, reference, restored, up, worker
from fatura.cli.demo import command as demo
from fatura.cli.events import command as events
from fatura.cli.gateway import command as gateway
from fatura.cli.listen import command as listen
from fatura.cli.output import echo, printable_lines
from fatura.cli.trigger import command as trigger
from fatura.domain.errors import EngineError
from fatura.observability import traceback_of

app = typer.Typer(
    name="fatura",
    help="A recurring-billing engine: define plans, subscribe customers, and it generates and charges their invoices.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
app.command("up")(up.up)
app.command("api")(api.api)
app.command("worker")(worker.worker)
app.command("migrate")(migrate.migrate)
app.command("demo")(demo.demo)
app.command("listen")(listen.listen)
app.command("trigger")(trigger.trigger)
app.command("check")(check.check)
app.command("restored")(restored.restored)
app.command("states")(reference.states)
app.command("openapi")(reference.openapi)
app.add_typer(account.app, name="account")
app.add_typer(keys.app, name="keys")
app.add_typer(events.app, name="events")
app.add_typer(gateway.app, name="gateway")
app.add_typer(erased.app, name="erased")


def _print_version(asked: bool) -> None:  # noqa: FBT001 - typer passes the flag by position
    if asked:
        typer.echo(f"fatura {__version__}")
        raise typer.Exit


@app.callback()
def options(
    *,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """A recurring-billing engine."""


def main() -> None:
    """Run the command. If it raises an exception, print a message or a traceback to stderr, and exit with 1."""
    try:
        app()
    except STARTUP_FAILURES as error:
        message = Text.assemble(("fatura:", "bold red"), f" {printable_lines(str(error))}")
        Console(stderr=True).print(message, soft_wrap=True)
        sys.exit(1)
    except EngineError as refusal:
        meta = refusal.meta or {}
        listed = "; ".join(f"{each['path']} {each['message']}" for each in meta.get("fields", []))
        echo(f"fatura: {listed or refusal.detail}", err=True)
        for name, ids in meta.items():
            if name.endswith("Ids") and ids:
                echo(f"{name}: {', '.join(ids)}", err=True)
        sys.exit(1)
    except Exception as error:  # noqa: BLE001 - Python would print the text of the exception too (D-231)
        echo(traceback_of(error), err=True)
        sys.exit(1)
