"""Which records of a list are asked for; what is None is not asked about (D-16)."""

from dataclasses import dataclass
from datetime import date
from uuid import UUID

from fatura.domain.invoice_states import InvoiceStatus
from fatura.domain.subscription import SubscriptionStatus


@dataclass(frozen=True, slots=True)
class ProductFilter:
    """Products of the client's own id, and either archived or active ones."""

    external_ref: str | None = None
    archived: bool | None = None


@dataclass(frozen=True, slots=True)
class PlanFilter:
    """Either archived or active plans."""

    archived: bool | None = None


@dataclass(frozen=True, slots=True)
class CustomerFilter:
    """Customers of the client's own id (one at most), of an e-mail, of a name that starts so, of a tax document."""

    external_ref: str | None = None
    email: str | None = None
    name: str | None = None
    document: str | None = None


@dataclass(frozen=True, slots=True)
class SubscriptionFilter:
    """Subscriptions in a state, of the client's own id, of a plan, of a customer by our id or by the client's."""

    status: SubscriptionStatus | None = None
    external_ref: str | None = None
    plan_id: UUID | None = None
    customer_id: UUID | None = None
    customer_external_ref: str | None = None


@dataclass(frozen=True, slots=True)
class InvoiceFilter:
    """Invoices in a state, of a subscription, of a customer by our id or by the client's, due in a range of dates."""

    status: InvoiceStatus | None = None
    subscription_id: UUID | None = None
    customer_id: UUID | None = None
    customer_external_ref: str | None = None
    due_from: date | None = None
    due_to: date | None = None
