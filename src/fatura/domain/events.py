"""The catalogue of events (spec 6, D-36)."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

CATALOGUE: Mapping[str, str] = {
    "subscription.created": "a subscription was created",
    "subscription.customized": "a subscription got terms of its own",
    "subscription.terms_changed": "propagation moved a subscription to another version of its plan",
    "subscription.gateway_changed": "a subscription was moved to another gateway connection",
    "subscription.billing_failed": "the next invoice could not be generated; the engine tries again every hour",
    "subscription.canceled": "a subscription was canceled",
    "invoice.created": "the billing run generated an invoice; the event shows its state",
    "invoice.held": "the invoice became `awaiting_value`: an item's price endpoint gave no valid answer",
    "invoice.ready": "all items have their values, and the invoice can be issued",
    "invoice.issued": "the gateway confirmed the charge",
    "invoice.reissued": "the invoice's charge was canceled, and the invoice gets another one",
    "invoice.partially_paid": "a payment arrived that leaves a part of the total open",
    "invoice.paid": "the payments cover the total, or there was nothing to charge",
    "invoice.overpaid": "a payment arrived, and the payments exceed the total",
    "invoice.overdue": "the payment was refused, or the charge is past due",
    "invoice.canceled": "the invoice was canceled",
    "invoice.refunded": "a payment was refunded, in part or in full; the invoice's state stays",
    "invoice.refund_failed": "the gateway did not make a refund that was asked for; no money was returned",
    "invoice.disputed": "a payer disputes a payment; the invoice keeps its state",
    "invoice.dispute_closed": "a dispute was won or lost; the invoice's state stays",
    "invoice.pricing_warning": "a price endpoint has been failing for 15 minutes",
    "invoice.pricing_exhausted": "all scheduled price calls of an item failed, and the engine makes no more; the "
    "invoice stays `awaiting_value`",
    "invoice.issue_delayed": "the charge could not be created yet; the engine tries again automatically",
    "invoice.issue_failed": "the gateway refused the charge, holds a second charge, or left the outcome unknown; "
    "a person must act",
    "invoice.charge_missing": "the gateway does not know the invoice's charge any more; a person must act",
    "invoice.payment_unexpected": "a payment arrived on a canceled invoice, "
    "or on a charge that is not the invoice's own",
    "customer.erased": "a customer was erased; delete your own copies of the customer's data",
    "webhook.disabled": "the webhook failed for too long and was disabled",
    "connection.failing": "all calls to a gateway, or all polls of charges there, have failed for an hour",
    "connection.recovered": "the calls to a gateway work again after `connection.failing`",
    "connection.credentials_expiring": "the credentials of a gateway connection expire within 30 days",
}
"""Every event type and what it reports (D-36)."""


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event that is not stored yet, so it has no id and no sequence. `data` is JSON text."""

    type: str
    created_at: datetime
    data: str
    subscription_id: UUID | None
    invoice_id: UUID | None
