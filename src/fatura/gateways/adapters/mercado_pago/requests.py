"""The bodies of requests that create a preference of Mercado Pago, end it, or note refunds in its metadata (D-265)."""

import re
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta

from fatura.domain.calendar import ZONE
from fatura.domain.offer import PaymentMethod
from fatura.gateways import port
from fatura.gateways.adapters.mercado_pago import charges
from fatura.gateways.adapters.mercado_pago.objects import Preference, fields_of, timestamp
from fatura.gateways.adapters.mercado_pago.settings import MercadoPagoSettings
from fatura.gateways.reais import cents, reais

MAX_CENTS = 10**11
_TYPES = ("credit_card", "debit_card", "prepaid_card", "bank_transfer", "ticket", "digital_currency")
"""Types of payment that a preference may exclude. The balance of a Mercado Pago account cannot be excluded."""
_ALLOWED: Mapping[PaymentMethod, frozenset[str]] = {
    PaymentMethod.CARD: frozenset({"credit_card", "debit_card", "prepaid_card"}),
    PaymentMethod.PIX: frozenset({"bank_transfer"}),
    PaymentMethod.BOLETO: frozenset({"ticket"}),
}
_MAX_TITLE = 256
_MAX_NAME = 256
_SEPARATORS = re.compile(r"[.\-/ ]")
_DOCUMENTS = {"CPF": re.compile("[0-9]{11}"), "CNPJ": re.compile("[0-9A-Z]{14}")}


def check(request: port.ChargeRequest, settings: MercadoPagoSettings, *, today: date) -> None:
    """Refuse what Mercado Pago would accept in another sense than the engine's. Raises PermanentError."""
    installments = request.installments or 1
    if request.currency != charges.CURRENCY:
        raise port.PermanentError("currency_unsupported", "Mercado Pago charges in BRL here.")
    if request.method not in settings.methods:
        raise port.PermanentError("method_unsupported", f"This connection does not issue {request.method}.")
    most = settings.max_installments if request.method is PaymentMethod.CARD else 1
    if not 1 <= installments <= most:
        detail = f"{request.method} takes at most {most} installment(s)."
        raise port.PermanentError("installments_unsupported", detail)
    if not 1 <= request.amount_cents <= MAX_CENTS:
        raise port.PermanentError("amount_unsupported", f"A charge is for 1 to {MAX_CENTS} cents.")
    if request.due_date + timedelta(days=settings.days_after_due_date) < today:
        raise port.PermanentError("due_date_past", "The last day of payment has passed.")


def new_preference(
    request: port.ChargeRequest, settings: MercadoPagoSettings, *, nonce: str
) -> Mapping[str, object]:
    """Return the body that creates a preference. It has one item, so that the total cannot differ."""
    last_day = request.due_date + timedelta(days=settings.days_after_due_date)
    until = timestamp(datetime.combine(last_day, time(23, 59, 59), ZONE))
    item = {
        "title": "; ".join(line.description for line in request.lines)[:_MAX_TITLE],
        "quantity": 1,
        "unit_price": reais(request.amount_cents),
        "currency_id": charges.CURRENCY,
    }
    excluded = [{"id": each} for each in _TYPES if each not in _ALLOWED[request.method]]
    return {
        "items": [item],
        "payer": _payer(request.payer),
        "external_reference": charges.reference(request.invoice_id, request.attempt),
        "payment_methods": {"excluded_payment_types": excluded, "installments": request.installments or 1},
        "expires": True,
        "expiration_date_to": until,
        "metadata": {charges.NONCE: nonce, charges.UNTIL: until},
    }


def _payer(payer: port.Payer) -> Mapping[str, object]:
    """Return the payer. Without a valid form of the document, the payer types it on Mercado Pago's page."""
    known: dict[str, object] = {"name": payer.name[:_MAX_NAME], "email": payer.email}
    document = _SEPARATORS.sub("", payer.document or "").upper()
    for kind, pattern in _DOCUMENTS.items():
        if pattern.fullmatch(document):
            known["identification"] = {"type": kind, "number": document}
    return known


def ended(preference: Preference, *, now: datetime) -> Mapping[str, object]:
    """Return the body that ends a preference now."""
    return {**_same(preference), "expires": True, "expiration_date_to": timestamp(now)}


def with_refund(
    preference: Preference, request: port.RefundRequest, *, refund_id: str
) -> Mapping[str, object]:
    """Return the body that notes in the metadata which refund of Mercado Pago the engine asked for."""
    known = charges.own_refund_ids(preference) | {request.refund_id: refund_id}
    noted = " ".join(f"{own}={each}" for own, each in known.items())
    metadata = {**fields_of(preference.metadata), charges.REFUNDS: noted}
    return {**_same(preference), "metadata": metadata}


def _same(preference: Preference) -> Mapping[str, object]:
    """Return all fields of ours, because Mercado Pago does not say whether a change keeps the fields it leaves out."""
    items = [
        {
            "title": each.title,
            "quantity": each.quantity,
            "unit_price": reais(cents(each.value)),
            "currency_id": each.currency_id or charges.CURRENCY,
        }
        for each in preference.items
    ]
    fields = {
        "external_reference": preference.external_reference,
        "payment_methods": preference.payment_methods,
        "expires": preference.expires,
        "expiration_date_to": preference.expiration_date_to,
        "metadata": preference.metadata,
    }
    return {"items": items, **{name: value for name, value in fields.items() if value is not None}}
