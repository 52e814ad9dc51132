"""Whom a plan's current version cannot reach, and why (D-23)."""

from enum import StrEnum

from fatura.domain.connection import Connection, check_support
from fatura.domain.errors import EngineError
from fatura.domain.offer import PaymentMethod


class SkipReason(StrEnum):
    """Why a subscriber stays on its version: stable codes that a client may branch on."""

    GATEWAY_CONNECTION_INACTIVE = "gateway_connection_inactive"
    PAYMENT_METHOD_UNSUPPORTED = "payment_method_unsupported"
    INSTALLMENTS_UNSUPPORTED = "installments_unsupported"


def skip_reason(connection: Connection, method: PaymentMethod, *, max_installments: int) -> SkipReason | None:
    """Return why terms cannot be billed by this method through a pinned connection, None when they can.

    What is really billed counts, as in an enrollment: another method than the card has no installments (D-20).
    A connection that no longer issues charges is as good as inactive.
    """
    if not connection.may_bill:
        return SkipReason.GATEWAY_CONNECTION_INACTIVE
    installments = max_installments if method is PaymentMethod.CARD else 1
    try:
        check_support(method, installments, connections=[connection])
    except EngineError as refusal:
        return SkipReason(refusal.problem.type.removeprefix("engine."))
    return None
