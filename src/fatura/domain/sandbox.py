"""The sandbox gateway's records: charges, products and the faults that a merchant can queue (D-46)."""

from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum
from uuid import UUID

from fatura.domain.offer import PaymentMethod
from fatura.domain.payments import EntryKind

DEFAULT_PROVIDER_ACCOUNT = "default"
"""The value of the setting `providerAccount` (an id at the simulated provider) if none is given (D-59, D-61)."""
MAX_FAULT_TIMES = 1000
"""Maximum number of calls that one queued fault can make fail."""
MAX_FAULT_SECONDS = 86_400
"""Maximum time for which one queued fault can make calls fail."""


class SandboxStatus(StrEnum):
    OPEN = "open"
    PAID = "paid"
    REFUSED = "refused"
    CANCELED = "canceled"
    REFUNDED = "refunded"


class SandboxMove(StrEnum):
    """The changes that a merchant can make to a sandbox charge (D-46, D-61)."""

    PAY = "pay"
    REFUSE = "refuse"
    CANCEL = "cancel"
    REFUND = "refund"
    DISPUTE = "dispute"
    CLOSE_DISPUTE = "dispute-close"


@dataclass(frozen=True, slots=True)
class MoveDetails:
    """The details of a change that a merchant makes to a sandbox charge.

    Without `amount_cents`, a payment covers the open amount, and a refund or dispute covers as much as possible.
    `up_to_cents` applies to a payment without `amount_cents`: it limits the sum of the charge's payments, and the
    payment of a canceled charge is refused. Without `paid_at`, a payment is made now.
    """

    amount_cents: int | None = None
    up_to_cents: int | None = None
    paid_at: datetime | None = None
    won: bool | None = None


@dataclass(frozen=True, slots=True)
class SandboxEntry:
    """A payment, a refund, or a step of a dispute of a sandbox charge.

    `refund_id` is the engine's id of the refund. It is None if the merchant refunded the charge in the sandbox.
    """

    kind: EntryKind
    reference: str
    amount_cents: int
    occurred_at: datetime
    refund_id: UUID | None = None


class SandboxOperation(StrEnum):
    """A gateway call for which faults can be queued (D-46, D-61).

    `list_charges` includes look-ups by reference. `all` includes every call, also the check of the credentials.
    """

    CREATE_CHARGE = "create_charge"
    GET_CHARGE = "get_charge"
    CANCEL_CHARGE = "cancel_charge"
    REFUND_CHARGE = "refund_charge"
    LIST_CHARGES = "list_charges"
    CREATE_PRODUCT = "create_product"
    ALL = "all"


class SandboxFault(StrEnum):
    """How a call fails. With `timeout_after`, the call takes effect; with every other fault, the call has no effect.

    With `hang`, the call gets no answer until the caller gives up. With `unknown`, a call that creates
    something is refused, and any other call gets the answer that the gateway does not know the charge.
    """

    TIMEOUT_BEFORE = "timeout_before"
    TIMEOUT_AFTER = "timeout_after"
    SERVER_ERROR = "server_error"
    RATE_LIMITED = "rate_limited"
    REJECTED = "rejected"
    HANG = "hang"
    UNKNOWN = "unknown"
    UNAUTHORIZED = "unauthorized"


@dataclass(frozen=True, slots=True)
class SandboxCharge:
    """A sandbox charge; `charge_id` is the invoice's `gatewayInvoiceId`.

    `is_double` is true for a second charge that the merchant made with `double` (D-61).
    """

    charge_id: str
    connection_id: UUID
    invoice_id: UUID
    attempt: int
    amount_cents: int
    currency: str
    method: PaymentMethod
    installments: int | None
    due_date: date
    status: SandboxStatus
    created_at: datetime
    entries: tuple[SandboxEntry, ...] = ()
    is_double: bool = False

    def cents_of(self, kind: EntryKind) -> int:
        return sum(entry.amount_cents for entry in self.entries if entry.kind is kind)


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
