"""Give up a charge that the gateway does not know any more, and report it (D-56)."""

from datetime import datetime

from msgspec import UNSET

from fatura.domain.charge import NO_PAY_DATA, ChargeStage, InvoiceCharge
from fatura.domain.charging import MISSING_AFTER
from fatura.store.charging.confirmed_charges import Answered
from fatura.usecases.billing import invoice_moves
from fatura.usecases.payments import merchant_requests, second_charges
from fatura.usecases.transaction import Work
from fatura.views.events import IssueErrorView


def next_poll_at(work: Work, charge: InvoiceCharge, *, polled_at: datetime) -> datetime | None:
    """Return when to poll again after the gateway did not know a charge, or None for no further poll."""
    if not charge.is_unpaid_at_gateway or _is_missing(charge, polled_at=polled_at):
        return None
    return (charge.unknown_since or work.now) + MISSING_AFTER


async def record(work: Work, charge: InvoiceCharge, *, polled_at: datetime) -> Answered:
    """Return what to store about an unpaid charge that the gateway does not know.

    If a poll at least MISSING_AFTER ago did not find the charge either, mark the charge missing, and emit
    `invoice.charge_missing`. Also drop the invoice's stored requests that are over (`merchant_requests.is_over`). Keep
    the other requests, because the gateway may still show the charge as canceled.
    """
    if not _is_missing(charge, polled_at=polled_at):
        since = charge.unknown_since or work.now
        return Answered(charge, charge.stage, NO_PAY_DATA, charge.closed_at, unknown_since=since)
    detail = f"The gateway does not know the charge {charge.gateway_invoice_id} any more; check it there."
    error = IssueErrorView(
        code="charge_missing", detail=detail, gateway_invoice_id=charge.gateway_invoice_id or UNSET
    )
    await invoice_moves.alert(work, charge.invoice_id, "invoice.charge_missing", error=error)
    await second_charges.plan_checks(work, [charge.charge_id])
    await merchant_requests.drop_over(work, [charge.invoice_id])
    return Answered(
        charge,
        ChargeStage.MISSING,
        NO_PAY_DATA,
        work.now,
        unknown_since=charge.unknown_since,
        error_code="charge_missing",
        error_detail=detail,
    )


def _is_missing(charge: InvoiceCharge, *, polled_at: datetime) -> bool:
    """Return whether a poll at least MISSING_AFTER before this one already found the charge unknown at the gateway."""
    return charge.unknown_since is not None and polled_at - charge.unknown_since >= MISSING_AFTER
