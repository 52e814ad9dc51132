"""Filters of the lists; a field that is None does not filter (D-16)."""

from dataclasses import dataclass
from datetime import date, datetime
from uuid import UUID

from fatura.domain.audit import ActorKind
from fatura.domain.invoice_states import InvoiceStatus
from fatura.domain.subscription import SubscriptionStatus


@dataclass(frozen=True, slots=True)
class ProductFilter:
    """Selects products by `externalRef`, and by whether they are archived."""

    external_ref: str | None = None
    archived: bool | None = None


@dataclass(frozen=True, slots=True)
class PlanFilter:
    """Selects plans by whether they are archived."""

    archived: bool | None = None


@dataclass(frozen=True, slots=True)
class CustomerFilter:
    """Selects customers by `externalRef` (which is unique), e-mail, beginning of the name, and tax document."""

    external_ref: str | None = None
    email: str | None = None
    name: str | None = None
    document: str | None = None


@dataclass(frozen=True, slots=True)
class SubscriptionFilter:
    """Selects subscriptions by state, `externalRef`, plan, and customer (by Fatura's id or by `externalRef`)."""

    status: SubscriptionStatus | None = None
    external_ref: str | None = None
    plan_id: UUID | None = None
    customer_id: UUID | None = None
    customer_external_ref: str | None = None


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Selects audit entries by actor (kind or id), action, resource, and a range of times that includes both ends."""

    actor_kind: ActorKind | None = None
    actor_id: UUID | None = None
    action: str | None = None
    resource_id: str | None = None
    at_from: datetime | None = None
    at_to: datetime | None = None


@dataclass(frozen=True, slots=True)
class InvoiceFilter:
    """Selects invoices by state, subscription, customer (Fatura's id or `externalRef`), and range of due dates."""

    status: InvoiceStatus | None = None
    subscription_id: UUID | None = None
    customer_id: UUID | None = None
    customer_external_ref: str | None = None
    due_from: date | None = None
    due_to: date | None = None
