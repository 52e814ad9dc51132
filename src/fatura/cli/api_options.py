"""Options of the commands that call the HTTP API as a merchant's program would."""

from collections.abc import Sequence
from typing import Annotated
from urllib.parse import urlsplit

import typer

from fatura.domain.events import CATALOGUE

DEFAULT_API = "http://127.0.0.1:8000"


def checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_one = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_one = False
    if not is_one:
        raise typer.BadParameter("must be a URL such as http://127.0.0.1:9000/webhooks")
    return url


def checked_api(url: str) -> str:
    if urlsplit(checked_url(url)).path not in {"", "/"}:
        raise typer.BadParameter("must be the API's URL without a path, such as http://127.0.0.1:8000")
    return url.rstrip("/")


def checked_type(name: str | None) -> str | None:
    if name is not None and name not in CATALOGUE:
        raise typer.BadParameter(f"is no event type; the types are {', '.join(CATALOGUE)}")
    return name


def complete_type(incomplete: str) -> Sequence[tuple[str, str]]:
    """Return the event types that begin with the text, each with its meaning, for shell completion."""
    return [(name, means) for name, means in CATALOGUE.items() if name.startswith(incomplete)]


ApiKey = Annotated[str, typer.Option("--api-key", envvar="FATURA_API_KEY", help="API key of the account.")]
Api = Annotated[
    str, typer.Option("--api", envvar="FATURA_API_URL", callback=checked_api, help="URL of the HTTP API.")
]
EventType = Annotated[
    str | None,
    typer.Option(
        "--type", callback=checked_type, autocompletion=complete_type, help="Only events of this type."
    ),
]
