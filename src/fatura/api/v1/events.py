"""The routes of events (spec 4.6, D-38)."""

from typing import Annotated
from uuid import UUID

from pydantic import Field
from starlette.responses import Response

from fatura.api.http.declare import Routes
from fatura.api.http.fields import IntRange, IntText, OneOf
from fatura.api.http.forms import Query
from fatura.api.http.replies import run
from fatura.api.http.route import Call, PathId
from fatura.domain import errors
from fatura.domain.events import CATALOGUE
from fatura.usecases.paging import MAX_CURSOR_CHARS, START, parse_cursor
from fatura.usecases.webhooks import events
from fatura.views.events import EventListView, EventView

routes = Routes(
    "Events", "Everything that happened, numbered without gaps. Poll them, or register a webhook."
)
DEFAULT_LIMIT = 50
MAX_LIMIT = 200
EventId = Annotated[UUID, PathId("event")]
EventType = Annotated[str, OneOf(tuple(CATALOGUE))]


class EventQuery(Query):
    cursor: Annotated[
        str,
        Field(
            description="The `nextCursor` of an earlier answer; without it, the stream is read from its start.",
            json_schema_extra={"pattern": f"^[0-9]{{1,{MAX_CURSOR_CHARS}}}$"},
        ),
    ] = START
    limit: Annotated[
        int, IntRange(1, MAX_LIMIT), IntText(), Field(description="Maximum number of events.")
    ] = DEFAULT_LIMIT
    type: Annotated[EventType | None, Field(description="Only events of this type.")] = None


@routes.get("/v1/events", "List events", answers=EventListView, problems=[errors.EVENTS_DELETED])
async def list_events(call: Call, query: EventQuery) -> Response:
    """Return the events after a cursor, oldest first.

    To get each event once, send the `nextCursor` of the previous answer as the next cursor. Old events are deleted; the
    answer's `completeFrom` is the number of the oldest event that is left. Without a cursor, or with the cursor `0`,
    the stream begins with that event. A cursor above 0 and below `completeFrom - 1` gets 410, because events between
    the cursor and `completeFrom` are missing.
    """
    after = parse_cursor(query.cursor)
    return await run(call, events.replay, after=after, limit=query.limit, type_=query.type)


@routes.get("/v1/events/{eventId}", "Read an event", answers=EventView)
async def read_event(call: Call, event_id: EventId) -> Response:
    """Return one event, as the list and the webhook show it."""
    return await run(call, events.read, event_id)
