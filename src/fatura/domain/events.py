"""The catalogue of events (spec 6, D-36)."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

CATALOGUE: Mapping[str, str] = {
    "subscription.created": "a subscription was created",
    "subscription.customized": "a subscription got terms of its own",
    "subscription.canceled": "a subscription was canceled",
    "invoice.created": "the billing run generated an invoice; the event shows its state",
    "invoice.held": "the invoice became `awaiting_value`: an item's price endpoint gave no valid answer",
    "invoice.ready": "all items have their values, and the invoice can be issued",
    "invoice.issued": "the gateway confirmed the charge",
    "invoice.paid": "the payment was confirmed, or there was nothing to charge",
    "invoice.overdue": "the payment was refused, or the charge is past due",
    "invoice.canceled": "the invoice was canceled",
    "invoice.refunded": "the payment was refunded; the invoice stays `paid`",
    "invoice.disputed": "the payment is disputed; the invoice stays `paid`",
    "invoice.pricing_warning": "a price endpoint has been failing for 15 minutes",
    "invoice.pricing_exhausted": "the last price call failed; the invoice stays `awaiting_value`",
    "invoice.issue_delayed": "the charge could not be created yet; it is retried automatically",
    "invoice.issue_failed": "the gateway refused the charge, or holds a second one; a person must act",
    "invoice.payment_unexpected": "a payment arrived on a canceled invoice",
    "webhook.disabled": "the webhook failed for too long and was disabled",
}
"""Every event type and what it reports (D-36)."""


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event without id and number, which are assigned when it is stored. `data` is JSON text."""

    type: str
    created_at: datetime
    data: str
    subscription_id: UUID | None
    invoice_id: UUID | None
