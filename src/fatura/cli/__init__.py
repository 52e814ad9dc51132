"""The command `fatura`: what a person types. Every command finds the database the same way (D-47)."""

import sys
from typing import Annotated

import typer
from rich.console import Console

from fatura import __version__
from fatura.bootstrap import STARTUP_FAILURES
from fatura.cli import accounts, checks, demo, keys, listen, migrations, reference, restored, serve, up

app = typer.Typer(
    name="fatura",
    help="A recurring-billing engine: define plans, bind customers, and invoices are generated, charged and paid.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
app.command("up")(up.up)
app.command("api")(serve.api)
app.command("worker")(serve.worker)
app.command("migrate")(migrations.migrate)
app.command("demo")(demo.demo)
app.command("listen")(listen.listen)
app.command("check")(checks.check)
app.command("restored")(restored.restored)
app.command("states")(reference.states)
app.command("openapi")(reference.openapi)
app.add_typer(accounts.app, name="account")
app.add_typer(keys.app, name="keys")


def _print_version(asked: bool) -> None:  # noqa: FBT001 - typer passes the flag by position
    if asked:
        typer.echo(f"fatura {__version__}")
        raise typer.Exit


@app.callback()
def options(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and leave."
        ),
    ] = False,
) -> None:
    """Take the options that stand before a command."""


def main() -> None:
    """Run the command; what a person can mend is one line on stderr and exit code 1."""
    try:
        app()
    except STARTUP_FAILURES as error:
        Console(stderr=True).print(f"[bold red]fatura:[/] {error}", highlight=False, soft_wrap=True)
        sys.exit(1)
