"""Print text that comes from outside: on a terminal, nothing in it acts as markup or as a control sequence (D-219)."""

import typer
from rich.table import Table
from rich.text import Text

from fatura.observability import printable


def echo(text: str, *, err: bool = False) -> None:
    """Print lines to stdout, or to stderr."""
    typer.echo("\n".join(map(printable, text.split("\n"))), err=err)


def add_row(table: Table, *cells: object) -> None:
    """Add a row. A cell may have several lines."""
    table.add_row(*(Text("\n".join(map(printable, str(cell).split("\n")))) for cell in cells))
