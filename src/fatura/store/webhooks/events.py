"""Events of the event stream, numbered without gaps, and read by cursor (D-37, D-38)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from fatura.domain.events import NewEvent
from fatura.store.db import Tx, record


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event with its number; `data` is the JSON text of its `data` member."""

    sequence: int
    event_id: UUID
    type: str
    created_at: datetime
    data: str


async def append(
    tx: Tx, events: Sequence[NewEvent], *, ids: Sequence[UUID], first_sequence: int, stored_at: datetime
) -> None:
    """Insert events with consecutive numbers from `first_sequence`. `stored_at` is real time."""
    await tx.execute(
        """
        INSERT INTO event (account_id, sequence, event_id, type, created_at, data, subscription_id, invoice_id,
            stored_at)
        SELECT o.account_id, $2 + u.place - 1, u.event_id, u.type, u.created_at, u.data, u.subscription_id,
            u.invoice_id, $9
        FROM account o CROSS JOIN unnest($3::uuid[], $4::text[], $5::timestamptz[], $6::text[], $7::uuid[], $8::uuid[])
            WITH ORDINALITY AS u (event_id, type, created_at, data, subscription_id, invoice_id, place)
        WHERE o.account_id = $1
        """,
        first_sequence,
        ids,
        [event.type for event in events],
        [event.created_at for event in events],
        [event.data for event in events],
        [event.subscription_id for event in events],
        [event.invoice_id for event in events],
        stored_at,
    )


async def after(tx: Tx, sequence: int, *, type_: str | None = None, limit: int) -> Sequence[StoredEvent]:
    """Return events with numbers above `sequence`, oldest first. If `type_` is set, return only events of this type."""
    rows = await tx.fetch_by_values(
        """
        SELECT e.sequence, e.event_id, e.type, e.created_at, e.data FROM event e
        WHERE e.account_id = $1 AND e.sequence > $2 AND ($3::text IS NULL OR e.type = $3)
        ORDER BY e.sequence LIMIT $4
        """,
        sequence,
        type_,
        limit,
    )
    return [record(StoredEvent, row) for row in rows]


async def lock(tx: Tx, event_id: UUID) -> StoredEvent | None:
    """Lock an event, so that it cannot be deleted, and return it. Return None if it does not exist or was deleted."""
    return await tx.fetchrow_as(
        StoredEvent,
        """
        SELECT e.sequence, e.event_id, e.type, e.created_at, e.data
        FROM event e WHERE e.account_id = $1 AND e.event_id = $2 FOR KEY SHARE
        """,
        event_id,
    )


async def find(tx: Tx, event_id: UUID) -> StoredEvent | None:
    return await tx.fetchrow_as(
        StoredEvent,
        """
        SELECT e.sequence, e.event_id, e.type, e.created_at, e.data
        FROM event e WHERE e.account_id = $1 AND e.event_id = $2
        """,
        event_id,
    )
