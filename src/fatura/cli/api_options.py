"""Options of the commands that call the HTTP API as a merchant's program would."""

from collections.abc import Sequence
from ipaddress import ip_address
from typing import Annotated
from urllib.parse import urlsplit

import typer

from fatura.domain.events import CATALOGUE

DEFAULT_API = "http://127.0.0.1:8000"


def checked_url(url: str) -> str:
    if not is_url(url):
        raise typer.BadParameter("must be a URL such as http://127.0.0.1:9000/webhooks")
    return url


def is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        is_one = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return is_one and text.isprintable()


def checked_api(url: str) -> str:
    """Return the URL without a `/` at its end. The errors do not repeat it, because it may contain a password."""
    is_one = is_url(url) and urlsplit(url).path in {"", "/"} and not set("@?#") & set(url)
    if not is_one:
        raise typer.BadParameter(
            "must be the API's URL without a path, a query or a user name, such as http://127.0.0.1:8000"
        )
    if urlsplit(url).scheme == "http" and not _is_loopback(urlsplit(url).hostname or ""):
        raise typer.BadParameter("must begin with https://, because the API key would be sent unencrypted")
    return url.rstrip("/")


def checked_key(key: str) -> str:
    """Return the API key. The error does not repeat it."""
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise typer.BadParameter("must be an API key: letters, digits and underscores, without spaces")
    return key


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def checked_type(name: str | None) -> str | None:
    if name is not None and name not in CATALOGUE:
        raise typer.BadParameter(f"is no event type; the types are {', '.join(CATALOGUE)}")
    return name


def complete_type(incomplete: str) -> Sequence[tuple[str, str]]:
    """Return the event types that begin with the text, each with its meaning, for shell completion."""
    return [(name, means) for name, means in CATALOGUE.items() if name.startswith(incomplete)]


ApiKey = Annotated[
    str,
    typer.Option(
        "--api-key",
        envvar="FATURA_API_KEY",
        callback=checked_key,
        help="API key of the account. Use the variable, because other users can read command lines.",
    ),
]
Api = Annotated[
    str, typer.Option("--api", envvar="FATURA_API_URL", callback=checked_api, help="URL of the HTTP API.")
]
EventType = Annotated[
    str | None,
    typer.Option(
        "--type", callback=checked_type, autocompletion=complete_type, help="Only events of this type."
    ),
]
