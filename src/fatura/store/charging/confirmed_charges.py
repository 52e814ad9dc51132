"""SQL that stores a gateway's answers about charges that the gateway has confirmed (D-35, D-49, D-56)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from fatura.domain.charge import ChargeStage, InvoiceCharge, PayData
from fatura.store.db import Tx


@dataclass(frozen=True, slots=True)
class Answered:
    """What to store about a charge after a poll. If the answer lacks pay data, the stored pay data is kept.

    `unknown_since` is set if the gateway does not know the charge. `closed_at` is set if the charge is closed.
    """

    charge: InvoiceCharge
    stage: ChargeStage
    pay: PayData
    closed_at: datetime | None
    unknown_since: datetime | None = None
    error_code: str | None = None
    error_detail: str | None = None


async def confirm(
    tx: Tx,
    charges: Sequence[InvoiceCharge],
    *,
    gateway_ids: Sequence[str],
    amounts_cents: Sequence[int],
    pay: Sequence[PayData],
    sent_at: Sequence[datetime | None],
    now: datetime,
) -> None:
    """Set the stage of locked charges to `open`, and store the gateway's id and the pay data of each charge.

    `sent_at` has, for each charge, the time at which its answered request was sent, or None. If no later request was
    sent for the charge, also clear its `call_ends_at`, as `charges.end_calls` does.

    If the stored `sent_at` is in the future, a host with a wrong clock wrote it (D-5). Replace it by `now`, because the
    pause before the subscription's next invoice counts from `sent_at` (D-57). If charges were found for a stored charge
    (`known_charge_ids`), also store the amount of the gateway's charge.
    """
    await tx.execute(
        """
        UPDATE charge c SET stage = 'open', gateway_invoice_id = u.gateway_id, confirmed_at = $2, asked_at = $2,
            closed_at = NULL, error_code = NULL, error_detail = NULL, pay_url = u.pay_url, pix_code = u.pix_code,
            boleto_line = u.boleto_line, pay_expires_at = u.expires_at, sent_at = least(c.sent_at, $2),
            amount_cents = CASE WHEN c.known_charge_ids = '{}' THEN c.amount_cents ELSE u.amount_cents END,
            call_ends_at = CASE WHEN u.sent_at IS DISTINCT FROM c.sent_at THEN c.call_ends_at END
        FROM unnest($3::uuid[], $4::text[], $5::text[], $6::text[], $7::text[], $8::timestamptz[], $9::int8[],
                $10::timestamptz[])
            AS u (charge_id, gateway_id, pay_url, pix_code, boleto_line, expires_at, amount_cents, sent_at)
        WHERE c.account_id = $1 AND c.charge_id = ANY($3::uuid[]) AND c.charge_id = u.charge_id
        """,
        now,
        [charge.charge_id for charge in charges],
        gateway_ids,
        [each.url for each in pay],
        [each.pix_code for each in pay],
        [each.boleto_line for each in pay],
        [each.expires_at for each in pay],
        amounts_cents,
        sent_at,
    )


async def taken(tx: Tx, charges: Sequence[InvoiceCharge], *, gateway_ids: Sequence[str]) -> set[UUID]:
    """Return the ids of the charges whose gateway id is already stored for another charge of the same connection.

    `gateway_ids` has the gateway id of each charge.
    """
    rows = await tx.fetch(
        """
        SELECT u.charge_id
        FROM unnest($2::uuid[], $3::uuid[], $4::text[]) AS u (charge_id, connection_id, gateway_id)
        JOIN charge c ON c.account_id = $1 AND c.connection_id = u.connection_id
            AND c.gateway_invoice_id = u.gateway_id AND c.charge_id <> u.charge_id
        """,
        [charge.charge_id for charge in charges],
        [charge.connection_id for charge in charges],
        gateway_ids,
    )
    return {row["charge_id"] for row in rows}


async def record(tx: Tx, answers: Sequence[Answered], *, now: datetime) -> None:
    """Store the results of polls of locked charges."""
    await tx.execute(
        """
        UPDATE charge c SET stage = u.stage, asked_at = $12, closed_at = u.closed_at, unknown_since = u.unknown_since,
            error_code = u.error_code, error_detail = u.error_detail, pay_url = coalesce(u.pay_url, c.pay_url),
            pix_code = coalesce(u.pix_code, c.pix_code), boleto_line = coalesce(u.boleto_line, c.boleto_line),
            pay_expires_at = coalesce(u.expires_at, c.pay_expires_at)
        FROM unnest($2::uuid[], $3::text[], $4::timestamptz[], $5::timestamptz[], $6::text[], $7::text[], $8::text[],
            $9::text[], $10::text[], $11::timestamptz[])
            AS u (charge_id, stage, closed_at, unknown_since, error_code, error_detail, pay_url, pix_code, boleto_line,
                expires_at)
        WHERE c.account_id = $1 AND c.charge_id = ANY($2::uuid[]) AND c.charge_id = u.charge_id
        """,
        [each.charge.charge_id for each in answers],
        [each.stage for each in answers],
        [each.closed_at for each in answers],
        [each.unknown_since for each in answers],
        [each.error_code for each in answers],
        [each.error_detail for each in answers],
        [each.pay.url for each in answers],
        [each.pay.pix_code for each in answers],
        [each.pay.boleto_line for each in answers],
        [each.pay.expires_at for each in answers],
        now,
    )


async def close_released(
    tx: Tx, invoice_id: UUID, gateway_invoice_id: str, *, stage: ChargeStage, now: datetime
) -> None:
    """Set the stage of a charge that the gateway has canceled or closed.

    A charge that is already canceled, paid or missing does not change.
    """
    await tx.execute(
        """
        UPDATE charge c SET stage = $4, closed_at = $5
        WHERE c.account_id = $1 AND c.invoice_id = $2 AND c.gateway_invoice_id = $3
            AND c.stage IN ('open', 'refused', 'expired')
        """,
        invoice_id,
        gateway_invoice_id,
        stage,
        now,
    )
