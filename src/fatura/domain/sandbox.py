"""The sandbox gateway's records: charges, products and the faults that a merchant can queue (D-46)."""

from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum
from uuid import UUID

from fatura.domain.offer import PaymentMethod

MAX_FAULT_TIMES = 1000
"""Maximum number of calls that one queued fault can make fail."""


class SandboxStatus(StrEnum):
    """The status of a sandbox charge."""

    OPEN = "open"
    PAID = "paid"
    REFUSED = "refused"
    CANCELED = "canceled"
    REFUNDED = "refunded"


class SandboxMove(StrEnum):
    """A status change of a charge, requested by the merchant."""

    PAY = "pay"
    REFUSE = "refuse"
    CANCEL = "cancel"
    REFUND = "refund"


class SandboxOperation(StrEnum):
    """A gateway call for which faults can be queued; `list_charges` includes look-ups by reference."""

    CREATE_CHARGE = "create_charge"
    GET_CHARGE = "get_charge"
    CANCEL_CHARGE = "cancel_charge"
    LIST_CHARGES = "list_charges"
    CREATE_PRODUCT = "create_product"


class SandboxFault(StrEnum):
    """How a call fails. With `timeout_after`, the call takes effect but its answer is lost. Other faults prevent it."""

    TIMEOUT_BEFORE = "timeout_before"
    TIMEOUT_AFTER = "timeout_after"
    SERVER_ERROR = "server_error"
    RATE_LIMITED = "rate_limited"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class SandboxCharge:
    """A sandbox charge; `charge_id` is the invoice's `gatewayInvoiceId`."""

    charge_id: str
    connection_id: UUID
    invoice_id: UUID
    attempt: int
    amount_cents: int
    method: PaymentMethod
    installments: int | None
    due_date: date
    status: SandboxStatus
    paid_at: datetime | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class SandboxProduct:
    """A product in the sandbox's catalog."""

    connection_id: UUID
    product_id: UUID
    name: str
    description: str | None
    created_at: datetime

    @property
    def gateway_product_id(self) -> str:
        return f"prod_{self.product_id}"
