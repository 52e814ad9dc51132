"""Charge attempts and the schedule of issuing and asking after charges (D-33 to D-35)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from uuid import UUID

from fatura.domain.charging import AttemptState, ChargeAttempt
from fatura.domain.invoice_states import InvoiceStatus
from fatura.domain.offer import PaymentMethod
from fatura.store.db import Tx, fields


@dataclass(frozen=True, slots=True)
class ClaimedInvoice:
    """An invoice whose work a lease has claimed, with what a charge needs of it."""

    invoice_id: UUID
    connection_id: UUID
    customer_id: UUID
    customer_name: str
    customer_email: str
    document_sealed: bytes | None
    due_date: date
    charge_due_date: date | None
    payment_method: PaymentMethod
    installments: int | None
    total_cents: int
    gateway_invoice_id: str | None
    next_attempt_at: datetime
    issue_failures: int
    issue_failing_since: datetime | None
    issue_delay_emitted: bool


async def claim(
    tx: Tx, status: InvoiceStatus, *, now: datetime, real_now: datetime, lease_until: datetime, limit: int
) -> Sequence[UUID]:
    """Lease invoices in one state whose work is due and that no living worker holds, the longest due first."""
    rows = await tx.fetch(
        """
        WITH due AS MATERIALIZED (
            SELECT x.invoice_id FROM invoice x
            WHERE x.account_id = $1 AND x.status = $2 AND x.next_attempt_at <= $3
                AND (x.lease_until IS NULL OR x.lease_until <= $4)
            ORDER BY x.next_attempt_at LIMIT $6
            FOR NO KEY UPDATE SKIP LOCKED
        )
        UPDATE invoice v SET lease_until = $5 FROM due
        WHERE v.account_id = $1 AND v.invoice_id = due.invoice_id
        RETURNING v.invoice_id
        """,
        status,
        now,
        real_now,
        lease_until,
        limit,
    )
    return [row["invoice_id"] for row in rows]


async def claimed(tx: Tx, invoice_ids: Sequence[UUID]) -> Sequence[ClaimedInvoice]:
    """Return what charging needs of claimed invoices."""
    rows = await tx.fetch(
        """
        SELECT v.invoice_id, v.connection_id, c.customer_id, c.name AS customer_name, c.email AS customer_email,
            c.document_sealed, v.due_date, v.charge_due_date, v.payment_method, v.installments, v.total_cents,
            v.gateway_invoice_id, v.next_attempt_at, v.issue_failures, v.issue_failing_since, v.issue_delay_emitted
        FROM invoice v
        JOIN subscription s ON s.subscription_id = v.subscription_id
        JOIN customer c ON c.customer_id = s.customer_id
        WHERE v.account_id = $1 AND s.account_id = $1 AND c.account_id = $1 AND v.invoice_id = ANY($2::uuid[])
        """,
        invoice_ids,
    )
    return [
        ClaimedInvoice(**fields(row, payment_method=PaymentMethod(row["payment_method"]))) for row in rows
    ]


async def last_attempts(tx: Tx, invoice_ids: Sequence[UUID]) -> dict[UUID, ChargeAttempt]:
    """Return the newest attempt of each invoice that has one."""
    rows = await tx.fetch(
        """
        SELECT DISTINCT ON (a.invoice_id) a.invoice_id, a.attempt, a.state, a.amount_cents, a.charge_due_date,
            a.first_sent_at, a.sent_at, a.empty_lookups, a.looked_up_at, a.known_charge_ids
        FROM charge_attempt a WHERE a.account_id = $1 AND a.invoice_id = ANY($2::uuid[])
        ORDER BY a.invoice_id, a.attempt DESC
        """,
        invoice_ids,
    )
    attempts: dict[UUID, ChargeAttempt] = {}
    for row in rows:
        columns = fields(row, state=AttemptState(row["state"]))
        invoice_id = columns.pop("invoice_id")
        attempts[invoice_id] = ChargeAttempt(**columns)
    return attempts


@dataclass(frozen=True, slots=True)
class NewAttempt:
    """An attempt about to be sent."""

    invoice_id: UUID
    attempt: int
    connection_id: UUID
    amount_cents: int
    charge_due_date: date


async def send(tx: Tx, attempts: Sequence[NewAttempt], *, sent_at: datetime, real_now: datetime) -> None:
    """Commit to sending: new attempts are stored, an open one is sent again; `sent_at` tells each sending apart."""
    touched = await tx.execute(
        """
        INSERT INTO charge_attempt AS a (account_id, invoice_id, attempt, connection_id, state, amount_cents,
            charge_due_date, first_sent_at, sent_at)
        SELECT o.account_id, u.invoice_id, u.attempt, u.connection_id, 'sending', u.amount_cents, u.charge_due_date,
            $8, $7
        FROM account o CROSS JOIN unnest($2::uuid[], $3::int4[], $4::uuid[], $5::int8[], $6::date[])
            AS u (invoice_id, attempt, connection_id, amount_cents, charge_due_date) WHERE o.account_id = $1
        ON CONFLICT (account_id, invoice_id, attempt) DO UPDATE
        SET state = 'sending', sent_at = EXCLUDED.sent_at, charge_due_date = EXCLUDED.charge_due_date,
            empty_lookups = 0, looked_up_at = NULL
        WHERE a.account_id = $1 AND a.state IN ('sending', 'absent')
        """,
        [new.invoice_id for new in attempts],
        [new.attempt for new in attempts],
        [new.connection_id for new in attempts],
        [new.amount_cents for new in attempts],
        [new.charge_due_date for new in attempts],
        sent_at,
        real_now,
    )
    assert touched == len(attempts), (touched, len(attempts))


@dataclass(frozen=True, slots=True)
class LockedAttempt:
    """An attempt as it stands now, held until the commit."""

    state: AttemptState
    sent_at: datetime
    gateway_invoice_id: str | None
    empty_lookups: int
    looked_up_at: datetime | None
    known_charge_ids: Sequence[str]
    error_code: str | None


async def lock_attempts(
    tx: Tx, invoice_ids: Sequence[UUID], attempts: Sequence[int]
) -> dict[UUID, LockedAttempt]:
    """Hold invoices, then an attempt of each, against all other workers: the order in which reserving locks them."""
    await tx.execute(
        """
        SELECT FROM invoice v
        WHERE v.account_id = $1 AND v.invoice_id = ANY($2::uuid[]) ORDER BY v.invoice_id FOR NO KEY UPDATE
        """,
        invoice_ids,
    )
    rows = await tx.fetch(
        """
        SELECT a.invoice_id, a.state, a.sent_at, a.gateway_invoice_id, a.empty_lookups, a.looked_up_at,
            a.known_charge_ids, a.error_code
        FROM charge_attempt a
        WHERE a.account_id = $1 AND a.invoice_id = ANY($2::uuid[]) AND (a.invoice_id, a.attempt) IN (
            SELECT u.invoice_id, u.attempt FROM unnest($2::uuid[], $3::int4[]) AS u (invoice_id, attempt)
        )
        ORDER BY a.invoice_id FOR NO KEY UPDATE OF a
        """,
        invoice_ids,
        attempts,
    )
    assert len(rows) == len(invoice_ids), "an attempt is committed before it is sent"
    locked: dict[UUID, LockedAttempt] = {}
    for row in rows:
        columns = fields(row, state=AttemptState(row["state"]))
        invoice_id = columns.pop("invoice_id")
        locked[invoice_id] = LockedAttempt(**columns)
    return locked


async def lock_attempt(tx: Tx, invoice_id: UUID, attempt: int) -> LockedAttempt:
    """Hold one invoice and its attempt in the same way."""
    return (await lock_attempts(tx, [invoice_id], [attempt]))[invoice_id]


async def confirm_attempts(
    tx: Tx, invoice_ids: Sequence[UUID], attempts: Sequence[int], *, charge_ids: Sequence[str]
) -> None:
    """Record of locked attempts that they made these charges."""
    await tx.execute(
        """
        UPDATE charge_attempt a SET state = 'confirmed', gateway_invoice_id = u.charge_id, error_code = NULL,
            error_detail = NULL
        FROM unnest($2::uuid[], $3::int4[], $4::text[]) AS u (invoice_id, attempt, charge_id)
        WHERE a.account_id = $1 AND a.invoice_id = ANY($2::uuid[]) AND a.invoice_id = u.invoice_id
            AND a.attempt = u.attempt
        """,
        invoice_ids,
        attempts,
        charge_ids,
    )


async def settle_attempt(
    tx: Tx,
    invoice_id: UUID,
    attempt: int,
    *,
    state: AttemptState,
    error_code: str | None = None,
    error_detail: str | None = None,
) -> None:
    """Record what became of a locked attempt that made no charge."""
    await tx.execute(
        """
        UPDATE charge_attempt a SET state = $4, gateway_invoice_id = NULL, error_code = $5, error_detail = $6
        WHERE a.account_id = $1 AND a.invoice_id = $2 AND a.attempt = $3
        """,
        invoice_id,
        attempt,
        state,
        error_code,
        error_detail,
    )


async def note_empty_lookup(tx: Tx, invoice_id: UUID, attempt: int, *, looked_up_at: datetime) -> None:
    """Record that the gateway did not know the attempt's reference (the account's clock)."""
    await tx.execute(
        """
        UPDATE charge_attempt a SET empty_lookups = a.empty_lookups + 1, looked_up_at = $4
        WHERE a.account_id = $1 AND a.invoice_id = $2 AND a.attempt = $3 AND a.state = 'sending'
        """,
        invoice_id,
        attempt,
        looked_up_at,
    )


async def reschedule_issue(
    tx: Tx,
    invoice_id: UUID,
    *,
    claimed_for: datetime,
    next_attempt_at: datetime | None,
    failures: int,
    failing_since: datetime | None,
    delay_emitted: bool,
) -> None:
    """Put off issuing a `ready` invoice, or end it (null) until a person acts; one woken meanwhile stays due."""
    await tx.execute(
        """
        UPDATE invoice v SET lease_until = NULL, issue_failures = $4, issue_failing_since = $5,
            issue_delay_emitted = $6,
            next_attempt_at = CASE WHEN v.next_attempt_at = $7 THEN $3::timestamptz ELSE v.next_attempt_at END
        WHERE v.account_id = $1 AND v.invoice_id = $2 AND v.status = 'ready'
        """,
        invoice_id,
        next_attempt_at,
        failures,
        failing_since,
        delay_emitted,
        claimed_for,
    )


async def reschedule_polls(
    tx: Tx,
    invoice_ids: Sequence[UUID],
    *,
    claimed_for: Sequence[datetime],
    next_attempts_at: Sequence[datetime | None],
) -> set[UUID]:
    """Say when charges are asked after again, save those woken since they were claimed, which are returned.

    The invoices are held first, in id order as by all who hold several: else a wake and this end in a deadlock.
    """
    await tx.execute(
        """
        SELECT FROM invoice v
        WHERE v.account_id = $1 AND v.invoice_id = ANY($2::uuid[]) ORDER BY v.invoice_id FOR NO KEY UPDATE
        """,
        invoice_ids,
    )
    rows = await tx.fetch(
        """
        UPDATE invoice v SET lease_until = NULL, next_attempt_at =
            CASE WHEN v.next_attempt_at = u.claimed_for THEN u.next_attempt_at ELSE v.next_attempt_at END
        FROM unnest($2::uuid[], $3::timestamptz[], $4::timestamptz[]) AS u (invoice_id, claimed_for, next_attempt_at)
        WHERE v.account_id = $1 AND v.invoice_id = ANY($2::uuid[]) AND v.invoice_id = u.invoice_id
            AND v.gateway_invoice_id IS NOT NULL
        RETURNING v.invoice_id, v.next_attempt_at
        """,
        invoice_ids,
        claimed_for,
        next_attempts_at,
    )
    set_to = dict(zip(invoice_ids, next_attempts_at, strict=True))
    return {row["invoice_id"] for row in rows if row["next_attempt_at"] != set_to[row["invoice_id"]]}
