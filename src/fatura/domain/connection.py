"""Gateway connections: which terms each can charge, and which one bills a subscription (spec 4.3, 4.4, D-20, D-21)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from fatura.domain.errors import (
    GATEWAY_CHOICE_REQUIRED,
    GATEWAY_CONNECTION_NOT_FOUND,
    INSTALLMENTS_UNSUPPORTED,
    PAYMENT_METHOD_UNSUPPORTED,
    EngineError,
)
from fatura.domain.offer import PaymentMethod


@dataclass(frozen=True, slots=True)
class Connection:
    """A merchant's connection to a payment provider, without its credentials (D-43)."""

    connection_id: UUID
    provider: str
    label: str | None
    active: bool
    issues_charges: bool
    methods: tuple[PaymentMethod, ...]
    max_installments: int
    product_catalog: bool
    created_at: datetime

    @property
    def may_bill(self) -> bool:
        """Return whether new subscriptions may use this connection."""
        return self.active and self.issues_charges


def installments_of(method: PaymentMethod, max_installments: int) -> int | None:
    """Return an invoice's installments: for a card, the terms' maximum if it is above 1, else None (D-25)."""
    return max_installments if method is PaymentMethod.CARD and max_installments > 1 else None


def check_support(method: PaymentMethod, installments: int, *, connections: Sequence[Connection]) -> None:
    """Refuse terms that no billing connection supports (spec 4.3, D-20, D-21).

    Raises EngineError: `engine.payment_method_unsupported` or `engine.installments_unsupported`.
    """
    billing = [connection for connection in connections if connection.may_bill]
    issuing = [connection for connection in billing if method in connection.methods]
    if not issuing:
        raise EngineError(
            PAYMENT_METHOD_UNSUPPORTED,
            f"No active gateway connection issues {method}; choose another method or connect a gateway.",
            meta={
                "paymentMethod": str(method),
                "options": [_what_it_issues(connection) for connection in billing],
            },
        )
    best = max(issuing, key=lambda connection: connection.max_installments)
    gateway_max = best.max_installments if method is PaymentMethod.CARD else 1
    if installments > gateway_max:
        raise EngineError(
            INSTALLMENTS_UNSUPPORTED,
            f"{method} is issued in at most {gateway_max} installment(s); lower maxInstallments.",
            meta={"maxInstallments": installments, "gatewayMax": gateway_max, "provider": best.provider},
        )


def choose(connections: Sequence[Connection], requested: UUID | None) -> Connection:
    """Return the connection that bills a new subscription (spec 4.4 gateway rules 1 to 4, D-21).

    Raises EngineError: `engine.gateway_choice_required` or `engine.gateway_connection_not_found`.
    """
    options = [connection for connection in connections if connection.may_bill]
    if requested is not None:
        options = [connection for connection in options if connection.connection_id == requested]
    if not options:
        raise EngineError(
            GATEWAY_CONNECTION_NOT_FOUND,
            "No active gateway connection that issues charges was found; see GET /v1/integration.",
        )
    if len(options) > 1:
        raise EngineError(
            GATEWAY_CHOICE_REQUIRED,
            "Several gateway connections could bill this; name one in gatewayConnectionId.",
            meta={"options": [_option(connection) for connection in options]},
        )
    return options[0]


def _option(connection: Connection) -> dict[str, Any]:
    return {"connectionId": str(connection.connection_id), "provider": connection.provider}


def _what_it_issues(connection: Connection) -> dict[str, Any]:
    return _option(connection) | {
        "methods": [str(method) for method in connection.methods],
        "maxInstallments": connection.max_installments,
    }
