"""The requests that create a charge at Stripe: a draft, its lines, and their idempotency keys (D-263)."""

from collections.abc import Mapping, Sequence
from datetime import datetime, time
from hashlib import sha256
from urllib.parse import urlencode

from fatura.domain.calendar import ZONE
from fatura.domain.offer import PaymentMethod
from fatura.gateways import port
from fatura.gateways.adapters.stripe import charges
from fatura.gateways.http import Form

LINE, REQUEST = "fatura_line", "fatura_request"
"""The names of the metadata with the number of a line, and with a hash of the whole request."""
MAX_LINES = 10
"""Maximum number of lines of an invoice. Stripe shows so many lines with an invoice, without another call."""
MAX_TEXT = 500
MIN_CENTS = 50
"""Lowest amount of a charge. Stripe would count an invoice below it as paid, and move it to the customer's balance."""
LIMITS: Mapping[PaymentMethod, tuple[int, int]] = {
    PaymentMethod.CARD: (MIN_CENTS, 99_999_999),
    PaymentMethod.PIX: (MIN_CENTS, 99_999_999),
    PaymentMethod.BOLETO: (500, 4_999_999),
}
"""The lowest and highest amount of each method. Stripe documents those of boletos; the others are not confirmed."""
_HOUR = 3600


def keyed(fields: Mapping[str, str], name: str) -> Form:
    """Return a form whose idempotency key depends on `name` and the fields.

    Stripe refuses a key that is sent again with other fields. So other fields get another key.
    """
    return Form(fields, f"fatura:{name}:{_digest(fields)}")


def lines_of(request: port.ChargeRequest) -> Sequence[port.Line]:
    """Return the lines of the invoice, at most MAX_LINES. Their sum is the amount of the request."""
    lines = list(request.lines)
    if not lines or sum(each.amount_cents for each in lines) != request.amount_cents:
        return [port.Line(_joined(lines), request.amount_cents)]
    rest = lines[MAX_LINES - 1 :]
    if len(rest) > 1:
        lines[MAX_LINES - 1 :] = [port.Line(_joined(rest), sum(each.amount_cents for each in rest))]
    return lines


def due_at(request: port.ChargeRequest) -> datetime:
    """Return the end of the due date in Sao Paulo."""
    return datetime.combine(request.due_date, time(23, 59, 59), ZONE)


def draft_fields(request: port.ChargeRequest, customer: str) -> Mapping[str, str]:
    """Return the fields of a draft. A draft cannot be paid, and Stripe neither finalizes it nor sends it."""
    fields = {
        "customer": customer,
        "currency": charges.CURRENCY.lower(),
        "collection_method": "send_invoice",
        "due_date": str(int(due_at(request).timestamp())),
        "auto_advance": "false",
        "automatic_tax[enabled]": "false",
        "pending_invoice_items_behavior": "exclude",
        "payment_settings[payment_method_types][0]": str(request.method),
        f"metadata[{charges.REFERENCE}]": charges.reference(request.invoice_id, request.attempt),
    }
    lines = {
        f"{number}": f"{each.amount_cents} {each.description}"
        for number, each in enumerate(lines_of(request))
    }
    return {**fields, f"metadata[{REQUEST}]": _digest({**fields, **lines})}


def new_draft(request: port.ChargeRequest, fields: Mapping[str, str], *, now: datetime) -> Form:
    """Return the request for a draft. The key is new in each hour.

    With an old key, Stripe would answer for a day with a draft that was deleted since, or with an error that is over.
    Two drafts of one charge do no harm, because only one of them is finalized.
    """
    hour = int(now.timestamp()) // _HOUR
    return keyed(fields, f"{charges.reference(request.invoice_id, request.attempt)}:{hour}")


def line_fields(request: port.ChargeRequest, number: int, *, customer: str, invoice_id: str) -> Form:
    """Return the request for one line of a draft."""
    line, reference = lines_of(request)[number], charges.reference(request.invoice_id, request.attempt)
    fields = {
        "customer": customer,
        "invoice": invoice_id,
        "amount": str(line.amount_cents),
        "currency": charges.CURRENCY.lower(),
        "description": line.description[:MAX_TEXT],
        "discountable": "false",
        f"metadata[{charges.REFERENCE}]": reference,
        f"metadata[{LINE}]": str(number),
    }
    return keyed(fields, f"{reference}:{number}")


def refund_form(request: port.RefundRequest, source: Mapping[str, str]) -> Form:
    """Return the request for a refund. Its key depends only on the refund's id, so there is never a second refund."""
    fields = {
        **source,
        "amount": str(request.amount_cents),
        f"metadata[{charges.REFUND}]": str(request.refund_id),
    }
    if request.reason:
        fields["metadata[reason]"] = request.reason[:MAX_TEXT]
    return Form(fields, f"fatura:refund:{request.refund_id}")


def check(request: port.ChargeRequest, methods: Sequence[PaymentMethod]) -> None:
    """Refuse what Stripe would accept in another sense than the engine's. Raises PermanentError."""
    if request.currency != charges.CURRENCY:
        raise port.PermanentError("currency_unsupported", "Fatura charges with Stripe in BRL only.")
    if request.method not in methods:
        raise port.PermanentError("method_unsupported", f"This connection does not issue {request.method}.")
    if request.installments not in {None, 1}:
        raise port.PermanentError("installments_unsupported", "Stripe has no installments in Brazil.")
    least, most = LIMITS[request.method]
    if not least <= request.amount_cents <= most:
        detail = f"A charge with {request.method} is for {least} to {most} cents."
        raise port.PermanentError("amount_unsupported", detail)


def _joined(lines: Sequence[port.Line]) -> str:
    return "; ".join(each.description for each in lines)


def _digest(fields: Mapping[str, str]) -> str:
    return sha256(urlencode(sorted(fields.items())).encode()).hexdigest()[:32]
