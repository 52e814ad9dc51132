"""Read the event stream, oldest first. A cursor never skips an event (D-38)."""

from uuid import UUID

from fatura.domain.errors import EVENTS_DELETED, EngineError, require
from fatura.domain.retention import Kind
from fatura.store import counters
from fatura.store.retention import progress
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
    """Return the events after a cursor, byte for byte as webhooks deliver them (D-38, D-39).

    With a filter by type, if fewer than `limit` events are left, the next cursor is the account's newest event of any
    type. Otherwise, the cursor would stay at the newest event of a rare type. As soon as retention deletes later events
    of other types, this cursor would get `engine.events_deleted`.

    Raises EngineError: `engine.events_deleted`.
    """
    last = 0 if type_ is None else await counters.last_sequence(work.tx)
    found = await events.after(work.tx, after, type_=type_, limit=limit)
    # read after the events, so that a deletion between the two statements is noticed
    deleted_to = await progress.deleted_to(work.tx, Kind.EVENTS)
    if 0 < after < deleted_to:
        raise EngineError(
            EVENTS_DELETED,
            f"Events up to number {deleted_to} were deleted, because they are old. Read the current state of what you "
            f"need from its own route, then continue with the cursor {deleted_to}.",
            meta={"completeFrom": deleted_to + 1},
        )
    next_cursor = found[-1].sequence if found else max(after, deleted_to)
    if len(found) < limit:
        next_cursor = max(next_cursor, last)
    return EventListView(
        data=[_view(event) for event in found],
        next_cursor=str(next_cursor),
        complete_from=deleted_to + 1,
    )
