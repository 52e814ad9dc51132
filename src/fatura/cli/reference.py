"""`fatura states` and `fatura openapi`: print reference pages generated from the code."""

import json

import typer


def states() -> None:
    """Print the invoice's table of states and transitions as Markdown."""
    from fatura import reference  # noqa: PLC0415 - slow, because it imports the web framework

    typer.echo(reference.states_page(), nl=False)


def openapi() -> None:
    """Print the API's OpenAPI 3.1 document."""
    from fatura import reference  # noqa: PLC0415 - as above

    typer.echo(json.dumps(reference.openapi_document(), indent=2, ensure_ascii=False))
