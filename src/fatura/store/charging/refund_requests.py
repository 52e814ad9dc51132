"""SQL of `refund_request`: refunds that merchants asked for (D-53)."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from fatura.domain.refunds import RefundRequest
from fatura.store import leases
from fatura.store.db import Tx


async def insert(tx: Tx, request: RefundRequest) -> None:
    await tx.execute(
        """
        INSERT INTO refund_request (account_id, refund_id, invoice_id, charge_id, connection_id, gateway_charge_id,
            stage, amount_cents, left_cents, currency, reason, created_at, next_attempt_at, closed_at, payment_entry_id)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
        """,
        request.refund_id,
        request.invoice_id,
        request.charge_id,
        request.connection_id,
        request.gateway_charge_id,
        request.stage,
        request.amount_cents,
        request.left_cents,
        request.currency,
        request.reason,
        request.created_at,
        request.next_attempt_at,
        request.closed_at,
        request.payment_entry_id,
    )


async def find(tx: Tx, refund_id: UUID) -> RefundRequest | None:
    return await tx.fetchrow_as(
        RefundRequest,
        """
        SELECT r.refund_id, r.invoice_id, r.charge_id, r.connection_id, r.gateway_charge_id, r.stage, r.amount_cents,
            r.left_cents, r.currency, r.reason, r.created_at, r.next_attempt_at, r.lease_until, r.failures, r.sent_at,
            r.unknown_since, r.empty_lookups, r.looked_up_at, r.closed_at, r.payment_entry_id, r.error_code,
            r.error_detail
        FROM refund_request r WHERE r.account_id = $1 AND r.refund_id = $2
        """,
        refund_id,
    )


async def has_open(tx: Tx, invoice_id: UUID) -> bool:
    return await tx.fetchval(
        """
        SELECT EXISTS (
            SELECT FROM refund_request r
            WHERE r.account_id = $1 AND r.invoice_id = $2 AND r.stage IN ('planned', 'sending', 'accepted')
        )
        """,
        invoice_id,
    )


async def count_failed(tx: Tx, invoice_id: UUID) -> int:
    return await tx.fetchval(
        "SELECT count(*) FROM refund_request r WHERE r.account_id = $1 AND r.invoice_id = $2 AND r.stage = 'failed'",
        invoice_id,
    )


async def to_look_up(tx: Tx, refund_ids: Sequence[UUID]) -> set[UUID]:
    """Return those of the given refunds that must not be sent before their charge is read from the gateway.

    A charge must be read if it has a failed refund that the gateway could still make (D-151). It must also be read if
    the gateway has not answered about it since `fatura restored` ended, because the ledger may lack refunds (D-123).
    """
    rows = await tx.fetch(
        """
        SELECT r.refund_id FROM refund_request r
        WHERE r.account_id = $1 AND r.refund_id = ANY($2::uuid[]) AND (
            EXISTS (
                SELECT FROM refund_request f
                WHERE f.account_id = $1 AND f.invoice_id = r.invoice_id AND f.connection_id = r.connection_id
                    AND f.gateway_charge_id = r.gateway_charge_id AND f.stage = 'failed'
                    AND f.unknown_since IS NOT NULL
            ) OR EXISTS (
                SELECT FROM account a LEFT JOIN charge c ON c.account_id = $1 AND c.charge_id = r.charge_id
                WHERE a.account_id = $1 AND a.restored_at >= coalesce(c.asked_at, '-infinity')
            )
        )
        """,
        refund_ids,
    )
    return {row["refund_id"] for row in rows}


async def lock(tx: Tx, refund_ids: Sequence[UUID]) -> Sequence[RefundRequest]:
    """Lock refunds in id order; the caller must have locked their invoices."""
    return await tx.fetch_as(
        RefundRequest,
        """
        SELECT r.refund_id, r.invoice_id, r.charge_id, r.connection_id, r.gateway_charge_id, r.stage, r.amount_cents,
            r.left_cents, r.currency, r.reason, r.created_at, r.next_attempt_at, r.lease_until, r.failures, r.sent_at,
            r.unknown_since, r.empty_lookups, r.looked_up_at, r.closed_at, r.payment_entry_id, r.error_code,
            r.error_detail
        FROM refund_request r WHERE r.account_id = $1 AND r.refund_id = ANY($2::uuid[])
        ORDER BY r.refund_id FOR NO KEY UPDATE
        """,
        refund_ids,
    )


async def lock_unsent(tx: Tx, invoice_id: UUID) -> Sequence[RefundRequest]:
    """Lock the planned refund of a locked invoice, and return it in a list.

    The list is empty if there is no planned refund, or if the gateway may have received a request for it.
    """
    rows = await tx.fetch(
        """
        SELECT r.refund_id FROM refund_request r
        WHERE r.account_id = $1 AND r.invoice_id = $2 AND r.stage = 'planned' AND r.unknown_since IS NULL
        """,
        invoice_id,
    )
    return await lock(tx, [row["refund_id"] for row in rows])


async def lock_due(tx: Tx, *, now: datetime, real_now: datetime, limit: int) -> Sequence[UUID]:
    """Lock refunds that are due and that no worker has leased, earliest due first. Return their ids."""
    rows = await tx.fetch(
        """
        SELECT r.refund_id FROM refund_request r
        WHERE r.account_id = $1 AND r.next_attempt_at <= $2
            AND (r.lease_until IS NULL OR r.lease_until <= $3 OR r.lease_until > $4)
        ORDER BY r.next_attempt_at LIMIT $5 FOR NO KEY UPDATE SKIP LOCKED
        """,
        now,
        real_now,
        leases.horizon(real_now),
        limit,
    )
    return [row["refund_id"] for row in rows]


async def lock_due_among(
    tx: Tx, refund_ids: Sequence[UUID], *, now: datetime, real_now: datetime
) -> Sequence[UUID]:
    """Lock those of the given refunds that are due and that no worker has leased. Return their ids."""
    rows = await tx.fetch(
        """
        SELECT r.refund_id FROM refund_request r
        WHERE r.account_id = $1 AND r.refund_id = ANY($2::uuid[]) AND r.next_attempt_at <= $3
            AND (r.lease_until IS NULL OR r.lease_until <= $4 OR r.lease_until > $5)
        ORDER BY r.refund_id FOR NO KEY UPDATE SKIP LOCKED
        """,
        refund_ids,
        now,
        real_now,
        leases.horizon(real_now),
    )
    return [row["refund_id"] for row in rows]


async def put_off(tx: Tx, refund_id: UUID, *, until: datetime) -> None:
    """End the lease of a locked refund, and make the refund due at `until`."""
    await tx.execute(
        """
        UPDATE refund_request r SET next_attempt_at = $3, lease_until = NULL
        WHERE r.account_id = $1 AND r.refund_id = $2
        """,
        refund_id,
        until,
    )


async def update(tx: Tx, requests: Sequence[RefundRequest]) -> None:
    """Write the mutable columns of locked refunds."""
    await tx.execute(
        """
        UPDATE refund_request r SET stage = u.stage, next_attempt_at = u.next_attempt_at, lease_until = u.lease_until,
            failures = u.failures, sent_at = u.sent_at, unknown_since = u.unknown_since,
            empty_lookups = u.empty_lookups, looked_up_at = u.looked_up_at, closed_at = u.closed_at,
            payment_entry_id = u.payment_entry_id, error_code = u.error_code, error_detail = u.error_detail
        FROM unnest($2::uuid[], $3::text[], $4::timestamptz[], $5::timestamptz[], $6::int4[], $7::timestamptz[],
            $8::timestamptz[], $9::int4[], $10::timestamptz[], $11::timestamptz[], $12::uuid[], $13::text[],
            $14::text[])
            AS u (refund_id, stage, next_attempt_at, lease_until, failures, sent_at, unknown_since, empty_lookups,
                looked_up_at, closed_at, payment_entry_id, error_code, error_detail)
        WHERE r.account_id = $1 AND r.refund_id = ANY($2::uuid[]) AND r.refund_id = u.refund_id
        """,
        [each.refund_id for each in requests],
        [each.stage for each in requests],
        [each.next_attempt_at for each in requests],
        [each.lease_until for each in requests],
        [each.failures for each in requests],
        [each.sent_at for each in requests],
        [each.unknown_since for each in requests],
        [each.empty_lookups for each in requests],
        [each.looked_up_at for each in requests],
        [each.closed_at for each in requests],
        [each.payment_entry_id for each in requests],
        [each.error_code for each in requests],
        [each.error_detail for each in requests],
    )
