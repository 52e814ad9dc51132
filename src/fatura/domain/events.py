"""The catalogue of events and the exact JSON each one carries (spec 6, D-36, D-37)."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from fatura.domain import shapes
from fatura.domain.invoice import InvoiceDetail
from fatura.domain.subscription import Subscription

CATALOGUE: Mapping[str, str] = {
    "subscription.created": "a customer was bound to a plan",
    "subscription.customized": "a subscription got terms of its own",
    "subscription.canceled": "a subscription was canceled",
    "invoice.created": "the billing run generated an invoice, in the state the event shows",
    "invoice.held": "the invoice entered `awaiting_value`: a variable item has no valid answer",
    "invoice.ready": "the last value was closed and the invoice can be issued",
    "invoice.issued": "the gateway confirmed the charge",
    "invoice.paid": "the payment was confirmed, or there was nothing to charge",
    "invoice.overdue": "the charge was refused or is past due",
    "invoice.canceled": "the invoice was removed from the flow",
    "invoice.refunded": "a paid invoice's payment was given back; the invoice stays `paid`",
    "invoice.disputed": "a paid invoice's payment is disputed; the invoice stays `paid`",
    "invoice.pricing_warning": "a price endpoint has been failing for 15 minutes",
    "invoice.pricing_exhausted": "the last price call failed; the invoice stays held",
    "invoice.issue_delayed": "the charge could not be created yet; it is retried by itself",
    "invoice.issue_failed": "the gateway refused the charge's data; it waits for a person",
    "invoice.payment_unexpected": "a payment arrived on a canceled invoice",
    "webhook.disabled": "the webhook endpoint failed for too long and was disabled",
}
"""Every event type and what it reports (D-36)."""


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event before it has its id and the database numbers it; `data` is the JSON text of its `data` member."""

    type: str
    created_at: datetime
    data: str
    subscription_id: UUID | None
    invoice_id: UUID | None


def element(event_id: UUID, sequence: int, *, type_: str, created_at: datetime, data: str) -> str:
    """Return an event's JSON: the bytes that replay shows and push will send are these (D-37, D-39)."""
    assert type_ in CATALOGUE, type_
    return (
        f'{{"id":"{event_id}","sequence":{sequence},"type":"{type_}",'
        f'"createdAt":"{shapes.instant(created_at)}","data":{data}}}'
    )


def subscription_data(of: Subscription, *, commitment: shapes.Shape | None = None) -> shapes.Shape:
    """Return the data of a subscription's event (D-37)."""
    shape = shapes.subscription(of)
    return {"subscription": shape if commitment is None else shape | {"commitment": commitment}}


def invoice_data(of: InvoiceDetail, *, error: Mapping[str, Any] | None = None) -> shapes.Shape:
    """Return the data of an invoice's event: the detail without attempts, with the client's own ids (D-37)."""
    shape = shapes.invoice(of.invoice) | {
        "subscriptionExternalRef": of.subscription_external_ref,
        "customerId": str(of.customer_id),
        "customerExternalRef": of.customer_external_ref,
        "items": [
            shapes.invoice_item(item) | {"productExternalRef": item.product_external_ref} for item in of.items
        ],
    }
    return {"invoice": shape} if error is None else {"invoice": shape, "error": dict(error)}
