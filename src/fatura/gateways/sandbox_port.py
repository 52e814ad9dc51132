"""The merchant's side of the sandbox gateway, as a provider's dashboard would offer it (D-46).

The billing engine itself knows the sandbox through `gateways.port` only, like any other provider.
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
"""How many charges a list shows at most, newest first, when no invoice is named."""
MAX_FAULT_TIMES = 1000
"""How many calls a queued fault may meet at most."""


class SandboxStatus(StrEnum):
    """What has become of a charge in the sandbox."""

    OPEN = "open"
    PAID = "paid"
    REFUSED = "refused"
    CANCELED = "canceled"
    REFUNDED = "refunded"


class SandboxMove(StrEnum):
    """What a merchant may make happen to a charge."""

    PAY = "pay"
    REFUSE = "refuse"
    CANCEL = "cancel"
    REFUND = "refund"


class SandboxOperation(StrEnum):
    """The calls that a fault can be queued for; a look-up by reference is a `list_charges`."""

    CREATE_CHARGE = "create_charge"
    GET_CHARGE = "get_charge"
    CANCEL_CHARGE = "cancel_charge"
    LIST_CHARGES = "list_charges"
    CREATE_PRODUCT = "create_product"


WEBHOOK_SIGNATURE = "x-sandbox-signature"
"""The header that signs a sandbox webhook: `t=<unix seconds>,v1=<hex>`, keyed with the setting `webhookSecret`."""


class SandboxFault(StrEnum):
    """How a call goes wrong; `timeout_after` alone does its work first and loses the answer."""

    TIMEOUT_BEFORE = "timeout_before"
    TIMEOUT_AFTER = "timeout_after"
    SERVER_ERROR = "server_error"
    RATE_LIMITED = "rate_limited"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class SandboxCharge:
    """A charge in the sandbox's books; `charge_id` is the invoice's `gatewayInvoiceId`."""

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
        """Return its id in the catalog."""
        return f"prod_{self.product_id}"


@runtime_checkable
class SandboxBooks(Gateway, Protocol):
    """What the Gateway of a sandbox connection offers besides. No fault touches these calls."""

    async def charges(self, invoice_id: UUID | None) -> Sequence[SandboxCharge]:
        """Return an invoice's charges, or the CHARGES_LISTED newest of the connection; newest first."""
        ...

    async def move_charge(self, charge_id: str, move: SandboxMove) -> SandboxCharge:
        """Pay, refuse, cancel or refund a charge; a move already made changes nothing.

        Raises NotFoundError, and PermanentError `charge_status` when the charge's status does not allow it.
        """
        ...

    async def products(self) -> Sequence[SandboxProduct]:
        """Return what was mirrored to the connection's catalog, newest first."""
        ...

    async def add_fault(self, operation: SandboxOperation, fault: SandboxFault, *, times: int) -> UUID:
        """Queue a fault for the next `times` (1..MAX_FAULT_TIMES) calls of an operation, and return its id.

        Faults of one operation are met in the order in which they were queued.
        """
        ...
