"""Print text that comes from outside: on a terminal, nothing in it acts as markup or as a control sequence (D-219)."""

import typer
from rich.table import Column, Table
from rich.text import Text

from fatura.observability import printable


def echo(text: str, *, err: bool = False) -> None:
    """Print text, which may have several lines, to stdout or stderr. Unprintable characters are escaped."""
    typer.echo(printable_lines(text), err=err)


def counted(number: int, thing: str) -> str:
    """Return a number with its noun, in the plural if needed: `1 customer`, `2 customers`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def printable_lines(text: str) -> str:
    """Return the text with its unprintable characters escaped, except line breaks."""
    return "\n".join(map(printable, text.split("\n")))


def table(*columns: str | Column, title: str | None = None) -> Table:
    """Return a table without rows. The table cuts no text: a word that is too long continues on the next line."""
    made = Table(*columns, title=title)
    for each in made.columns:
        each.overflow = "fold"
    return made


def add_row(table: Table, *cells: object) -> None:
    """Add a row, with unprintable characters escaped. A cell may have several lines."""
    table.add_row(*(Text(printable_lines(str(cell))) for cell in cells))
