"""SQL of `provider_call`: requests to providers about charges, with their answers (D-267)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from fatura.store.db import Tx

SEALED_PLACE = "provider_call.sealed"


@dataclass(frozen=True, slots=True)
class StoredCall:
    """A call about a charge. `sent_at` is on the account's clock. `sealed` has the texts of the call, encrypted."""

    call_id: UUID
    charge_id: UUID
    operation: str
    sent_at: datetime
    duration_ms: int
    status: int | None
    sealed: bytes


async def lock_charges(tx: Tx, charge_ids: Sequence[UUID]) -> dict[UUID, int]:
    """Lock the charges whose customer is not erased, and return how many calls of each are stored.

    Without the lock, an erasure could end between this statement and the insertion of a call.
    """
    rows = await tx.fetch(
        """
        SELECT c.charge_id, (
            SELECT count(*) FROM provider_call k WHERE k.account_id = $1 AND k.charge_id = c.charge_id
        ) AS calls
        FROM charge c WHERE c.account_id = $1 AND c.charge_id = ANY($2::uuid[]) AND NOT c.erased
        ORDER BY c.charge_id FOR NO KEY UPDATE OF c
        """,
        charge_ids,
    )
    return {row["charge_id"]: row["calls"] for row in rows}


async def add(tx: Tx, calls: Sequence[StoredCall], *, stored_at: datetime) -> None:
    """Store calls about charges that `lock_charges` locked. A call that is stored already is left out."""
    await tx.execute(
        """
        INSERT INTO provider_call
            (account_id, call_id, charge_id, operation, sent_at, duration_ms, status, sealed, stored_at)
        SELECT o.account_id, n.call_id, n.charge_id, n.operation, n.sent_at, n.duration_ms, n.status, n.sealed, $2
        FROM account o CROSS JOIN unnest(
            $3::uuid[], $4::uuid[], $5::text[], $6::timestamptz[], $7::int[], $8::int[], $9::bytea[]
        ) AS n (call_id, charge_id, operation, sent_at, duration_ms, status, sealed)
        WHERE o.account_id = $1
        ON CONFLICT (account_id, call_id) DO NOTHING
        """,
        stored_at,
        [each.call_id for each in calls],
        [each.charge_id for each in calls],
        [each.operation for each in calls],
        [each.sent_at for each in calls],
        [each.duration_ms for each in calls],
        [each.status for each in calls],
        [each.sealed for each in calls],
    )


async def keep_newest(tx: Tx, charge_ids: Sequence[UUID], *, limit: int) -> None:
    """Delete all but the newest `limit` calls of each of these locked charges."""
    await tx.execute(
        """
        DELETE FROM provider_call k USING (
            SELECT r.call_id, row_number() OVER (
                PARTITION BY r.charge_id ORDER BY r.sent_at DESC, r.call_id DESC
            ) AS place
            FROM provider_call r WHERE r.account_id = $1 AND r.charge_id = ANY($2::uuid[])
        ) n
        WHERE k.account_id = $1 AND k.call_id = n.call_id AND n.place > $3
        """,
        charge_ids,
        limit,
    )


async def count(tx: Tx, charge_id: UUID) -> int:
    return await tx.fetchval(
        "SELECT count(*) FROM provider_call k WHERE k.account_id = $1 AND k.charge_id = $2", charge_id
    )


async def of_charge(tx: Tx, charge_id: UUID, *, skip: int, limit: int) -> Sequence[StoredCall]:
    """Return a page of the calls about a charge, newest first."""
    return await tx.fetch_as(
        StoredCall,
        """
        SELECT k.call_id, k.charge_id, k.operation, k.sent_at, k.duration_ms, k.status, k.sealed FROM provider_call k
        WHERE k.account_id = $1 AND k.charge_id = $2 ORDER BY k.sent_at DESC, k.call_id DESC OFFSET $3 LIMIT $4
        """,
        charge_id,
        skip,
        limit,
    )


async def delete_old(tx: Tx, *, stored_to: datetime, limit: int) -> int:
    """Delete up to `limit` calls that were stored at `stored_to` or earlier, oldest first. Return how many."""
    return await tx.execute(
        """
        WITH old AS MATERIALIZED (
            SELECT x.call_id FROM provider_call x
            WHERE x.account_id = $1 AND x.stored_at <= $2 ORDER BY x.stored_at LIMIT $3
        )
        DELETE FROM provider_call k USING old o WHERE k.account_id = $1 AND k.call_id = o.call_id
        """,
        stored_to,
        limit,
    )


async def first_stored_at(tx: Tx) -> datetime | None:
    """Return when the oldest call was stored, or None."""
    return await tx.fetchval("SELECT min(k.stored_at) FROM provider_call k WHERE k.account_id = $1")
