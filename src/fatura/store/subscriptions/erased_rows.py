"""SQL that removes a customer's data from the rows about the customer's subscriptions and invoices (D-62).

Each text becomes `[erased]`. Each externalRef becomes `erased-`, followed by the id of its subscription or customer.
Null stays null. Most of these tables refuse changes, except in a transaction that calls `Tx.allow_erasure`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from fatura.store.db import Tx


@dataclass(frozen=True, slots=True)
class StoredData:
    """The JSON of an event's `data`."""

    sequence: int
    data: str


@dataclass(frozen=True, slots=True)
class Billed:
    invoice_id: UUID
    subscription_id: UUID
    cycle: int


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """A stored answer to a request. `answer` is None if it is encrypted or does not contain the customer's id."""

    key: str
    answer: bytes | None


async def subscriptions(tx: Tx, customer_id: UUID, *, after: UUID | None, limit: int) -> Sequence[UUID]:
    """Erase the externalRef of the customer's next subscriptions. Return the ids of these subscriptions, in order."""
    rows = await tx.fetch(
        """
        SELECT s.subscription_id FROM subscription s
        WHERE s.account_id = $1 AND s.customer_id = $2 AND ($3::uuid IS NULL OR s.subscription_id > $3)
        ORDER BY s.subscription_id LIMIT $4 FOR NO KEY UPDATE
        """,
        customer_id,
        after,
        limit,
    )
    found: list[UUID] = [row["subscription_id"] for row in rows]
    await tx.execute(
        """
        UPDATE subscription s SET external_ref = 'erased-' || s.subscription_id::text
        WHERE s.account_id = $1 AND s.subscription_id = ANY($2::uuid[]) AND s.external_ref IS NOT NULL
        """,
        found,
    )
    return found


async def billed(
    tx: Tx, customer_id: UUID, *, after: UUID | None, after_cycle: int | None, limit: int
) -> Sequence[Billed]:
    """Return the customer's next invoices, ordered by subscription and cycle.

    Start after the cycle `after_cycle` of the subscription `after`, or at the first invoice if `after` is None.
    """
    return await tx.fetch_as(
        Billed,
        """
        SELECT v.invoice_id, v.subscription_id, v.cycle
        FROM subscription s JOIN invoice v ON v.subscription_id = s.subscription_id
        WHERE s.account_id = $1 AND v.account_id = $1 AND s.customer_id = $2
            AND ($3::uuid IS NULL OR (v.subscription_id, v.cycle) > ($3, $4::int4))
        ORDER BY v.subscription_id, v.cycle LIMIT $5
        """,
        customer_id,
        after,
        after_cycle,
        limit,
    )


async def invoices(tx: Tx, invoice_ids: Sequence[UUID]) -> None:
    """Erase the texts of locked invoices and of the rows that belong to them, except events."""
    await tx.execute(
        """
        UPDATE invoice v SET issue_error_detail = '[erased]'
        WHERE v.account_id = $1 AND v.invoice_id = ANY($2::uuid[]) AND v.issue_error_detail IS NOT NULL
        """,
        invoice_ids,
    )
    await tx.execute(
        """
        UPDATE invoice_item i SET description = '[erased]'
        WHERE i.account_id = $1 AND i.invoice_id = ANY($2::uuid[]) AND i.description IS NOT NULL
        """,
        invoice_ids,
    )
    await tx.execute(
        """
        UPDATE pricing_attempt t
        SET request_body = jsonb_set(
                jsonb_set(
                    t.request_body::jsonb, '{customer,externalRef}',
                    ('"erased-' || s.customer_id::text || '"')::jsonb  -- Citus takes no stable function here
                ),
                '{subscription,externalRef}', ('"erased-' || s.subscription_id::text || '"')::jsonb
            )::text,
            response_body = CASE WHEN t.response_body IS NOT NULL THEN '[erased]' END
        FROM invoice v JOIN subscription s ON s.subscription_id = v.subscription_id
        WHERE t.account_id = $1 AND v.account_id = $1 AND s.account_id = $1 AND t.invoice_id = ANY($2::uuid[])
            AND v.invoice_id = t.invoice_id
        """,
        invoice_ids,
    )
    await charges(tx, invoice_ids)
    await tx.execute(
        """
        UPDATE payment_entry e SET note = CASE WHEN e.note IS NOT NULL THEN '[erased]' END,
            reference = CASE WHEN e.source = 'manual' AND e.reference IS NOT NULL THEN '[erased]' ELSE e.reference END
        WHERE e.account_id = $1 AND e.invoice_id = ANY($2::uuid[])
        """,
        invoice_ids,
    )
    await tx.execute(
        """
        UPDATE merchant_request m SET note = CASE WHEN m.note IS NOT NULL THEN '[erased]' END,
            reference = CASE WHEN m.reference IS NOT NULL THEN '[erased]' END
        WHERE m.account_id = $1 AND m.invoice_id = ANY($2::uuid[])
        """,
        invoice_ids,
    )
    await refunds(tx, invoice_ids)


async def charges(tx: Tx, invoice_ids: Sequence[UUID]) -> None:
    """Set `erased` of the invoices' charges, so that a trigger erases their texts. Delete the calls about them."""
    await tx.execute(
        """
        UPDATE charge c SET erased = true
        WHERE c.account_id = $1 AND c.invoice_id = ANY($2::uuid[]) AND NOT c.erased
        """,
        invoice_ids,
    )
    await tx.execute(
        """
        DELETE FROM provider_call k USING charge c
        WHERE k.account_id = $1 AND c.account_id = $1 AND c.charge_id = k.charge_id AND c.invoice_id = ANY($2::uuid[])
        """,
        invoice_ids,
    )


async def refunds(tx: Tx, invoice_ids: Sequence[UUID]) -> None:
    """Set `erased` of the invoices' refunds. A trigger then erases their texts."""
    await tx.execute(
        """
        UPDATE refund_request r SET erased = true
        WHERE r.account_id = $1 AND r.invoice_id = ANY($2::uuid[]) AND NOT r.erased
        """,
        invoice_ids,
    )


async def events_of_invoices(
    tx: Tx, invoice_ids: Sequence[UUID], *, after: int, limit: int
) -> Sequence[StoredData]:
    """Return the first `limit` events of these invoices with numbers above `after`, in order."""
    return await tx.fetch_as(
        StoredData,
        """
        SELECT e.sequence, e.data FROM event e
        WHERE e.account_id = $1 AND e.invoice_id = ANY($2::uuid[]) AND e.sequence > $3 ORDER BY e.sequence LIMIT $4
        """,
        invoice_ids,
        after,
        limit,
    )


async def events_of_subscriptions(
    tx: Tx, subscription_ids: Sequence[UUID], *, after: int, limit: int
) -> Sequence[StoredData]:
    """Return the next events of subscriptions, lowest numbers first. Leave out events that belong to an invoice."""
    return await tx.fetch_as(
        StoredData,
        """
        SELECT e.sequence, e.data FROM event e
        WHERE e.account_id = $1 AND e.subscription_id = ANY($2::uuid[]) AND e.invoice_id IS NULL AND e.sequence > $3
        ORDER BY e.sequence LIMIT $4
        """,
        subscription_ids,
        after,
        limit,
    )


async def events(tx: Tx, changed: Sequence[StoredData]) -> None:
    """Replace the data of events."""
    await tx.execute(
        """
        UPDATE event e SET data = u.data FROM unnest($2::int8[], $3::text[]) AS u (sequence, data)
        WHERE e.account_id = $1 AND e.sequence = ANY($2::int8[]) AND e.sequence = u.sequence
        """,
        [each.sequence for each in changed],
        [each.data for each in changed],
    )


async def delivery_attempts(tx: Tx, sequences: Sequence[int]) -> None:
    """Erase the endpoint's answers to these events. First wait for workers that are recording such answers."""
    await tx.execute(
        """
        SELECT FROM delivery d WHERE d.account_id = $1 AND d.sequence = ANY($2::int8[])
        ORDER BY d.sequence FOR NO KEY UPDATE
        """,
        sequences,
    )
    await tx.execute(
        """
        UPDATE delivery_attempt a SET response_body = '[erased]'
        WHERE a.account_id = $1 AND a.sequence = ANY($2::int8[]) AND a.response_body IS NOT NULL
        """,
        sequences,
    )


async def answers(tx: Tx, customer_id: UUID, *, after: str, limit: int) -> Sequence[StoredAnswer]:
    """Return the next Idempotency-Keys, in order, with their answers (see StoredAnswer)."""
    return await tx.fetch_as(
        StoredAnswer,
        """
        SELECT i.key, CASE WHEN NOT i.is_sealed AND position($4::bytea IN i.answer) > 0 THEN i.answer END AS answer
        FROM idempotency_key i WHERE i.account_id = $1 AND i.key > $2 ORDER BY i.key LIMIT $3
        """,
        after,
        limit,
        str(customer_id).encode(),
    )


async def set_answers(tx: Tx, changed: Sequence[tuple[StoredAnswer, bytes]]) -> None:
    """Replace answers that `answers` returned, unless a request has used the expired key again since then."""
    await tx.execute(
        """
        UPDATE idempotency_key i SET answer = u.after
        FROM unnest($2::text[], $3::bytea[], $4::bytea[]) AS u (key, before, after)
        WHERE i.account_id = $1 AND i.key = ANY($2::text[]) AND i.key = u.key AND i.answer = u.before
        """,
        [stored.key for stored, _ in changed],
        [stored.answer for stored, _ in changed],
        [after for _, after in changed],
    )
