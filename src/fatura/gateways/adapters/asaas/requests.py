"""The request that creates a charge at Asaas (D-261)."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from fatura.domain.calendar import local_date
from fatura.domain.offer import PaymentMethod
from fatura.gateways.adapters.asaas import charges
from fatura.gateways.port import ChargeRequest, PermanentError
from fatura.gateways.reais import reais

SENT_WITHIN = timedelta(minutes=15)
"""Maximum time from the reservation of a request until Asaas checks its due date."""
BILLING_TYPES: Mapping[PaymentMethod, str] = {
    PaymentMethod.CARD: "CREDIT_CARD",
    PaymentMethod.PIX: "PIX",
    PaymentMethod.BOLETO: "BOLETO",
}


def body(request: ChargeRequest, payer: str) -> Mapping[str, object]:
    """Return the body of the request that creates a charge."""
    installments = request.installments or 1
    amount = reais(request.amount_cents)
    money = (
        {"value": amount} if installments == 1 else {"installmentCount": installments, "totalValue": amount}
    )
    return {
        "customer": payer,
        "billingType": BILLING_TYPES[request.method],
        **money,
        "dueDate": request.due_date.isoformat(),
        "description": "; ".join(line.description for line in request.lines)[: charges.MAX_DESCRIPTION],
        "externalReference": charges.reference(request.invoice_id, request.attempt),
    }


def crossed_midnight(refused: PermanentError, request: ChargeRequest, *, reserved_at: datetime) -> bool:
    """Return whether Asaas refused a due date that was today until midnight passed. A later request has a new date."""
    is_due_date = refused.code == "invalid_dueDate"
    return is_due_date and local_date(reserved_at) <= request.due_date < local_date(reserved_at + SENT_WITHIN)
