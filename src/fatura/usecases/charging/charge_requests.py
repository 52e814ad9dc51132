"""Build the request that creates a charge, and store it encrypted to repeat it unchanged (D-33, D-49)."""

import msgspec

from fatura.domain.charge import InvoiceCharge
from fatura.gateways.port import ChargeRequest, Line, Payer
from fatura.observability import log
from fatura.store.charging import charges
from fatura.store.charging.claims import ClaimedInvoice
from fatura.store.subscriptions import customers
from fatura.store.vault import KeyRingError
from fatura.usecases.transaction import Work


def build(
    work: Work, invoice: ClaimedInvoice, charge: InvoiceCharge, *, lines: tuple[Line, ...]
) -> ChargeRequest:
    """Return the request for a charge. Raises KeyRingError if the payer's tax document cannot be decrypted."""
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


def seal(work: Work, charge: InvoiceCharge, request: ChargeRequest) -> bytes:
    """Encrypt a request, because it contains the payer's personal data."""
    return work.seal(msgspec.json.encode(request), place=charges.REQUEST_PLACE, row_id=charge.charge_id)


def unseal(work: Work, charge: InvoiceCharge) -> ChargeRequest | None:
    """Return the request as it was sent, or None if it is not stored or cannot be decrypted."""
    if charge.request_sealed is None:
        return None
    try:
        plain = work.open(charge.request_sealed, place=charges.REQUEST_PLACE, row_id=charge.charge_id)
    except KeyRingError as error:
        log.error("charge.request_unreadable", charge_id=str(charge.charge_id), error=str(error))
        return None
    return msgspec.json.decode(plain, type=ChargeRequest)
