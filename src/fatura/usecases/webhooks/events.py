"""Read the event stream, oldest first. A cursor never skips an event (D-38)."""

from uuid import UUID

from fatura.domain.errors import invalid_fields, require
from fatura.store.webhooks import events
from fatura.store.webhooks.events import StoredEvent
from fatura.usecases.transaction import Work
from fatura.views.events import EventListView, EventView

START = "0"
MAX_CURSOR_CHARS = 18
"""Maximum length of a cursor. Any number with this many digits fits PostgreSQL's bigint."""


def parse_cursor(cursor: str) -> int:
    """Return the number of the event after which a cursor continues. Raises EngineError: `engine.invalid_request`."""
    if not (cursor.isascii() and cursor.isdigit()) or len(cursor) > MAX_CURSOR_CHARS:
        raise invalid_fields(("cursor", "must be a `nextCursor` from an earlier answer of this route"))
    return int(cursor)


async def read(work: Work, event_id: UUID) -> EventView:
    """Return one event, byte for byte as in the stream (D-37). Raises EngineError: `engine.not_found`."""
    return _view(require(await events.find(work.tx, event_id), "event", id_=event_id))


def _view(event: StoredEvent) -> EventView:
    return EventView.of(
        event.event_id, event.sequence, type_=event.type, created_at=event.created_at, data=event.data
    )


async def replay(work: Work, *, after: int, limit: int, type_: str | None) -> EventListView:
    """Return the events after a cursor, byte for byte as webhooks deliver them (D-38, D-39)."""
    found = await events.after(work.tx, after, type_=type_, limit=limit)
    next_cursor = found[-1].sequence if found else after
    return EventListView(data=[_view(event) for event in found], next_cursor=str(next_cursor))
