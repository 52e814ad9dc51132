"""The catalogue of events (spec 6, D-36)."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

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
    """An event without id and number, which it gets when it is stored; `data` is JSON text."""

    type: str
    created_at: datetime
    data: str
    subscription_id: UUID | None
    invoice_id: UUID | None
