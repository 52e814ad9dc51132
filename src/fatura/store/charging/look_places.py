"""SQL that limits the number of unmatched charges that only webhooks named (D-162)."""

from collections.abc import Collection, Sequence
from datetime import datetime
from uuid import UUID

from fatura.store.db import Tx


async def count_undecided(
    tx: Tx, connection_id: UUID, *, named: Collection[str], found_by: datetime, unanswered_looks: int
) -> tuple[int, int]:
    """Return how many of the connection's charges are undecided, and how many of these are replaceable.

    A charge is undecided if only webhooks named it, a look at it is scheduled, and it has no state. The charges in
    `named` are not replaceable. Any other undecided charge is replaceable in two cases:
    - The gateway did not know the charge.
    - The charge was found at `found_by` or earlier, and at least `unanswered_looks` looks at it got no answer.
    """
    rows = await tx.fetch(
        """
        SELECT count(*) AS undecided, count(*) FILTER (
            WHERE (u.unknown_since IS NOT NULL OR (u.found_at <= $4 AND u.unanswered_looks >= $5))
                AND u.gateway_charge_id <> ALL($3::text[])
        ) AS replaceable
        FROM unmatched_charge u
        WHERE u.account_id = $1 AND u.connection_id = $2 AND u.next_look_at IS NOT NULL AND u.state IS NULL
            AND u.only_webhook
        """,
        connection_id,
        sorted(named),
        found_by,
        unanswered_looks,
    )
    return rows[0]["undecided"], rows[0]["replaceable"]


async def remove_replaceable(
    tx: Tx,
    connection_id: UUID,
    *,
    named: Collection[str],
    found_by: datetime,
    unanswered_looks: int,
    limit: int,
) -> Sequence[str]:
    """Remove charges that `count_undecided` counts as replaceable, and return their ids.

    At most `limit` charges are removed. The charges that the gateway did not know are removed first, and the other
    charges after them. Within both groups, the charges that were found earliest are removed first.
    """
    rows = await tx.fetch(
        """
        WITH replaceable AS MATERIALIZED (
            SELECT x.gateway_charge_id FROM unmatched_charge x
            WHERE x.account_id = $1 AND x.connection_id = $2 AND x.next_look_at IS NOT NULL AND x.state IS NULL
                AND x.only_webhook AND x.gateway_charge_id <> ALL($3::text[])
                AND (x.unknown_since IS NOT NULL OR (x.found_at <= $4 AND x.unanswered_looks >= $5))
            ORDER BY x.unknown_since IS NULL, x.found_at, x.gateway_charge_id LIMIT $6 FOR UPDATE SKIP LOCKED
        )
        DELETE FROM unmatched_charge u USING replaceable
        WHERE u.account_id = $1 AND u.connection_id = $2 AND u.gateway_charge_id = replaceable.gateway_charge_id
        RETURNING u.gateway_charge_id
        """,
        connection_id,
        sorted(named),
        found_by,
        unanswered_looks,
        limit,
    )
    return [row["gateway_charge_id"] for row in rows]
