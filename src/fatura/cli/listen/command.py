"""`fatura listen`: forward an account's events, signed like webhooks, to a URL on this machine."""

import asyncio
import base64
import hmac
from typing import Annotated

import typer

from fatura.cli.api_options import DEFAULT_API, Api, ApiKey, checked_url
from fatura.cli.client import ApiError, connect
from fatura.cli.listen.event_lines import EventLines
from fatura.cli.listen.forwarding import Forwarding, Position, forward
from fatura.cli.options import Json
from fatura.cli.processes import run_until_set, run_until_stopped
from fatura.signature import PREFIX, SignatureError, standard_signature


def _checked_secret(secret: str | None) -> str | None:
    if secret is None:
        return None
    try:
        standard_signature("", b"", secrets=[secret], timestamp=0)
    except SignatureError as error:
        raise typer.BadParameter(str(error)) from error
    if not secret.startswith(PREFIX):
        raise typer.BadParameter(f"must be the whole secret, including {PREFIX}")
    return secret


def secret_of(api_key: str) -> str:
    """Return the secret for runs without `--secret`. It is derived from the API key, but does not reveal it (D-120)."""
    made = hmac.digest(api_key.encode(), b"fatura listen", "sha256")
    return PREFIX + base64.b64encode(made).decode()


ForwardTo = Annotated[
    str, typer.Option("--forward-to", callback=checked_url, help="URL to post every event to.")
]
Secret = Annotated[
    str | None,
    typer.Option(
        "--secret",
        envvar="FATURA_INTEGRATION_SECRET",
        callback=_checked_secret,
        help="Secret to sign with, `whsec_...`; by default, one that is the same in every run with "
        "this API key, and is printed.",
    ),
]
From = Annotated[
    int | None,
    typer.Option(
        "--from", min=1, help="Number of the first event; by default, only new events are forwarded."
    ),
]
All = Annotated[bool, typer.Option("--all", help="Start with the account's first event.")]
SkipFailures = Annotated[
    bool, typer.Option("--skip-failures", help="Skip an event whose post fails instead of retrying it.")
]


def listen(
    forward_to: ForwardTo,
    api_key: ApiKey,
    *,
    api: Api = DEFAULT_API,
    secret: Secret = None,
    from_: From = None,
    all_: All = False,
    skip_failures: SkipFailures = False,
    json_: Json = False,
) -> None:
    """Forward an account's events to a URL, signed and in order, until Ctrl-C.

    Use this on a machine that webhooks cannot reach. Bodies and headers are those of a webhook. If your server does not
    answer with 2xx, the event is sent again before the next event. With `--skip-failures`, it is not sent again. Each
    line of the output shows the status and the beginning of your server's answer.

    Examples:
    - `fatura listen --forward-to http://127.0.0.1:9000/webhooks`
    - `fatura listen --forward-to http://127.0.0.1:9000/webhooks --all --skip-failures`
    """
    if all_ and from_ is not None:
        raise typer.BadParameter("use either --all or --from, not both")
    lines = EventLines(as_json=json_, skip_failures=skip_failures)
    if secret is None:
        secret = secret_of(api_key)
        lines.print_note(
            f"signing with {secret} in every run with this API key; use --secret to sign with the account's own secret"
        )
    forwarding = Forwarding(
        forward_to, secret, skip_failures=skip_failures, report=lines.report, print_note=lines.print_note
    )
    position = Position(0 if all_ else None if from_ is None else from_ - 1)

    async def work(stop: asyncio.Event) -> None:
        async with connect(api, api_key) as client:
            await run_until_set(stop, lambda: forward(client, position, of=forwarding))

    try:
        run_until_stopped(work)
    except ApiError as error:
        lines.print_note(f"fatura: {error}")
        raise typer.Exit(1) from error
    lines.print_note(
        "stopped" if position.after is None else f"stopped; --from {position.after + 1} continues from here"
    )
