"""`fatura listen`: follow an account's events and post them, signed like webhooks, to an address on this machine."""

import asyncio
import base64
import secrets
from typing import Annotated
from urllib.parse import urlsplit

import typer

from fatura.cli.client import ApiError, Client
from fatura.cli.event_lines import EventLines
from fatura.cli.forwarding import Forwarding, Place, forward
from fatura.cli.options import Json
from fatura.cli.processes import run_beside, run_until_stopped
from fatura.signature import PREFIX, SignatureError, standard_signature

SECRET_BYTES = 32


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_one = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_one = False
    if not is_one:
        message = "must be a URL like http://127.0.0.1:9000/webhooks"
        raise typer.BadParameter(message)
    return url


def _checked_api(url: str) -> str:
    if urlsplit(_checked_url(url)).path not in {"", "/"}:
        message = "must be the API's address without a path, like http://127.0.0.1:8000"
        raise typer.BadParameter(message)
    return url.rstrip("/")


def _checked_secret(secret: str | None) -> str | None:
    if secret is None:
        return None
    try:
        standard_signature("", b"", secrets=[secret], timestamp=0)
    except SignatureError as error:
        raise typer.BadParameter(str(error)) from error
    if not secret.startswith(PREFIX):
        message = f"must be the whole secret, {PREFIX} included"
        raise typer.BadParameter(message)
    return secret


def listen(
    forward_to: Annotated[
        str, typer.Option("--forward-to", callback=_checked_url, help="URL that every event is posted to.")
    ],
    api_key: Annotated[
        str, typer.Option("--api-key", envvar="FATURA_API_KEY", help="Key of the account to follow.")
    ],
    *,
    api: Annotated[
        str,
        typer.Option(
            "--api", envvar="FATURA_API_URL", callback=_checked_api, help="Address of the HTTP API."
        ),
    ] = "http://127.0.0.1:8000",
    secret: Annotated[
        str | None,
        typer.Option(
            "--secret",
            envvar="FATURA_INTEGRATION_SECRET",
            callback=_checked_secret,
            help="Secret to sign with, `whsec_...`; left out, one is made for this run and printed.",
        ),
    ] = None,
    from_cursor: Annotated[
        int | None,
        typer.Option("--from-cursor", min=0, help="Start after this event's number instead of now."),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Start with the account's first event.")] = False,
    skip_failures: Annotated[
        bool, typer.Option("--skip-failures", help="Go on after a failed post instead of trying it again.")
    ] = False,
    json_: Json = False,
) -> None:
    """Follow an account's events and post each to a URL, signed, in order, until Ctrl-C.

    For people whose machine has no public address that a webhook could reach. What is posted is byte for byte what
    a webhook gets. An event that is not answered with 2xx is posted again, and those after it wait.
    """
    if all_ and from_cursor is not None:
        message = "--all and --from-cursor exclude each other"
        raise typer.BadParameter(message)
    lines = EventLines(as_json=json_, skip_failures=skip_failures)
    if secret is None:
        secret = PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()
        lines.say(f"signing with {secret} in this run; --secret signs with the account's own")
    forwarding = Forwarding(
        forward_to, secret, skip_failures=skip_failures, report=lines.report, say=lines.say
    )
    place = Place(0 if all_ else from_cursor)

    async def work(stop: asyncio.Event) -> None:
        async with Client(api, api_key) as client:
            await run_beside(stop, lambda: forward(client, place, of=forwarding))

    try:
        run_until_stopped(work)
    except ApiError as error:
        lines.say(f"fatura: {error}")
        raise typer.Exit(1) from error
    lines.say("stopped" if place.after is None else f"stopped; --from-cursor {place.after} goes on from here")
