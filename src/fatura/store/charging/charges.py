"""SQL of `charge`: each charge of an invoice, stored before its request is sent (D-33, D-49)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from fatura.domain.charge import ChargeStage, InvoiceCharge
from fatura.store.billing import invoices
from fatura.store.db import Tx, check_rows

REQUEST_PLACE = "charge.request_sealed"


@dataclass(frozen=True, slots=True)
class CallHold:
    """A stored real time by which the calls for a charge have certainly ended. A suspension waits until then (D-242).

    `until` is the time by which the call that cancels the charge has ended. `before` is the time that was stored for
    earlier calls, or None.
    """

    until: datetime
    before: datetime | None


async def newest(tx: Tx, invoice_ids: Sequence[UUID]) -> dict[UUID, InvoiceCharge]:
    """Return the newest charge of each invoice that has one."""
    found = await tx.fetch_as(
        InvoiceCharge,
        """
        SELECT DISTINCT ON (c.invoice_id) c.charge_id, c.invoice_id, c.number, c.connection_id, c.stage, c.amount_cents,
            c.currency, c.payment_method, c.installments, c.due_date, c.created_at, c.first_sent_at, c.sent_at,
            c.request_sealed, c.empty_lookups, c.looked_up_at, c.known_charge_ids, c.gateway_invoice_id, c.confirmed_at,
            c.closed_at, c.unknown_since, c.error_code
        FROM charge c WHERE c.account_id = $1 AND c.invoice_id = ANY($2::uuid[])
        ORDER BY c.invoice_id, c.number DESC
        """,
        invoice_ids,
    )
    return {charge.invoice_id: charge for charge in found}


async def confirmed(tx: Tx, invoice_ids: Sequence[UUID]) -> Sequence[InvoiceCharge]:
    """Return the charges of these invoices that the gateway has confirmed, oldest first within each invoice."""
    return await tx.fetch_as(
        InvoiceCharge,
        """
        SELECT c.charge_id, c.invoice_id, c.number, c.connection_id, c.stage, c.amount_cents, c.currency,
            c.payment_method, c.installments, c.due_date, c.created_at, c.first_sent_at, c.sent_at, c.request_sealed,
            c.empty_lookups, c.looked_up_at, c.known_charge_ids, c.gateway_invoice_id, c.confirmed_at, c.closed_at,
            c.unknown_since, c.error_code
        FROM charge c
        WHERE c.account_id = $1 AND c.invoice_id = ANY($2::uuid[]) AND c.gateway_invoice_id IS NOT NULL
        ORDER BY c.invoice_id, c.number
        """,
        invoice_ids,
    )


async def find_id(tx: Tx, invoice_id: UUID, number: int) -> UUID | None:
    return await tx.fetchval(
        """
        SELECT c.charge_id FROM charge c WHERE c.account_id = $1 AND c.invoice_id = $2 AND c.number = $3
        """,
        invoice_id,
        number,
    )


async def was_asked(tx: Tx, charge_id: UUID, *, since: datetime) -> bool:
    """Return whether the gateway has answered about a charge at or after `since`."""
    return await tx.fetchval(
        """
        SELECT EXISTS (
            SELECT FROM charge c WHERE c.account_id = $1 AND c.charge_id = $2 AND c.asked_at >= $3
        )
        """,
        charge_id,
        since,
    )


async def exists(tx: Tx, charge_id: UUID) -> bool:
    return await tx.fetchval(
        "SELECT EXISTS (SELECT FROM charge c WHERE c.account_id = $1 AND c.charge_id = $2)", charge_id
    )


async def find(tx: Tx, charge_id: UUID) -> InvoiceCharge | None:
    return await tx.fetchrow_as(
        InvoiceCharge,
        """
        SELECT c.charge_id, c.invoice_id, c.number, c.connection_id, c.stage, c.amount_cents, c.currency,
            c.payment_method, c.installments, c.due_date, c.created_at, c.first_sent_at, c.sent_at, c.request_sealed,
            c.empty_lookups, c.looked_up_at, c.known_charge_ids, c.gateway_invoice_id, c.confirmed_at, c.closed_at,
            c.unknown_since, c.error_code
        FROM charge c WHERE c.account_id = $1 AND c.charge_id = $2
        """,
        charge_id,
    )


async def save_sending(tx: Tx, charges: Sequence[InvoiceCharge], *, call_ends_at: datetime | None) -> None:
    """Insert new charges, or update stored ones, before their requests are sent.

    `call_ends_at` (real time) is when the calls have certainly ended, even if the leases of the invoices end earlier.
    It is None if no request is sent.

    Raises RowCountError if a stored charge is in a stage in which its request must not be sent.
    """
    touched = await tx.execute(
        """
        INSERT INTO charge AS c (account_id, charge_id, invoice_id, number, connection_id, stage, amount_cents,
            currency, payment_method, installments, due_date, request_sealed, created_at, first_sent_at, sent_at,
            call_ends_at)
        SELECT o.account_id, u.charge_id, u.invoice_id, u.number, u.connection_id, u.stage, u.amount_cents, u.currency,
            u.payment_method, u.installments, u.due_date, u.request_sealed, u.created_at, u.first_sent_at, u.sent_at,
            $16
        FROM account o CROSS JOIN unnest($2::uuid[], $3::uuid[], $4::int4[], $5::uuid[], $6::text[], $7::int8[],
            $8::text[], $9::text[], $10::int2[], $11::date[], $12::bytea[], $13::timestamptz[], $14::timestamptz[],
            $15::timestamptz[])
            AS u (charge_id, invoice_id, number, connection_id, stage, amount_cents, currency, payment_method,
                installments, due_date, request_sealed, created_at, first_sent_at, sent_at)
        WHERE o.account_id = $1
        ON CONFLICT (account_id, charge_id) DO UPDATE
        SET stage = EXCLUDED.stage, sent_at = EXCLUDED.sent_at, first_sent_at = EXCLUDED.first_sent_at,
            due_date = EXCLUDED.due_date, request_sealed = EXCLUDED.request_sealed, empty_lookups = 0,
            looked_up_at = NULL, call_ends_at = EXCLUDED.call_ends_at
        WHERE c.account_id = $1 AND c.stage IN ('planned', 'sending', 'unknown', 'absent')
        """,
        [charge.charge_id for charge in charges],
        [charge.invoice_id for charge in charges],
        [charge.number for charge in charges],
        [charge.connection_id for charge in charges],
        [charge.stage for charge in charges],
        [charge.amount_cents for charge in charges],
        [charge.currency for charge in charges],
        [charge.payment_method for charge in charges],
        [charge.installments for charge in charges],
        [charge.due_date for charge in charges],
        [charge.request_sealed for charge in charges],
        [charge.created_at for charge in charges],
        [charge.first_sent_at for charge in charges],
        [charge.sent_at for charge in charges],
        call_ends_at,
    )
    check_rows(touched, len(charges))


async def end_calls(tx: Tx, charges: Sequence[InvoiceCharge]) -> None:
    """Store that the calls for these charges have ended, unless the requests were sent again since.

    A charge that another worker has confirmed keeps its `call_ends_at`, because `hold` may have set this time.
    """
    await tx.execute(
        """
        UPDATE charge c SET call_ends_at = NULL
        FROM unnest($2::uuid[], $3::timestamptz[]) AS u (charge_id, sent_at)
        WHERE c.account_id = $1 AND c.charge_id = ANY($2::uuid[]) AND c.charge_id = u.charge_id
            AND c.sent_at = u.sent_at AND c.call_ends_at IS NOT NULL AND c.stage IN ('sending', 'unknown')
        """,
        [charge.charge_id for charge in charges],
        [charge.sent_at for charge in charges],
    )


async def hold(tx: Tx, charge_id: UUID, *, until: datetime) -> CallHold:
    """Store `until` (real time) as the time by which the coming call that cancels this charge has certainly ended.

    A later stored time stays. The caller has locked the charge's invoice.
    """
    before = await tx.fetchval(
        """
        UPDATE charge c SET call_ends_at = greatest(o.call_ends_at, $3)
        FROM charge o
        WHERE c.account_id = $1 AND c.charge_id = $2 AND o.account_id = $1 AND o.charge_id = $2
        RETURNING o.call_ends_at
        """,
        charge_id,
        until,
    )
    return CallHold(until, before)


async def end_hold(tx: Tx, charge_id: UUID, ended: CallHold) -> None:
    """Store that the call of a hold has ended: replace the stored time by `before`, unless a later hold changed it."""
    await tx.execute(
        """
        UPDATE charge c SET call_ends_at = $4 WHERE c.account_id = $1 AND c.charge_id = $2 AND c.call_ends_at = $3
        """,
        charge_id,
        ended.until,
        ended.before,
    )


async def insert_planned(tx: Tx, charge: InvoiceCharge) -> None:
    """Insert the charge that issuance will send. The charge of an erased customer stores no customer data (D-229)."""
    await tx.execute(
        """
        INSERT INTO charge (account_id, charge_id, invoice_id, number, connection_id, stage, amount_cents, currency,
            payment_method, installments, due_date, created_at, first_sent_at, sent_at, erased)
        SELECT v.account_id, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, u.email IS NULL
        FROM invoice v JOIN subscription s ON s.subscription_id = v.subscription_id
        JOIN customer u ON u.customer_id = s.customer_id
        WHERE v.account_id = $1 AND s.account_id = $1 AND u.account_id = $1 AND v.invoice_id = $3
        """,
        charge.charge_id,
        charge.invoice_id,
        charge.number,
        charge.connection_id,
        charge.stage,
        charge.amount_cents,
        charge.currency,
        charge.payment_method,
        charge.installments,
        charge.due_date,
        charge.created_at,
        charge.first_sent_at,
        charge.sent_at,
    )


async def mark_unknown(tx: Tx, charge_ids: Sequence[UUID]) -> None:
    """Move charges whose answer was lost from `sending` to `unknown`. Charges in other stages do not change."""
    await tx.execute(
        """
        UPDATE charge c SET stage = 'unknown'
        WHERE c.account_id = $1 AND c.charge_id = ANY($2::uuid[]) AND c.stage = 'sending'
        """,
        charge_ids,
    )


async def save_sent(tx: Tx, charge: InvoiceCharge, *, sent_at: datetime) -> None:
    """Store when the request of a charge was sent, on the account's clock."""
    await tx.execute(
        "UPDATE charge c SET sent_at = $3 WHERE c.account_id = $1 AND c.charge_id = $2",
        charge.charge_id,
        sent_at,
    )


async def save_first_sent(tx: Tx, charge_ids: Sequence[UUID], *, first_sent_at: datetime) -> None:
    """Store when the requests of these charges were first sent, in real time."""
    await tx.execute(
        """
        UPDATE charge c SET first_sent_at = $3 WHERE c.account_id = $1 AND c.charge_id = ANY($2::uuid[])
        """,
        charge_ids,
        first_sent_at,
    )


async def lock(tx: Tx, charges: Sequence[InvoiceCharge]) -> dict[UUID, InvoiceCharge]:
    """Lock the invoices of these charges, then the charges. Return the charges as they are stored now, by id.

    Issuance locks in the same order, so there is no deadlock.
    """
    await invoices.lock(tx, [charge.invoice_id for charge in charges])
    found = await tx.fetch_as(
        InvoiceCharge,
        """
        SELECT c.charge_id, c.invoice_id, c.number, c.connection_id, c.stage, c.amount_cents, c.currency,
            c.payment_method, c.installments, c.due_date, c.created_at, c.first_sent_at, c.sent_at, c.request_sealed,
            c.empty_lookups, c.looked_up_at, c.known_charge_ids, c.gateway_invoice_id, c.confirmed_at, c.closed_at,
            c.unknown_since, c.error_code
        FROM charge c WHERE c.account_id = $1 AND c.charge_id = ANY($2::uuid[])
        ORDER BY c.charge_id FOR NO KEY UPDATE OF c
        """,
        [charge.charge_id for charge in charges],
    )
    check_rows(len(found), len(charges))  # every charge is committed before its request is sent
    return {charge.charge_id: charge for charge in found}


async def lock_one(tx: Tx, charge: InvoiceCharge) -> InvoiceCharge:
    return (await lock(tx, [charge]))[charge.charge_id]


async def mark(
    tx: Tx,
    charge: InvoiceCharge,
    stage: ChargeStage,
    *,
    closed_at: datetime | None = None,
    error_code: str | None = None,
    error_detail: str | None = None,
) -> None:
    """Set the stage of a locked charge that the gateway has not confirmed."""
    await tx.execute(
        """
        UPDATE charge c SET stage = $3, closed_at = $4, error_code = $5, error_detail = $6
        WHERE c.account_id = $1 AND c.charge_id = $2
        """,
        charge.charge_id,
        stage,
        closed_at,
        error_code,
        error_detail,
    )


async def count_empty_lookup(tx: Tx, charge: InvoiceCharge, *, looked_up_at: datetime) -> None:
    """Increment the number of empty look-ups; `looked_up_at` is on the account's clock."""
    await tx.execute(
        """
        UPDATE charge c SET empty_lookups = c.empty_lookups + 1, looked_up_at = $3
        WHERE c.account_id = $1 AND c.charge_id = $2 AND c.stage IN ('sending', 'unknown')
        """,
        charge.charge_id,
        looked_up_at,
    )


async def note_missing(tx: Tx, charge: InvoiceCharge, *, looked_up_at: datetime) -> None:
    """Store when look-ups first missed charges that were found earlier (D-181). Reset the number of empty look-ups."""
    await tx.execute(
        """
        UPDATE charge c SET empty_lookups = 0, looked_up_at = $3
        WHERE c.account_id = $1 AND c.charge_id = $2 AND c.stage IN ('sending', 'unknown')
        """,
        charge.charge_id,
        looked_up_at,
    )


async def forget_empty_lookups(tx: Tx, charge: InvoiceCharge) -> None:
    """Reset the number of empty look-ups of a charge to 0."""
    await tx.execute(
        """
        UPDATE charge c SET empty_lookups = 0, looked_up_at = NULL
        WHERE c.account_id = $1 AND c.charge_id = $2
        """,
        charge.charge_id,
    )


async def reopen_parked(tx: Tx, invoice_id: UUID, *, now: datetime) -> None:
    """Let issuance continue for an invoice with a parked charge (D-113).

    Look-ups may have found charges at the gateway for the parked charge. Ignore each found charge that is stored as
    another charge. If a found charge is left, make the parked charge `unknown`, so that issuance looks the found
    charges up. If none is left, or if the gateway no longer shows them (`charge_missing`), end the parked charge as
    `failed` (D-181).
    """
    await tx.execute(
        """
        UPDATE charge c SET stage = CASE WHEN x.is_over THEN 'failed' ELSE 'unknown' END,
            closed_at = CASE WHEN x.is_over THEN $3::timestamptz END, empty_lookups = 0, looked_up_at = NULL,
            known_charge_ids = CASE WHEN x.is_over THEN '{}' ELSE x.left_ids END
        FROM (
            SELECT l.charge_id, l.left_ids, l.left_ids = '{}' OR l.error_code = 'charge_missing' AS is_over
            FROM (
                SELECT o.charge_id, coalesce(o.error_code, '') AS error_code, ARRAY(
                    SELECT k.id FROM unnest(o.known_charge_ids) AS k (id) WHERE NOT EXISTS (
                        SELECT FROM charge s WHERE s.account_id = $1 AND s.connection_id = o.connection_id
                            AND s.gateway_invoice_id = k.id
                    )
                ) AS left_ids
                FROM charge o WHERE o.account_id = $1 AND o.invoice_id = $2 AND o.stage = 'parked'
            ) l
        ) x
        WHERE c.account_id = $1 AND c.charge_id = x.charge_id
        """,
        invoice_id,
        now,
    )


async def end_found(tx: Tx, charge: InvoiceCharge, *, now: datetime) -> None:
    """End a locked charge, because its invoice was paid before the charge was confirmed.

    If look-ups found charges at the gateway for this charge, those are second charges from now on.
    """
    await tx.execute(
        """
        UPDATE charge c SET stage = 'failed', closed_at = $3, known_charge_ids = '{}', error_code = NULL,
            error_detail = NULL
        WHERE c.account_id = $1 AND c.charge_id = $2
        """,
        charge.charge_id,
        now,
    )


async def close_unsent(tx: Tx, invoice_ids: Sequence[UUID], *, now: datetime) -> None:
    """End the planned and absent charges of canceled or paid invoices, so that they are not sent."""
    await tx.execute(
        """
        UPDATE charge c SET stage = 'failed', closed_at = $3
        WHERE c.account_id = $1 AND c.invoice_id = ANY($2::uuid[]) AND c.stage IN ('planned', 'absent')
        """,
        invoice_ids,
        now,
    )
