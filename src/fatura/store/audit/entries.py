"""Entries of the audit log, numbered without gaps in the order of commits, and read by cursor (D-63)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from fatura.domain.audit import Actor, ActorKind, NewEntry
from fatura.domain.filters import AuditFilter
from fatura.store.db import Row, Tx, record


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """An entry with its number. `resource_type` and `action` are names from `domain.audit_actions`."""

    sequence: int
    audit_entry_id: UUID
    created_at: datetime
    actor: Actor
    action: str
    resource_type: str
    resource_id: str
    request_id: str | None
    address: str | None
    before: Any
    after: Any


async def append(
    tx: Tx, entry: NewEntry, *, entry_id: UUID, sequence: int, created_at: datetime, stored_at: datetime
) -> None:
    """Insert an entry. `created_at` is on the account's clock, `stored_at` is real time."""
    await tx.execute(
        """
        INSERT INTO audit_entry (account_id, sequence, audit_entry_id, created_at, actor_kind, actor_id, actor_name,
            action, resource_type, resource_id, request_id, address, before, after, stored_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
        """,
        sequence,
        entry_id,
        created_at,
        entry.origin.actor.kind,
        entry.origin.actor.id,
        entry.origin.actor.name,
        entry.action.name,
        entry.action.resource.type,
        entry.resource_id,
        entry.origin.request_id,
        entry.origin.address,
        _json_text(entry.before),
        _json_text(entry.after),
        stored_at,
    )


def _json_text(state: Any) -> str | None:
    return None if state is None else msgspec.json.encode(state).decode()


async def sequence_at(tx: Tx, at: datetime) -> int | None:
    """Return the number of the first entry at or after an instant; None if there is none.

    All entries with lower numbers are earlier than the instant, because `counters.add` never gives an entry an earlier
    time than the previous entry has.
    """
    return await tx.fetchval(
        """
        SELECT a.sequence FROM audit_entry a WHERE a.account_id = $1 AND a.created_at >= $2
        ORDER BY a.created_at, a.sequence LIMIT 1
        """,
        at,
    )


async def sequence_after(tx: Tx, at: datetime) -> int | None:
    """Return the number of the first entry after an instant; None if there is none."""
    return await tx.fetchval(
        """
        SELECT a.sequence FROM audit_entry a WHERE a.account_id = $1 AND a.created_at > $2
        ORDER BY a.created_at, a.sequence LIMIT 1
        """,
        at,
    )


async def after(
    tx: Tx, sequence: int, wanted: AuditFilter, *, before: int | None, limit: int
) -> Sequence[StoredEntry]:
    """Return the entries with numbers above `sequence` and below `before` that match a filter, oldest first."""
    rows = await tx.fetch_by_values(
        """
        SELECT a.sequence, a.audit_entry_id, a.created_at, a.actor_kind, a.actor_id, a.actor_name, a.action,
            a.resource_type, a.resource_id, a.request_id, a.address, a.before, a.after
        FROM audit_entry a
        WHERE a.account_id = $1 AND a.sequence > $2 AND ($3::bigint IS NULL OR a.sequence < $3)
            AND ($4::text IS NULL OR a.actor_kind = $4) AND ($5::uuid IS NULL OR a.actor_id = $5)
            AND ($6::text IS NULL OR a.action = $6) AND ($7::text IS NULL OR a.resource_id = $7)
        ORDER BY a.sequence LIMIT $8
        """,
        sequence,
        before,
        wanted.actor_kind,
        wanted.actor_id,
        wanted.action,
        wanted.resource_id,
        limit,
    )
    return [_entry(row) for row in rows]


def _entry(row: Row) -> StoredEntry:
    actor = Actor(ActorKind(row["actor_kind"]), row["actor_name"], row["actor_id"])
    return record(StoredEntry, row, actor=actor, before=_json(row["before"]), after=_json(row["after"]))


def _json(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)


async def exists(tx: Tx, *, action: str, resource_id: str) -> bool:
    return await tx.fetchval(
        """
        SELECT EXISTS (
            SELECT FROM audit_entry a WHERE a.account_id = $1 AND a.resource_id = $2 AND a.action = $3
        )
        """,
        resource_id,
        action,
    )
