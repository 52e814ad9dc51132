"""The merchant's side of the sandbox gateway, like a provider's dashboard (D-46).

The billing engine uses the sandbox through `gateways.port` only, like any other provider.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum
from typing import Protocol, runtime_checkable
from uuid import UUID

from fatura.domain.offer import PaymentMethod
from fatura.gateways.port import Gateway

CHARGES_LISTED = 1000
"""Maximum number of charges in a list that is not limited to one invoice."""
MAX_FAULT_TIMES = 1000
"""Maximum number of calls that one queued fault affects."""


class SandboxStatus(StrEnum):
    """The status of a sandbox charge."""

    OPEN = "open"
    PAID = "paid"
    REFUSED = "refused"
    CANCELED = "canceled"
    REFUNDED = "refunded"


class SandboxMove(StrEnum):
    """A change that a merchant makes to a charge."""

    PAY = "pay"
    REFUSE = "refuse"
    CANCEL = "cancel"
    REFUND = "refund"


class SandboxOperation(StrEnum):
    """A call for which faults can be queued; a look-up by reference is a `list_charges`."""

    CREATE_CHARGE = "create_charge"
    GET_CHARGE = "get_charge"
    CANCEL_CHARGE = "cancel_charge"
    LIST_CHARGES = "list_charges"
    CREATE_PRODUCT = "create_product"


WEBHOOK_SIGNATURE = "x-sandbox-signature"
"""The header that signs a sandbox webhook: `t=<unix seconds>,v1=<hex>`, keyed with the setting `webhookSecret`."""


class SandboxFault(StrEnum):
    """How a call fails; only `timeout_after` carries it out first and then loses the answer."""

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


@runtime_checkable
class SandboxBooks(Gateway, Protocol):
    """The merchant's calls on a sandbox connection's Gateway. Queued faults do not affect them."""

    async def charges(self, invoice_id: UUID | None) -> Sequence[SandboxCharge]:
        """Return an invoice's charges, or the connection's newest CHARGES_LISTED, newest first."""
        ...

    async def move_charge(self, charge_id: str, move: SandboxMove) -> SandboxCharge:
        """Pay, refuse, cancel or refund a charge; repeating a move changes nothing.

        Raises NotFoundError, and PermanentError `charge_status` when the charge's status does not allow it.
        """
        ...

    async def products(self) -> Sequence[SandboxProduct]:
        """Return the products mirrored to the connection's catalog, newest first."""
        ...

    async def add_fault(self, operation: SandboxOperation, fault: SandboxFault, *, times: int) -> UUID:
        """Queue a fault for the next `times` (1..MAX_FAULT_TIMES) calls of an operation, and return its id.

        Faults of one operation take effect in the order in which they were queued.
        """
        ...
