"""The replay stream (spec 4.6, D-38)."""

from typing import Annotated
from uuid import UUID

from pydantic import Field
from starlette.responses import Response

from fatura.api.http.declare import Routes
from fatura.api.http.fields import IntRange, IntText, OneOf
from fatura.api.http.forms import Query
from fatura.api.http.replies import run
from fatura.api.http.route import Call, Noun
from fatura.api.models.integration import Event, Events
from fatura.domain.events import CATALOGUE
from fatura.usecases.webhooks import events

routes = Routes("Events")
DEFAULT_LIMIT = 50
MAX_LIMIT = 200
EventId = Annotated[UUID, Noun("event")]
EventType = Annotated[str, OneOf(tuple(CATALOGUE))]


class EventQuery(Query):
    """Which events: those after a cursor, at most `limit`, perhaps of one type only."""

    cursor: Annotated[
        str,
        Field(
            description="The `nextCursor` of an earlier answer; left out, from the start.",
            json_schema_extra={"pattern": f"^[0-9]{{1,{events.MAX_CURSOR_CHARS}}}$"},
        ),
    ] = events.START
    limit: Annotated[int, IntRange(1, MAX_LIMIT), IntText(), Field(description="Most events to return.")] = (
        DEFAULT_LIMIT
    )
    type: Annotated[EventType | None, Field(description="Only events of this type.")] = None


@routes.get("/v1/events", answers=Events)
async def list_events(call: Call, query: EventQuery) -> Response:
    """Replay everything reported so far, oldest first; poll with `nextCursor` for ever, each event comes once."""
    after = events.parse_cursor(query.cursor)
    return await run(call, events.replay, after=after, limit=query.limit, type_=query.type)


@routes.get("/v1/events/{eventId}", answers=Event)
async def read_event(call: Call, event_id: EventId) -> Response:
    """Return one event, as the stream and a push show it."""
    return await run(call, events.read, event_id)
