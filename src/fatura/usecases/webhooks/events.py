"""Read the event stream, oldest first. A cursor never skips an event (D-38)."""

from uuid import UUID

from fatura.domain.errors import invalid_fields, not_found
from fatura.store.webhooks import events
from fatura.store.webhooks.events import StoredEvent
from fatura.usecases.transaction import Work
from fatura.views.events import event_json

START = "0"
MAX_CURSOR_CHARS = 18
"""Any number with this many digits fits PostgreSQL's bigint."""


def parse_cursor(cursor: str) -> int:
    """Return the number of the last event before a cursor. Raises EngineError: `engine.invalid_request`."""
    if not (cursor.isascii() and cursor.isdigit()) or len(cursor) > MAX_CURSOR_CHARS:
        raise invalid_fields(("cursor", "must be a `nextCursor` from an earlier answer of this route"))
    return int(cursor)


async def read(work: Work, event_id: UUID) -> bytes:
    """Return one event as JSON, byte for byte as in the stream (D-37). Raises EngineError: `engine.not_found`."""
    found = await events.find(work.tx, event_id)
    if found is None:
        raise not_found("event", event_id)
    return _element(found).encode()


def _element(of: StoredEvent) -> str:
    return event_json(of.event_id, of.sequence, type_=of.type, created_at=of.created_at, data=of.data)


async def replay(work: Work, *, after: int, limit: int, type_: str | None) -> bytes:
    """Return the events after a cursor as JSON, byte for byte as webhooks deliver them (D-38, D-39)."""
    if type_ is None:
        found = await events.after(work.tx, after, limit=limit)
    else:
        found = await events.after_of_type(work.tx, after, type_=type_, limit=limit)
    elements = ",".join(map(_element, found))
    next_cursor = found[-1].sequence if found else after
    return f'{{"data":[{elements}],"nextCursor":"{next_cursor}"}}'.encode()
