"""SQL of `retention`: the number up to which rows are deleted, per account and kind, and the accounts with old rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from fatura.domain.account import Account
from fatura.domain.retention import Kind
from fatura.store.db import Discovery, Tx


@dataclass(frozen=True, slots=True)
class Progress:
    """A kind of rows, and the number up to which they are deleted."""

    kind: Kind
    deleted_to: int


async def insert(tx: Tx, *, created_at: datetime) -> None:
    """Insert a row for each kind into `retention` for a new account."""
    await tx.execute(
        """
        INSERT INTO retention (account_id, kind, kept_from)
        SELECT o.account_id, u.kind, $3 FROM account o CROSS JOIN unnest($2::text[]) AS u (kind) WHERE o.account_id = $1
        """,
        list(Kind),
        created_at,
    )


async def claim(tx: Tx, stored_to: Mapping[str, datetime]) -> Progress | None:
    """Lock and return the kind with the oldest rows. Leave out kinds that are locked or cannot have old rows.

    `stored_to` has an instant for each kind: rows that were stored at this instant or earlier are old.
    """
    return await tx.fetchrow_as(
        Progress,
        """
        SELECT r.kind, r.deleted_to
        FROM retention r JOIN unnest($2::text[], $3::timestamptz[]) AS u (kind, stored_to) ON u.kind = r.kind
        WHERE r.account_id = $1 AND r.kept_from <= u.stored_to
        ORDER BY r.kept_from LIMIT 1 FOR NO KEY UPDATE OF r SKIP LOCKED
        """,
        list(stored_to),
        list(stored_to.values()),
    )


async def lock(tx: Tx, kind: Kind) -> None:
    await tx.execute(
        "SELECT FROM retention r WHERE r.account_id = $1 AND r.kind = $2 FOR NO KEY UPDATE", kind
    )


async def note_deleted(tx: Tx, kind: Kind, *, deleted_to: int) -> None:
    """Store that rows up to `deleted_to` were deleted with rows of another kind. The stored number never decreases."""
    await tx.execute(
        """
        UPDATE retention r SET deleted_to = greatest(r.deleted_to, $3) WHERE r.account_id = $1 AND r.kind = $2
        """,
        kind,
        deleted_to,
    )


async def update(
    tx: Tx, kind: Kind, *, kept_from: datetime, deleted_to: int = 0, deleted_until: datetime | None = None
) -> None:
    """Store how far rows are deleted. `deleted_to` and `deleted_until` never decrease."""
    await tx.execute(
        """
        UPDATE retention r SET kept_from = $3, deleted_to = greatest(r.deleted_to, $4),
            deleted_until = greatest(r.deleted_until, $5)
        WHERE r.account_id = $1 AND r.kind = $2
        """,
        kind,
        kept_from,
        deleted_to,
        deleted_until,
    )


async def deleted_to(tx: Tx, kind: Kind) -> int:
    """Return the number up to which rows of this kind are deleted, or 0 if none are."""
    return await tx.fetchval(
        "SELECT coalesce(max(r.deleted_to), 0) FROM retention r WHERE r.account_id = $1 AND r.kind = $2", kind
    )


async def discover_old(
    discovery: Discovery, *, real_now: datetime, kept_for: Mapping[str, timedelta]
) -> Sequence[Account]:
    """Return accounts that have rows older than `kept_for` allows, or expired Idempotency-Keys.

    Each statement reads only the 1,000 oldest rows, so one call may miss accounts. A later call finds them, because the
    lane meanwhile deletes the oldest rows. The lane also serves accounts that are suspended or whose test clock is
    advancing. If it left them out, the 1,000 oldest rows could belong to such accounts forever.
    """
    keys = await discovery.fetch(
        """
        SELECT d.account_id FROM (
            SELECT i.account_id FROM idempotency_key i WHERE i.expires_at <= $1 ORDER BY i.expires_at LIMIT 1000
        ) d GROUP BY d.account_id
        """,
        real_now,
    )
    found: set[UUID] = {row["account_id"] for row in keys}
    for kind, days in kept_for.items():
        rows = await discovery.fetch(
            """
            SELECT d.account_id FROM (
                SELECT r.account_id FROM retention r
                WHERE r.kind = $1 AND r.kept_from <= $2 ORDER BY r.kept_from LIMIT 1000
            ) d GROUP BY d.account_id
            """,
            kind,
            real_now - days,
        )
        found.update(row["account_id"] for row in rows)
    if not found:
        return []
    return await discovery.fetch_as(
        Account,
        """
        SELECT a.account_id, a.mode, a.currency, a.clock_offset FROM account a WHERE a.account_id = ANY($1::uuid[])
        """,
        list(found),
    )


async def discover_age(
    discovery: Discovery, *, real_now: datetime, kept_for: Mapping[str, timedelta]
) -> timedelta:
    """Return the time since the oldest rows of all accounts became due for deletion, or 0 if no rows are due."""
    ages = [timedelta()]
    for kind, days in kept_for.items():
        (row,) = await discovery.fetch(
            "SELECT min(r.kept_from) AS kept_from FROM retention r WHERE r.kind = $1", kind
        )
        if row["kept_from"] is not None:
            ages.append(real_now - days - row["kept_from"])
    return max(ages)
