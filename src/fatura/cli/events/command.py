"""`fatura events tail` follows the event stream; `fatura events resend` delivers events to the webhook again."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from typing import Annotated, Any
from uuid import UUID

import typer

from fatura.cli.api_options import DEFAULT_API, Api, ApiKey, EventType
from fatura.cli.client import ApiError, ApiUnavailableError, Client, connect
from fatura.cli.event_stream import Stream, StreamEvent
from fatura.cli.options import Json
from fatura.cli.output import echo
from fatura.cli.processes import run_until_set, run_until_stopped

TYPE_CHARS = 30
RETRY_SECONDS = 1
MAX_TRIES = 10
app = typer.Typer(
    help="Follow the events of an account, and deliver them again.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
From = Annotated[
    int | None,
    typer.Option("--from", min=1, help="Number of the first event; `--from 1` is the whole stream."),
]


@app.command()
def tail(
    api_key: ApiKey,
    *,
    api: Api = DEFAULT_API,
    from_: From = None,
    type_: EventType = None,
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", help="Wait for new events, or end after the newest one.")
    ] = True,
    json_: Json = False,
) -> None:
    """Print an account's events from number `--from` on, and then each new one until Ctrl-C.

    Without `--from`, only new events are printed. With `--json`, each line is an event as JSON.

    Examples:
    - `fatura events tail`
    - `fatura events tail --from 1 --type invoice.paid --no-follow`
    - `fatura events tail --from 120 --json >> events.jsonl`
    """
    position = _Position(None if from_ is None else from_ - 1)

    async def work(stop: asyncio.Event) -> None:
        async with connect(api, api_key) as client:
            stream = Stream(client, print_note=_note, type_=type_)
            await run_until_set(stop, lambda: _print_events(stream, position, follow=follow, as_json=json_))

    _run(work)
    if follow and position.after is not None:
        _note(f"stopped; --from {position.after + 1} continues from here")


class _Position:
    """`tail` prints events with numbers above `after`.

    If `after` is None, `tail` starts after the newest event, whose number it has not read yet.
    """

    def __init__(self, after: int | None) -> None:
        self.after = after


async def _print_events(stream: Stream, position: _Position, *, follow: bool, as_json: bool) -> None:
    newest = await stream.last_sequence() if position.after is None or not follow else None
    if position.after is None:
        assert newest is not None
        position.after = newest
        if follow:
            _note(f"waiting for events after number {newest}; press Ctrl-C to stop")
    async for event in stream.follow(position.after) if follow else stream.until(position.after, newest or 0):
        if as_json:
            # `dumps` escapes control characters, which merchants' answers may contain
            typer.echo(json.dumps(event.parsed()))
        else:
            echo(_line(event))
        position.after = event.sequence


@app.command()
def resend(
    api_key: ApiKey,
    events: Annotated[
        list[str] | None, typer.Argument(metavar="EVENT", help="Ids or numbers of events.")
    ] = None,
    *,
    api: Api = DEFAULT_API,
    from_: From = None,
    to: Annotated[
        int | None, typer.Option("--to", min=1, help="Number of the last event; default: the newest one.")
    ] = None,
    type_: EventType = None,
    json_: Json = False,
) -> None:
    """Deliver events to the account's webhook again: single ones, or all from one number to another.

    The events are delivered in the background; `GET /v1/events/{eventId}/deliveries` shows the result. An event may
    reach your server twice, so deduplicate by its id.

    Examples:
    - `fatura events resend 118 119`
    - `fatura events resend 019a2f6e-1c3b-7d52-9f0a-6b1c2d3e4f50`
    - `fatura events resend --from 100 --to 150 --type invoice.paid`
    """
    if bool(events) == (from_ is not None):
        raise typer.BadParameter("name events, or a range with --from")
    if from_ is None and (to is not None or type_ is not None):
        raise typer.BadParameter("--to and --type need --from")
    if from_ is not None and to is not None and to < from_:
        raise typer.BadParameter("--to must not be before --from")
    sent = _Sent()

    async def work(stop: asyncio.Event) -> None:
        async with connect(api, api_key) as client:
            stream = Stream(client, print_note=_note, type_=type_)
            chosen = _named(client, events or ()) if from_ is None else _range(stream, from_, to)
            await run_until_set(stop, lambda: _resend_all(client, chosen, sent, as_json=json_))

    try:
        _run(work)
    finally:
        if sent.count or not sent.failed:
            _note(f"{sent.count} event{'' if sent.count == 1 else 's'} will be delivered again")


class _Sent:
    def __init__(self) -> None:
        self.count = 0
        self.failed = False


async def _resend_all(
    client: Client, chosen: AsyncGenerator[StreamEvent], sent: _Sent, *, as_json: bool
) -> None:
    sent.failed = True
    async for event in chosen:
        answer = await _redeliver(client, event)
        sent.count += 1
        if as_json:
            members = {"sequence": event.sequence, "id": event.event_id, "type": event.type}
            typer.echo(json.dumps(members | {"status": answer["status"]}))
        else:
            echo(f"#{event.sequence}  {event.type:<{TYPE_CHARS}}  {answer['status']}")
    sent.failed = False


async def _redeliver(client: Client, event: StreamEvent) -> Any:
    """Ask the API to deliver an event again, and return the answer.

    While the API is unavailable, repeat the request, at most MAX_TRIES times. Raises ApiError.
    """
    for _ in range(MAX_TRIES):
        try:
            return await client.post(f"/v1/events/{event.event_id}/redeliver", None)
        except ApiUnavailableError:
            await asyncio.sleep(RETRY_SECONDS)
    return await client.post(f"/v1/events/{event.event_id}/redeliver", None)


async def _named(client: Client, names: Sequence[str]) -> AsyncGenerator[StreamEvent]:
    """Yield the events with these ids or numbers. Raises ApiError, for example if there is no such event."""
    for name in names:
        if name.isascii() and name.isdigit():
            found = (await client.get(f"/v1/events?cursor={int(name) - 1 if int(name) else 0}&limit=1"))[
                "data"
            ]
            if not found or found[0]["sequence"] != int(name):
                raise ApiError(f"there is no event with the number {name}")
            event = found[0]
        elif _is_id(name):
            event = await client.get(f"/v1/events/{name}")
        else:
            raise ApiError(f"{name} is neither the number nor the id of an event")
        yield StreamEvent(event["id"], event["sequence"], event["type"])


def _is_id(name: str) -> bool:
    try:
        return str(UUID(name)) == name.lower()
    except ValueError:
        return False


async def _range(stream: Stream, first: int, last: int | None) -> AsyncGenerator[StreamEvent]:
    newest = await stream.last_sequence()
    async for event in stream.until(first - 1, newest if last is None else min(last, newest)):
        yield event


def _line(event: StreamEvent) -> str:
    """Return an event as one line for people: number, time, type, and what it is about."""
    known = event.parsed()
    name = event.type.partition(".")[0]
    subject: Any = known["data"].get(name) or {}
    described = f"{name} {subject.get('id', '')} {subject.get('status', '')}".rstrip()
    return f"#{event.sequence:<6} {known['createdAt']}  {event.type:<{TYPE_CHARS}}  {described}"


def _note(text: str) -> None:
    echo(text, err=True)


def _run(work: Any) -> None:
    try:
        run_until_stopped(work)
    except ApiError as error:
        _note(f"fatura: {error}")
        raise typer.Exit(1) from error
