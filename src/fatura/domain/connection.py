"""Gateway connections (spec 4.3, 4.4, D-20, D-21, D-49).

The rules say which payment methods, installments and amounts can be billed, and which connection bills a new
subscription.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from fatura.domain.errors import (
    AMOUNT_UNSUPPORTED,
    GATEWAY_CHOICE_REQUIRED,
    GATEWAY_CONNECTION_NOT_FOUND,
    INSTALLMENTS_UNSUPPORTED,
    PAYMENT_METHOD_UNSUPPORTED,
    EngineError,
)
from fatura.domain.offer import PaymentMethod


@dataclass(frozen=True, slots=True)
class Connection:
    """A merchant's connection to a payment provider, without its credentials (D-43).

    `min_amount_cents` is the lowest amount of a charge, and `min_installment_cents` is the lowest amount of one
    installment of a card payment. None means no minimum (D-49). `credentials_expire_at` is None if the credentials have
    no end (D-268).
    """

    connection_id: UUID
    provider: str
    label: str | None
    active: bool
    issues_charges: bool
    methods: tuple[PaymentMethod, ...]
    max_installments: int
    product_catalog: bool
    refunds: bool
    created_at: datetime
    min_amount_cents: int | None = None
    min_installment_cents: int | None = None
    credentials_expire_at: datetime | None = None

    @property
    def may_bill(self) -> bool:
        return self.active and self.issues_charges

    @property
    def has_minimums(self) -> bool:
        return self.min_amount_cents is not None or self.min_installment_cents is not None


MAX_COUNTED = 1000
"""Highest number of charges that `Reconciliation` counts."""


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """How far the engine has compared its charges with those of a gateway (D-269).

    `compared_to` is the end of the newest complete nightly comparison, or the creation of the connection.
    `polls_allowed_at` is None if the connection's budget allows a poll now.
    """

    compared_to: datetime
    next_comparison_at: datetime
    poll_due_since: datetime | None
    polls_allowed_at: datetime | None
    unknown_charges: int
    unmatched_charges: int


def installments_of(method: PaymentMethod, max_installments: int) -> int | None:
    """Return the installments of an invoice; None for a single payment and for methods other than card (D-25)."""
    return max_installments if method is PaymentMethod.CARD and max_installments > 1 else None


def check_support(
    method: PaymentMethod,
    installments: int,
    *,
    connections: Sequence[Connection] | Connection,
    field: str = "maxInstallments",
) -> None:
    """Refuse a method or a number of installments that no connection with `may_bill` supports (spec 4.3, D-20, D-21).

    If `connections` is a single connection, the error about the method contains the connection's id.
    `field` is the name of the request's field that has the number of installments.
    Raises EngineError: `engine.payment_method_unsupported` or `engine.installments_unsupported`.
    """
    considered = (connections,) if isinstance(connections, Connection) else connections
    billing = [connection for connection in considered if connection.may_bill]
    issuing = [connection for connection in billing if method in connection.methods]
    if not issuing:
        detail = f"No active gateway connection issues {method}; choose another method or connect a gateway."
        if isinstance(connections, Connection):
            detail = (
                f"The gateway connection {connections.connection_id} does not issue {method}; choose another."
            )
        raise EngineError(
            PAYMENT_METHOD_UNSUPPORTED,
            detail,
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
            f"{method} is issued in at most {gateway_max} installment(s); lower {field}.",
            meta={"maxInstallments": installments, "gatewayMax": gateway_max, "provider": best.provider},
        )


def check_minimums(connection: Connection, amount_cents: int, *, installments: int | None) -> None:
    """Refuse a charge below the provider's minimum for a charge or for an installment (D-49).

    `installments` is None for a single payment. An amount of 0 is accepted, because it is never charged (D-9).
    Raises EngineError: `engine.amount_unsupported` or `engine.installments_unsupported`.
    """
    if amount_cents == 0:
        return
    least = connection.min_amount_cents
    if least is not None and amount_cents < least:
        raise EngineError(
            AMOUNT_UNSUPPORTED,
            f"The gateway charges at least {least} cents, and the charge would be {amount_cents} cents.",
            meta={"amountCents": amount_cents, "minAmountCents": least, "provider": connection.provider},
        )
    least = connection.min_installment_cents
    if least is not None and installments is not None and amount_cents < least * installments:
        gateway_max = max(amount_cents // least, 1)
        raise EngineError(
            INSTALLMENTS_UNSUPPORTED,
            f"Each installment is at least {least} cents at the gateway; {amount_cents} cents can be paid in at most "
            f"{gateway_max} installment(s), not in {installments}.",
            meta={
                "maxInstallments": installments,
                "gatewayMax": gateway_max,
                "amountCents": amount_cents,
                "minInstallmentCents": least,
                "provider": connection.provider,
            },
        )


def choose(connections: Sequence[Connection], requested: UUID | None) -> Connection:
    """Return the connection that bills a new subscription (spec 4.4 gateway rules 1 to 4, D-21).

    If `requested` is None, exactly one connection must have `may_bill`.
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
    return {
        "connectionId": str(connection.connection_id),
        "provider": connection.provider,
        "label": connection.label,
    }


def _what_it_issues(connection: Connection) -> dict[str, Any]:
    return _option(connection) | {
        "methods": [str(method) for method in connection.methods],
        "maxInstallments": connection.max_installments,
    }
