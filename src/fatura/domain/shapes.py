"""The JSON objects a client sees, one function a noun; answers and events are made of the same (spec 2, D-37)."""

from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Any

from fatura.domain.connection import Connection
from fatura.domain.credentials import ApiKey
from fatura.domain.delivery import Attempt, Webhook
from fatura.domain.invoice import Invoice, InvoiceDetail, InvoiceDraft, InvoiceItem, PricingSource
from fatura.domain.offer import Discount, OfferItem, Plan
from fatura.domain.pricing import PricingAttempt
from fatura.domain.product import Product
from fatura.domain.subscription import Commitment, Customer, CustomerProfile, Subscription

Shape = dict[str, Any]


def instant(at: datetime | None) -> str | None:
    """Format an instant as ISO 8601 in UTC with milliseconds and `Z` (spec 2.1)."""
    if at is None:
        return None
    in_utc = at if at.tzinfo is UTC else at.astimezone(UTC)
    return in_utc.isoformat(timespec="milliseconds")[: -len("+00:00")] + "Z"


def day(value: date) -> str:
    """Format a date as `YYYY-MM-DD` (spec 2.1)."""
    return value.isoformat()


def product(of: Product) -> Shape:
    """Return the Product object (spec 2.2)."""
    return {
        "id": str(of.product_id),
        "name": of.name,
        "description": of.description,
        "externalRef": of.external_ref,
        "pricingMode": str(of.pricing_mode),
        "monthlyPriceCents": of.monthly_price_cents,
        "endpointUrl": of.endpoint_url,
        "capCents": of.cap_cents,
        "archivedAt": instant(of.archived_at),
        "createdAt": instant(of.created_at),
    }


def discount(of: Discount) -> Shape:
    """Return one rule of a discount schedule (spec 2.3)."""
    return {"percent": of.percent, "fromCycle": of.from_cycle, "toCycle": of.to_cycle}


def plan(of: Plan, items: Sequence[OfferItem] | None = None) -> Shape:
    """Return the Plan object, with items[] when given (spec 2.3)."""
    shape: Shape = {
        "id": str(of.plan_id),
        "name": of.name,
        "version": of.version,
        "periodMonths": of.period_months,
        "defaultPaymentMethod": str(of.default_payment_method),
        "maxInstallments": of.max_installments,
        "commitmentCycles": of.commitment_cycles,
        "archivedAt": instant(of.archived_at),
        "createdAt": instant(of.created_at),
    }
    if items is not None:
        shape["items"] = [
            {
                "productId": str(item.product_id),
                "position": position,
                "discounts": [discount(rule) for rule in item.discounts],
            }
            for position, item in enumerate(items)
        ]
    return shape


def customer(of: Customer) -> Shape:
    """Return the customer object of a subscription (spec 2.4)."""
    return {"id": str(of.customer_id), "externalRef": of.external_ref, "name": of.name, "email": of.email}


def customer_profile(of: CustomerProfile) -> Shape:
    """Return the Customer object of its own routes (D-15)."""
    return customer(of.customer) | {"hasDocument": of.has_document, "createdAt": instant(of.created_at)}


def subscription(of: Subscription) -> Shape:
    """Return the Subscription object (spec 2.4, D-17)."""
    return {
        "id": str(of.subscription_id),
        "externalRef": of.external_ref,
        "planId": str(of.plan_id),
        "planVersion": of.plan_version,
        "customized": of.customized,
        "customer": customer(of.customer),
        "status": str(of.status),
        "chargeDay": of.charge_day,
        "paymentMethod": str(of.payment_method),
        "paymentMethodSource": str(of.payment_method_source),
        "gatewayConnectionId": None if of.connection_id is None else str(of.connection_id),
        "cycleCount": of.cycle_count,
        "commitmentCycles": of.commitment_cycles,
        "nextDueDate": day(of.next_due_date),
        "startedAt": instant(of.started_at),
        "canceledAt": instant(of.canceled_at),
    }


def commitment(of: Commitment) -> Shape:
    """Return the commitment block of a cancellation (spec 4.4)."""
    return {"cycles": of.cycles, "completed": of.completed, "fulfilled": of.fulfilled}


def invoice(of: Invoice) -> Shape:
    """Return the Invoice object of lists, without items (spec 2.5)."""
    return {
        "id": str(of.invoice_id),
        "subscriptionId": str(of.subscription_id),
        "cycle": of.cycle,
        "status": str(of.status),
        "dueDate": day(of.due_date),
        "paymentMethod": str(of.payment_method),
        "installments": of.installments,
        "totalCents": of.total_cents,
        "gatewayInvoiceId": of.gateway_invoice_id,
        "issuedAt": instant(of.issued_at),
        "paidAt": instant(of.paid_at),
        "createdAt": instant(of.created_at),
    }


def invoice_item(of: InvoiceItem) -> Shape:
    """Return one item of an invoice's detail (spec 2.5)."""
    return {
        "id": str(of.item_id),
        "productId": str(of.product_id),
        "productName": of.product_name,
        "pricingSource": str(of.pricing_source),
        "pricingStatus": str(of.pricing_status),
        "months": of.months,
        "monthlyPriceCents": of.monthly_price_cents,
        "discountPercent": of.discount_percent,
        "amountCents": of.amount_cents,
        "description": of.description,
    }


def pricing_attempt(of: PricingAttempt) -> Shape:
    """Return one call to a price endpoint (spec 2.5)."""
    return {
        "itemId": str(of.item_id),
        "attempt": of.attempt,
        "url": of.url,
        "outcome": str(of.outcome),
        "responseStatus": of.response_status,
        "latencyMs": of.latency_ms,
        "responseBody": of.response_body,
        "createdAt": instant(of.created_at),
    }


def invoice_detail(of: InvoiceDetail, attempts: Sequence[PricingAttempt] = ()) -> Shape:
    """Return the full Invoice object with items and pricing attempts (spec 2.5)."""
    return invoice(of.invoice) | {
        "items": [invoice_item(item) for item in of.items],
        "pricingAttempts": [pricing_attempt(each) for each in attempts],
    }


def preview(of: Subscription, draft: InvoiceDraft) -> Shape:
    """Return the dry run of a subscription's next invoice (spec 4.4)."""
    return {
        "subscriptionId": str(of.subscription_id),
        "cycle": draft.cycle,
        "dueDate": day(of.next_due_date),
        "paymentMethod": str(draft.payment_method),
        "installments": draft.installments,
        "fixedTotalCents": draft.fixed_total_cents,
        "hasPendingItems": draft.has_pending_items,
        "items": [
            {
                "productId": str(item.product_id),
                "productName": item.product_name,
                "pricingSource": str(item.pricing_source),
                "pricingStatus": str(item.pricing_status),
                "monthlyPriceCents": item.monthly_price_cents,
                "months": item.months,
                "discountPercent": item.discount_percent,
                "amountCents": item.amount_cents,
                "note": _note(item.pricing_source),
            }
            for item in draft.items
        ],
    }


def _note(source: PricingSource) -> str | None:
    if source is PricingSource.TABLE:
        return None
    return "The value will be asked from the product's price endpoint when the invoice is generated."


def connection(of: Connection) -> Shape:
    """Return the Connection object (D-43)."""
    return {
        "connectionId": str(of.connection_id),
        "provider": of.provider,
        "label": of.label,
        "active": of.active,
        "issuesCharges": of.issues_charges,
        "methods": [str(method) for method in of.methods],
        "maxInstallments": of.max_installments,
        "productCatalog": of.product_catalog,
        "createdAt": instant(of.created_at),
    }


def api_key(of: ApiKey) -> Shape:
    """Return an API key as lists show it (D-41)."""
    return {
        "id": str(of.api_key_id),
        "name": of.name,
        "prefix": of.prefix,
        "createdAt": instant(of.created_at),
        "lastUsedAt": instant(of.last_used_at),
        "revokedAt": instant(of.revoked_at),
    }


def webhook(of: Webhook) -> Shape:
    """Return the webhook (D-39)."""
    return {
        "url": of.url,
        "enabled": of.disabled_at is None,
        "createdAt": instant(of.created_at),
        "disabledAt": instant(of.disabled_at),
    }


def delivery_attempt(of: Attempt) -> Shape:
    """Return one attempt to push an event (D-39)."""
    return {
        "attempt": of.number,
        "url": of.url,
        "outcome": str(of.result.outcome),
        "responseStatus": of.result.response_status,
        "latencyMs": of.result.latency_ms,
        "error": of.result.error,
        "responseBody": of.result.response_body,
        "createdAt": instant(of.created_at),
    }
