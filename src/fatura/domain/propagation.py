"""Reasons not to move a subscriber to its plan's current version (D-23)."""

from enum import StrEnum

from fatura.domain.connection import Connection, check_support
from fatura.domain.errors import EngineError
from fatura.domain.offer import PaymentMethod


class SkipReason(StrEnum):
    """Codes in the API's answer; they must not change."""

    GATEWAY_CONNECTION_INACTIVE = "gateway_connection_inactive"
    PAYMENT_METHOD_UNSUPPORTED = "payment_method_unsupported"
    INSTALLMENTS_UNSUPPORTED = "installments_unsupported"


def skip_reason(connection: Connection, method: PaymentMethod, *, max_installments: int) -> SkipReason | None:
    """Return why the subscription's connection cannot charge by this method, or None if it can.

    Installments matter only for cards (D-20). A connection that cannot issue charges is treated as inactive.
    """
    if not connection.may_bill:
        return SkipReason.GATEWAY_CONNECTION_INACTIVE
    installments = max_installments if method is PaymentMethod.CARD else 1
    try:
        check_support(method, installments, connections=[connection])
    except EngineError as refusal:
        return SkipReason(refusal.problem.type.removeprefix("engine."))
    return None
