"""`fatura states` and `fatura openapi`: print reference pages generated from the code."""

import json

import typer


def states() -> None:
    """Print the invoice's table of states and moves as Markdown."""
    from fatura import reference  # noqa: PLC0415 - it imports the web framework, which is slow

    typer.echo(reference.states_page(), nl=False)


def openapi() -> None:
    """Print the API's OpenAPI 3.1 document."""
    from fatura import reference  # noqa: PLC0415 - as above

    typer.echo(json.dumps(reference.openapi_document(), indent=2, ensure_ascii=False))
