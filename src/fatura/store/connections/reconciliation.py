"""SQL that reads how far the engine has compared its charges with those of each gateway (D-269)."""

from collections.abc import Mapping
from datetime import datetime
from uuid import UUID

from fatura.domain.connection import MAX_COUNTED, Reconciliation
from fatura.store.db import Tx, record


async def find_all(tx: Tx, *, now: datetime, real_now: datetime) -> Mapping[UUID, Reconciliation]:
    """Return the state of each of the account's connections. Counts end at MAX_COUNTED."""
    rows = await tx.fetch(
        """
        SELECT h.connection_id, s.swept_to AS compared_to, s.next_sweep_at AS next_comparison_at,
            CASE WHEN h.polls_from > $3 THEN h.polls_from END AS polls_allowed_at,
            least(
                (
                    SELECT v.next_attempt_at FROM invoice v
                    WHERE v.account_id = $1 AND v.connection_id = h.connection_id AND v.polls_first
                        AND v.status IN ('issued', 'overdue', 'paid', 'canceled') AND v.next_attempt_at <= $2
                    ORDER BY v.next_attempt_at LIMIT 1
                ), (
                    SELECT v.next_attempt_at FROM invoice v
                    WHERE v.account_id = $1 AND v.connection_id = h.connection_id AND NOT v.polls_first
                        AND v.status IN ('issued', 'overdue', 'paid', 'canceled') AND v.next_attempt_at <= $2
                    ORDER BY v.next_attempt_at LIMIT 1
                )
            ) AS poll_due_since,
            (
                SELECT count(*) FROM (
                    SELECT FROM charge c
                    WHERE c.account_id = $1 AND c.connection_id = h.connection_id AND c.stage = 'unknown' LIMIT $4
                ) n
            ) AS unknown_charges,
            (
                SELECT count(*) FROM (
                    SELECT FROM unmatched_charge u
                    WHERE u.account_id = $1 AND u.connection_id = h.connection_id LIMIT $4
                ) n
            ) AS unmatched_charges
        FROM connection_health h JOIN connection_sweep s ON s.connection_id = h.connection_id
        WHERE h.account_id = $1 AND s.account_id = $1
        """,
        now,
        real_now,
        MAX_COUNTED,
    )
    return {row["connection_id"]: record(Reconciliation, row) for row in rows}
