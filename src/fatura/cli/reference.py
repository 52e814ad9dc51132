"""`fatura states` and `fatura openapi`: reference pages printed from the code they describe."""

import json

import typer

from fatura import reference


def states() -> None:
    """Print the invoice's table of states and moves as Markdown."""
    typer.echo(reference.states_page(), nl=False)


def openapi() -> None:
    """Print the API's OpenAPI 3.1 document."""
    typer.echo(json.dumps(reference.openapi_document(), indent=2, ensure_ascii=False))
