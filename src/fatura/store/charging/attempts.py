"""SQL of `charge_attempt`: each attempt to create a charge, stored before its request is sent (D-33)."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from fatura.domain.charging import AttemptState, ChargeAttempt
from fatura.store.billing import invoices
from fatura.store.db import Tx


async def newest(tx: Tx, invoice_ids: Sequence[UUID]) -> dict[UUID, ChargeAttempt]:
    found = await tx.fetch_as(
        ChargeAttempt,
        """
        SELECT DISTINCT ON (a.invoice_id) a.invoice_id, a.attempt AS number, a.connection_id, a.state, a.amount_cents,
            a.charge_due_date, a.first_sent_at, a.sent_at, a.gateway_invoice_id, a.empty_lookups, a.looked_up_at,
            a.known_charge_ids, a.error_code
        FROM charge_attempt a WHERE a.account_id = $1 AND a.invoice_id = ANY($2::uuid[])
        ORDER BY a.invoice_id, a.attempt DESC
        """,
        invoice_ids,
    )
    return {attempt.invoice_id: attempt for attempt in found}


async def save_sending(tx: Tx, attempts: Sequence[ChargeAttempt]) -> None:
    """Insert new attempts, or update open ones, before their requests are sent."""
    touched = await tx.execute(
        """
        INSERT INTO charge_attempt AS a (account_id, invoice_id, attempt, connection_id, state, amount_cents,
            charge_due_date, first_sent_at, sent_at)
        SELECT o.account_id, u.invoice_id, u.attempt, u.connection_id, 'sending', u.amount_cents, u.charge_due_date,
            u.first_sent_at, u.sent_at
        FROM account o CROSS JOIN unnest($2::uuid[], $3::int4[], $4::uuid[], $5::int8[], $6::date[],
            $7::timestamptz[], $8::timestamptz[])
            AS u (invoice_id, attempt, connection_id, amount_cents, charge_due_date, first_sent_at, sent_at)
        WHERE o.account_id = $1
        ON CONFLICT (account_id, invoice_id, attempt) DO UPDATE
        SET state = 'sending', sent_at = EXCLUDED.sent_at, charge_due_date = EXCLUDED.charge_due_date,
            empty_lookups = 0, looked_up_at = NULL
        WHERE a.account_id = $1 AND a.state IN ('sending', 'absent')
        """,
        [attempt.invoice_id for attempt in attempts],
        [attempt.number for attempt in attempts],
        [attempt.connection_id for attempt in attempts],
        [attempt.amount_cents for attempt in attempts],
        [attempt.charge_due_date for attempt in attempts],
        [attempt.first_sent_at for attempt in attempts],
        [attempt.sent_at for attempt in attempts],
    )
    assert touched == len(attempts), (touched, len(attempts))


async def lock(tx: Tx, invoice_ids: Sequence[UUID], numbers: Sequence[int]) -> dict[UUID, ChargeAttempt]:
    """Lock invoices, then one attempt of each. Issuance uses the same order, so there is no deadlock."""
    await invoices.lock(tx, invoice_ids)
    found = await tx.fetch_as(
        ChargeAttempt,
        """
        SELECT a.invoice_id, a.attempt AS number, a.connection_id, a.state, a.amount_cents, a.charge_due_date,
            a.first_sent_at, a.sent_at, a.gateway_invoice_id, a.empty_lookups, a.looked_up_at, a.known_charge_ids,
            a.error_code
        FROM charge_attempt a
        WHERE a.account_id = $1 AND a.invoice_id = ANY($2::uuid[]) AND (a.invoice_id, a.attempt) IN (
            SELECT u.invoice_id, u.attempt FROM unnest($2::uuid[], $3::int4[]) AS u (invoice_id, attempt)
        )
        ORDER BY a.invoice_id FOR NO KEY UPDATE OF a
        """,
        invoice_ids,
        numbers,
    )
    assert len(found) == len(invoice_ids), "an attempt is committed before its request is sent"
    return {attempt.invoice_id: attempt for attempt in found}


async def lock_one(tx: Tx, invoice_id: UUID, number: int) -> ChargeAttempt:
    return (await lock(tx, [invoice_id], [number]))[invoice_id]


async def confirm(tx: Tx, attempts: Sequence[ChargeAttempt], *, charge_ids: Sequence[str]) -> None:
    """Mark locked attempts as confirmed, each with the id of its charge."""
    await tx.execute(
        """
        UPDATE charge_attempt a SET state = 'confirmed', gateway_invoice_id = u.charge_id, error_code = NULL,
            error_detail = NULL
        FROM unnest($2::uuid[], $3::int4[], $4::text[]) AS u (invoice_id, attempt, charge_id)
        WHERE a.account_id = $1 AND a.invoice_id = ANY($2::uuid[]) AND a.invoice_id = u.invoice_id
            AND a.attempt = u.attempt
        """,
        [attempt.invoice_id for attempt in attempts],
        [attempt.number for attempt in attempts],
        charge_ids,
    )


async def mark(
    tx: Tx,
    attempt: ChargeAttempt,
    state: AttemptState,
    *,
    error_code: str | None = None,
    error_detail: str | None = None,
) -> None:
    """Set the state of a locked attempt, and remove its charge id."""
    await tx.execute(
        """
        UPDATE charge_attempt a SET state = $4, gateway_invoice_id = NULL, error_code = $5, error_detail = $6
        WHERE a.account_id = $1 AND a.invoice_id = $2 AND a.attempt = $3
        """,
        attempt.invoice_id,
        attempt.number,
        state,
        error_code,
        error_detail,
    )


async def count_empty_lookup(tx: Tx, attempt: ChargeAttempt, *, looked_up_at: datetime) -> None:
    """Increment the number of empty look-ups; `looked_up_at` is on the account's clock."""
    await tx.execute(
        """
        UPDATE charge_attempt a SET empty_lookups = a.empty_lookups + 1, looked_up_at = $4
        WHERE a.account_id = $1 AND a.invoice_id = $2 AND a.attempt = $3 AND a.state = 'sending'
        """,
        attempt.invoice_id,
        attempt.number,
        looked_up_at,
    )


async def reopen_parked(tx: Tx, invoice_id: UUID) -> None:
    """Mark a parked attempt as failed or, if it has known charges to look up, as sending (D-113, D-123)."""
    await tx.execute(
        """
        UPDATE charge_attempt a SET state = CASE WHEN a.known_charge_ids = '{}' THEN 'failed' ELSE 'sending' END
        WHERE a.account_id = $1 AND a.invoice_id = $2 AND a.state = 'parked'
        """,
        invoice_id,
    )
