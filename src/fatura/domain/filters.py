"""Filters of the lists; a field that is None does not filter (D-16)."""

from dataclasses import dataclass
from datetime import date
from uuid import UUID

from fatura.domain.invoice_states import InvoiceStatus
from fatura.domain.subscription import SubscriptionStatus


@dataclass(frozen=True, slots=True)
class ProductFilter:
    """Products by the client's own id, and by whether they are archived."""

    external_ref: str | None = None
    archived: bool | None = None


@dataclass(frozen=True, slots=True)
class PlanFilter:
    """Plans by whether they are archived."""

    archived: bool | None = None


@dataclass(frozen=True, slots=True)
class CustomerFilter:
    """Customers by the client's own id, which is unique, by e-mail, beginning of the name, and tax document."""

    external_ref: str | None = None
    email: str | None = None
    name: str | None = None
    document: str | None = None


@dataclass(frozen=True, slots=True)
class SubscriptionFilter:
    """Subscriptions by state, the client's own id, plan, and customer (by our id or the client's)."""

    status: SubscriptionStatus | None = None
    external_ref: str | None = None
    plan_id: UUID | None = None
    customer_id: UUID | None = None
    customer_external_ref: str | None = None


@dataclass(frozen=True, slots=True)
class InvoiceFilter:
    """Invoices by state, subscription, customer (by our id or the client's), and range of due dates."""

    status: InvoiceStatus | None = None
    subscription_id: UUID | None = None
    customer_id: UUID | None = None
    customer_external_ref: str | None = None
    due_from: date | None = None
    due_to: date | None = None
