"""SQL that leases invoices for issuing and polling, and schedules their next attempt (D-34, D-35)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from uuid import UUID

from fatura.domain.invoice import IssueFailure
from fatura.domain.offer import PaymentMethod
from fatura.store import leases
from fatura.store.billing import invoices as stored_invoices
from fatura.store.db import Tx


@dataclass(frozen=True, slots=True)
class ClaimedInvoice:
    """An invoice with the data that a charge needs.

    `next_attempt_at` is the value that was stored when the invoice was read. If the stored value changes after that,
    another transaction has rescheduled the invoice. `next_attempt_at` is never None for a claimed invoice. It can be
    None for an invoice that a late look-up reads without a claim.
    """

    invoice_id: UUID
    connection_id: UUID
    customer_id: UUID
    customer_name: str
    customer_email: str | None
    document_sealed: bytes | None
    subscription_id: UUID
    cycle: int
    due_date: date
    payment_method: PaymentMethod
    installments: int | None
    total_cents: int
    currency: str
    paid_at: datetime | None
    next_attempt_at: datetime | None
    polls_first: bool
    issue_failures: int
    issue_failing_since: datetime | None
    issue_delay_emitted: bool


@dataclass(frozen=True, slots=True)
class DuePoll:
    connection_id: UUID
    polls_first: bool
    invoice_id: UUID


async def claim_ready(
    tx: Tx, *, now: datetime, real_now: datetime, lease_until: datetime, limit: int
) -> Sequence[UUID]:
    """Lease up to `limit` invoices that are due for issuing and that no worker has leased, earliest due first."""
    rows = await tx.fetch(
        """
        WITH due AS MATERIALIZED (
            SELECT x.invoice_id FROM invoice x
            WHERE x.account_id = $1 AND x.status = 'ready' AND x.next_attempt_at <= $2
                AND (x.lease_until IS NULL OR x.lease_until <= $3 OR x.lease_until > $6)
            ORDER BY x.next_attempt_at LIMIT $5
            FOR NO KEY UPDATE SKIP LOCKED
        )
        UPDATE invoice v SET lease_until = $4, waits_for_connection = false FROM due
        WHERE v.account_id = $1 AND v.invoice_id = due.invoice_id
        RETURNING v.invoice_id
        """,
        now,
        real_now,
        lease_until,
        limit,
        leases.horizon(real_now),
    )
    return [row["invoice_id"] for row in rows]


async def due_polls(
    tx: Tx, limits: Mapping[UUID, int], *, now: datetime, real_now: datetime
) -> Sequence[DuePoll]:
    """Return invoices that are due for polling and that no worker has leased, earliest due first.

    Each connection's invoices form two groups: those with a charge that a webhook named, and the others. `limits` has
    the maximum number of invoices that are returned from each group, by connection.

    After a poll, the polled invoice becomes due later than all invoices that are due now. So repeated webhooks about
    some charges cannot delay the polls of the other named charges.
    """
    return await tx.fetch_as(
        DuePoll,
        """
        SELECT c.connection_id, k.polls_first, n.invoice_id
        FROM unnest($2::uuid[], $3::int[]) AS c (connection_id, most)
        CROSS JOIN (VALUES (true), (false)) AS k (polls_first)
        CROSS JOIN LATERAL (
            SELECT v.invoice_id, v.next_attempt_at FROM invoice v
            WHERE v.account_id = $1 AND v.connection_id = c.connection_id AND v.polls_first = k.polls_first
                AND v.status IN ('issued', 'overdue', 'paid', 'canceled') AND v.next_attempt_at <= $4
                AND (v.lease_until IS NULL OR v.lease_until <= $5 OR v.lease_until > $6)
            ORDER BY v.next_attempt_at LIMIT c.most
        ) n
        ORDER BY n.next_attempt_at
        """,
        list(limits),
        list(limits.values()),
        now,
        real_now,
        leases.horizon(real_now),
    )


async def lease_polls(
    tx: Tx, invoice_ids: Sequence[UUID], *, now: datetime, real_now: datetime, lease_until: datetime
) -> Sequence[UUID]:
    """Lease those invoices of `due_polls` that are still due, and neither leased nor locked. Return the leased ones.

    `polls_first` stays true until the invoice is polled, so a poll that is put off keeps its priority.
    """
    rows = await tx.fetch(
        """
        WITH due AS MATERIALIZED (
            SELECT x.invoice_id FROM invoice x
            WHERE x.account_id = $1 AND x.invoice_id = ANY($2::uuid[])
                AND x.status IN ('issued', 'overdue', 'paid', 'canceled') AND x.next_attempt_at <= $3
                AND (x.lease_until IS NULL OR x.lease_until <= $4 OR x.lease_until > $6)
            FOR NO KEY UPDATE SKIP LOCKED
        )
        UPDATE invoice v SET lease_until = $5, waits_for_connection = false FROM due
        WHERE v.account_id = $1 AND v.invoice_id = due.invoice_id
        RETURNING v.invoice_id
        """,
        invoice_ids,
        now,
        real_now,
        lease_until,
        leases.horizon(real_now),
    )
    return [row["invoice_id"] for row in rows]


async def release(tx: Tx, invoice_ids: Sequence[UUID]) -> None:
    """End the leases of invoices that this transaction has leased. The invoices stay due."""
    await tx.execute(
        "UPDATE invoice v SET lease_until = NULL WHERE v.account_id = $1 AND v.invoice_id = ANY($2::uuid[])",
        invoice_ids,
    )


async def put_off(tx: Tx, invoice_ids: Sequence[UUID], *, until: Sequence[datetime]) -> None:
    """End the leases of invoices that this transaction has leased, and set when they are due again."""
    await tx.execute(
        """
        UPDATE invoice v SET lease_until = NULL, next_attempt_at = u.at
        FROM unnest($2::uuid[], $3::timestamptz[]) AS u (invoice_id, at)
        WHERE v.account_id = $1 AND v.invoice_id = ANY($2::uuid[]) AND v.invoice_id = u.invoice_id
        """,
        invoice_ids,
        until,
    )


async def read(tx: Tx, invoice_ids: Sequence[UUID]) -> Sequence[ClaimedInvoice]:
    """Return these invoices, earliest due first."""
    return await tx.fetch_as(
        ClaimedInvoice,
        """
        SELECT v.invoice_id, v.connection_id, c.customer_id, c.name AS customer_name, c.email AS customer_email,
            c.document_sealed, v.subscription_id, v.cycle, v.due_date, v.payment_method, v.installments, v.total_cents,
            v.currency, v.paid_at, v.next_attempt_at, v.polls_first, v.issue_failures, v.issue_failing_since,
            v.issue_delay_emitted
        FROM invoice v
        JOIN subscription s ON s.subscription_id = v.subscription_id
        JOIN customer c ON c.customer_id = s.customer_id
        WHERE v.account_id = $1 AND s.account_id = $1 AND c.account_id = $1 AND v.invoice_id = ANY($2::uuid[])
        ORDER BY v.next_attempt_at, v.invoice_id
        """,
        invoice_ids,
    )


async def reschedule_issuance(
    tx: Tx,
    invoice: ClaimedInvoice,
    *,
    next_attempt_at: datetime | None,
    failures: int,
    failing_since: datetime | None,
    delay_emitted: bool,
    error: IssueFailure | None = None,
) -> None:
    """End the lease of a `ready` invoice and set its next attempt.

    If `next_attempt_at` is None, issuance stops until a person acts on `error`.

    If another transaction has changed the stored `next_attempt_at` since the claim, the changed value stays. If this
    value is a time, the stored error is removed. If this value is null, `error` replaces the stored error, unless
    `error` is None.
    """
    assert (next_attempt_at is None) is (error is not None), "only an error stops attempts"
    await tx.execute(
        """
        UPDATE invoice v SET lease_until = NULL, issue_failures = $4, issue_failing_since = $5,
            issue_delay_emitted = $6,
            issue_error_code = CASE WHEN v.next_attempt_at = $7 THEN $8::text
                WHEN v.next_attempt_at IS NULL THEN coalesce($8::text, v.issue_error_code) END,
            issue_error_detail = CASE WHEN v.next_attempt_at = $7 THEN $9::text
                WHEN v.next_attempt_at IS NULL THEN coalesce($9::text, v.issue_error_detail) END,
            issue_error_at = CASE WHEN v.next_attempt_at = $7 THEN $10::timestamptz
                WHEN v.next_attempt_at IS NULL THEN coalesce($10::timestamptz, v.issue_error_at) END,
            next_attempt_at = CASE WHEN v.next_attempt_at = $7 THEN $3::timestamptz ELSE v.next_attempt_at END
        WHERE v.account_id = $1 AND v.invoice_id = $2 AND v.status = 'ready'
        """,
        invoice.invoice_id,
        next_attempt_at,
        failures,
        failing_since,
        delay_emitted,
        invoice.next_attempt_at,
        None if error is None else error.code,
        None if error is None else error.detail,
        None if error is None else error.at,
    )


async def stop_parked(tx: Tx, invoice_id: UUID, *, now: datetime) -> None:
    """End the lease of an invoice and stop its issuance until a person acts on its parked charge.

    The invoice gets the error of the charge.
    """
    await tx.execute(
        """
        UPDATE invoice v SET lease_until = NULL, next_attempt_at = NULL, issue_failures = 0, issue_failing_since = NULL,
            issue_delay_emitted = false, issue_error_code = c.error_code, issue_error_detail = c.error_detail,
            issue_error_at = $3
        FROM charge c
        WHERE v.account_id = $1 AND v.invoice_id = $2 AND v.status = 'ready'
            AND c.account_id = $1 AND c.invoice_id = $2 AND c.stage = 'parked'
        """,
        invoice_id,
        now,
    )


async def reschedule_polls(
    tx: Tx,
    invoices: Sequence[ClaimedInvoice],
    *,
    next_attempts_at: Sequence[datetime | None],
    were_polled: bool,
) -> set[UUID]:
    """End the leases and set the times of the next polls. Return the invoices that another transaction rescheduled.

    If another transaction, for example that of a webhook, rescheduled an invoice after the claim, the time that it
    stored stays. An invoice that a reissue has made `ready` is neither changed nor returned. Invoices are locked first,
    in id order, to avoid deadlocks with `charge_polling`.

    With `were_polled`, also clear `polls_first` of the invoices that no other transaction has rescheduled.
    """
    invoice_ids = [invoice.invoice_id for invoice in invoices]
    await stored_invoices.lock(tx, invoice_ids)
    rows = await tx.fetch(
        """
        UPDATE invoice v SET lease_until = NULL,
            polls_first = v.polls_first AND (NOT $5 OR v.next_attempt_at IS DISTINCT FROM u.claimed_for),
            next_attempt_at =
                CASE WHEN v.next_attempt_at = u.claimed_for THEN u.next_attempt_at ELSE v.next_attempt_at END
        FROM unnest($2::uuid[], $3::timestamptz[], $4::timestamptz[]) AS u (invoice_id, claimed_for, next_attempt_at)
        WHERE v.account_id = $1 AND v.invoice_id = ANY($2::uuid[]) AND v.invoice_id = u.invoice_id
            AND v.gateway_invoice_id IS NOT NULL AND v.status <> 'ready'
        RETURNING v.invoice_id, v.next_attempt_at
        """,
        invoice_ids,
        [invoice.next_attempt_at for invoice in invoices],
        next_attempts_at,
        were_polled,
    )
    set_to = dict(zip(invoice_ids, next_attempts_at, strict=True))
    return {row["invoice_id"] for row in rows if row["next_attempt_at"] != set_to[row["invoice_id"]]}
