"""Read the event stream, oldest first. A cursor never skips an event (D-38)."""

from uuid import UUID

from fatura.domain.errors import require
from fatura.store.webhooks import events
from fatura.store.webhooks.events import StoredEvent
from fatura.usecases.transaction import Work
from fatura.views.events import EventListView, EventView


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
