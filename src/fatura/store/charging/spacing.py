"""SQL that spreads the invoices of a subscription over days when several of them wait to be issued (D-57)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from fatura.store.db import Tx


@dataclass(frozen=True, slots=True)
class WaitingInvoice:
    """An invoice without a charge at the gateway.

    `others_sent_at` is when a charge of another invoice of the subscription was most recently sent or confirmed.
    `is_behind` is true while an invoice of an earlier cycle waits to be issued.
    """

    invoice_id: UUID
    others_sent_at: datetime | None
    is_behind: bool


async def lock_subscriptions(tx: Tx, invoice_ids: Sequence[UUID]) -> None:
    """Lock, in id order, those subscriptions of the given invoices that have several invoices to issue.

    The given invoices must be locked and `ready`. If two transactions issue invoices of one subscription, the lock
    makes the second transaction see the charge of the first.
    """
    await tx.execute(
        """
        SELECT FROM subscription s
        WHERE s.account_id = $1 AND s.subscription_id = ANY(ARRAY(
            SELECT o.subscription_id FROM invoice o
            WHERE o.account_id = $1 AND o.status IN ('draft', 'awaiting_value', 'ready')
                AND o.subscription_id = ANY(ARRAY(
                    SELECT v.subscription_id FROM invoice v WHERE v.account_id = $1 AND v.invoice_id = ANY($2::uuid[])
                ))
            GROUP BY o.subscription_id HAVING count(*) > 1
        ))
        ORDER BY s.subscription_id FOR NO KEY UPDATE
        """,
        invoice_ids,
    )


async def uncharged(
    tx: Tx, invoice_ids: Sequence[UUID], *, now: datetime, since: datetime
) -> Sequence[WaitingInvoice]:
    """Return the given invoices that have no charge, or only charges with the stage `absent`.

    For the field `others_sent_at` of the result, one charge of each other invoice of the subscription counts: the first
    that has not failed. Later charges of that invoice belong to reissues. Charges that were neither sent nor confirmed
    after `since` do not count.

    Both fields of the result ignore another `ready` invoice if it has a different connection, if its issuance was
    already failing before `since`, and if it is neither due nor leased. The reason is that the merchant may have moved
    the subscription away from a broken connection (D-59).

    The statement uses an ARRAY, which PostgreSQL computes only once. Before the table of charges is first analyzed,
    NOT EXISTS would make PostgreSQL read all charges of the account for each invoice.
    """
    return await tx.fetch_as(
        WaitingInvoice,
        """
        WITH other AS (
            SELECT v.invoice_id AS uncharged_id, o.invoice_id,
                o.cycle < v.cycle AND o.status = 'ready' AND o.next_attempt_at IS NOT NULL AS is_first
            FROM invoice v JOIN invoice o ON o.subscription_id = v.subscription_id
            WHERE v.account_id = $1 AND o.account_id = $1 AND v.invoice_id = ANY($2::uuid[])
                AND o.invoice_id <> v.invoice_id
                AND (o.connection_id = v.connection_id OR o.status <> 'ready' OR o.lease_until IS NOT NULL
                    OR o.next_attempt_at <= $3 OR coalesce(o.issue_failing_since, $4) >= $4)
        )
        SELECT v.invoice_id, (
                SELECT max(greatest(c.sent_at, c.confirmed_at))
                FROM other o JOIN charge c ON c.invoice_id = o.invoice_id
                WHERE c.account_id = $1 AND o.uncharged_id = v.invoice_id AND c.stage NOT IN ('planned', 'failed')
                    AND c.number = (
                        SELECT min(e.number) FROM charge e
                        WHERE e.account_id = $1 AND e.invoice_id = c.invoice_id AND e.stage <> 'failed'
                    )
                    AND greatest(c.sent_at, c.confirmed_at) > $4
            ) AS others_sent_at,
            EXISTS (SELECT FROM other o WHERE o.uncharged_id = v.invoice_id AND o.is_first) AS is_behind
        FROM invoice v
        WHERE v.account_id = $1 AND v.invoice_id = ANY($2::uuid[])
            AND v.invoice_id <> ALL(ARRAY(
                SELECT n.invoice_id FROM charge n
                WHERE n.account_id = $1 AND n.invoice_id = ANY($2::uuid[]) AND n.stage <> 'absent'
            ))
        """,
        invoice_ids,
        now,
        since,
    )
