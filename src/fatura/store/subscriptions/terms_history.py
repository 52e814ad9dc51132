"""The history of subscriptions' terms. Rows are only inserted (D-54)."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from fatura.domain.subscription import TermsChange, TermsReason
from fatura.store.db import Tx, check_rows


async def append(
    tx: Tx, subscription_ids: Sequence[UUID], *, reason: TermsReason, changed_at: datetime
) -> None:
    """Record that the current terms of the subscriptions apply from their next cycle on.

    Call this function in the transaction that inserted or locked the subscriptions, after the terms were written.
    """
    touched = await tx.execute(
        """
        INSERT INTO subscription_terms (account_id, subscription_id, number, from_cycle, plan_version_id, reason,
            changed_at)
        SELECT s.account_id, s.subscription_id, 1 + coalesce((
            SELECT max(h.number) FROM subscription_terms h
            WHERE h.account_id = $1 AND h.subscription_id = s.subscription_id
        ), 0), s.cycle_count + 1, s.plan_version_id, $3, $4
        FROM subscription s WHERE s.account_id = $1 AND s.subscription_id = ANY($2::uuid[])
        """,
        subscription_ids,
        reason,
        changed_at,
    )
    check_rows(touched, len(subscription_ids))


async def newest(tx: Tx, subscription_id: UUID, *, limit: int) -> Sequence[TermsChange]:
    """Return the newest `limit` changes of a subscription's terms, in the order in which they were made."""
    found = await tx.fetch_as(
        TermsChange,
        """
        SELECT h.from_cycle, v.plan_id, v.version AS plan_version, v.subscription_id IS NOT NULL AS customized,
            h.changed_at, h.reason
        FROM subscription_terms h JOIN plan_version v ON v.plan_version_id = h.plan_version_id
        WHERE h.account_id = $1 AND v.account_id = $1 AND h.subscription_id = $2
        ORDER BY h.number DESC LIMIT $3
        """,
        subscription_id,
        limit,
    )
    return found[::-1]
