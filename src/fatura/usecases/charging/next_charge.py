"""Choose the charge to send next, which is new or already stored, and build its request (D-33, D-51, D-67).

The request is stored encrypted, so that it can be repeated unchanged (D-49).
"""

from dataclasses import replace
from uuid import UUID

import msgspec

from fatura.domain.charge import MAX_CHARGES, ChargeStage, InvoiceCharge
from fatura.domain.charging import charge_due_date
from fatura.domain.errors import INVOICE_NOT_REISSUABLE, EngineError
from fatura.gateways.port import ChargeRequest, Line, Payer
from fatura.observability import log
from fatura.store.charging import charges
from fatura.store.charging.claims import ClaimedInvoice
from fatura.store.subscriptions import customers
from fatura.store.vault import KeyRingError
from fatura.usecases.transaction import Work


async def check_count(work: Work, invoice_id: UUID, number: int) -> None:
    """Refuse the charge with this number if the gateway has confirmed MAX_CHARGES charges of the invoice (D-176).

    Raises EngineError: `engine.invoice_not_reissuable`.
    """
    if number > MAX_CHARGES and len(await charges.confirmed(work.tx, [invoice_id])) >= MAX_CHARGES:
        detail = (
            f"The invoice has {MAX_CHARGES} charges, which is the maximum; cancel it, or record its payment."
        )
        raise EngineError(INVOICE_NOT_REISSUABLE, detail)


async def to_send(
    work: Work, invoice: ClaimedInvoice, newest: InvoiceCharge | None, *, amount_cents: int
) -> InvoiceCharge:
    """Return the charge to send: `newest` if its stage is PLANNED or ABSENT, and a new charge otherwise.

    `amount_cents` is the unpaid part of the invoice. A charge's amount never changes. So if `newest` has another
    amount, mark `newest` as FAILED, and return a new charge. A new charge has the payment method, installments and due
    date of `newest`, because a reissue may have changed these terms.
    """
    if amount_cents <= 0:
        raise ValueError(f"a charge of {amount_cents} cents must not be sent")
    if newest is None:
        return _first(work, invoice, amount_cents=amount_cents)
    if newest.stage is not ChargeStage.FAILED and newest.amount_cents != amount_cents:
        await charges.mark(work.tx, newest, ChargeStage.FAILED, closed_at=work.now)
        newest = replace(newest, stage=ChargeStage.FAILED)
    sending = replace(
        newest,
        stage=ChargeStage.SENDING,
        due_date=charge_due_date(newest.due_date, today=work.today),
        sent_at=work.now,
    )
    if newest.stage is ChargeStage.ABSENT:
        return sending
    if newest.stage is ChargeStage.PLANNED:
        return replace(sending, first_sent_at=work.deps.clock())
    if newest.stage is not ChargeStage.FAILED:
        raise ValueError(f"no charge must follow one whose stage is {newest.stage}")
    return replace(
        sending,
        charge_id=work.new_id(),
        number=newest.number + 1,
        amount_cents=amount_cents,
        created_at=work.now,
        first_sent_at=work.deps.clock(),
        known_charge_ids=(),
        error_code=None,
    )


def _first(work: Work, invoice: ClaimedInvoice, *, amount_cents: int) -> InvoiceCharge:
    return InvoiceCharge(
        charge_id=work.new_id(),
        invoice_id=invoice.invoice_id,
        number=1,
        connection_id=invoice.connection_id,
        stage=ChargeStage.SENDING,
        amount_cents=amount_cents,
        currency=invoice.currency,
        payment_method=invoice.payment_method,
        installments=invoice.installments,
        due_date=charge_due_date(invoice.due_date, today=work.today),
        created_at=work.now,
        first_sent_at=work.deps.clock(),
        sent_at=work.now,
    )


def build_request(
    work: Work, invoice: ClaimedInvoice, charge: InvoiceCharge, *, lines: tuple[Line, ...]
) -> ChargeRequest:
    """Return the request for a charge. Raises KeyRingError if the payer's tax document cannot be decrypted."""
    assert invoice.customer_email is not None, "an erased customer is not charged"
    document = None
    if invoice.document_sealed is not None:
        plain = work.open(invoice.document_sealed, place=customers.DOCUMENT_PLACE, row_id=invoice.customer_id)
        document = plain.decode()
    return ChargeRequest(
        invoice_id=invoice.invoice_id,
        attempt=charge.number,
        amount_cents=charge.amount_cents,
        currency=charge.currency,
        method=charge.payment_method,
        installments=charge.installments,
        due_date=charge.due_date,
        lines=lines,
        payer=Payer(invoice.customer_id, invoice.customer_name, invoice.customer_email, document),
    )


def seal_request(work: Work, charge: InvoiceCharge, request: ChargeRequest) -> bytes:
    """Encrypt a request, because it contains the payer's personal data."""
    return work.seal(msgspec.json.encode(request), place=charges.REQUEST_PLACE, row_id=charge.charge_id)


def unseal_request(work: Work, charge: InvoiceCharge) -> ChargeRequest | None:
    """Return the request as it was sent, or None if it is not stored or cannot be decrypted."""
    if charge.request_sealed is None:
        return None
    try:
        plain = work.open(charge.request_sealed, place=charges.REQUEST_PLACE, row_id=charge.charge_id)
    except KeyRingError as error:
        log.error("charge.request_unreadable", charge_id=str(charge.charge_id), error=error)
        return None
    return msgspec.json.decode(plain, type=ChargeRequest)
