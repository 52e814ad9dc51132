"""A sample of every event (D-36, D-37)."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fatura.domain.delivery import Webhook
from fatura.domain.invoice import IssueFailure
from fatura.domain.invoice_states import InvoiceStatus
from fatura.domain.pricing import PricingOutcome
from fatura.domain.subscription import SubscriptionStatus, commitment
from fatura.views.events import (
    EventInvoiceView,
    EventView,
    InvoiceDataView,
    InvoiceIssueErrorDataView,
    InvoicePricingErrorDataView,
    IssueErrorView,
    PricingErrorView,
    SubscriptionCanceledDataView,
    SubscriptionDataView,
    WebhookDisabledDataView,
    WebhookErrorView,
)
from fatura.views.samples.story import (
    AT,
    EVENT_ID,
    SUBSCRIPTION,
    TRAINING,
    TRAINING_ITEM_ID,
    WEBHOOK_URL,
    invoice,
)
from fatura.views.view import View
from fatura.views.webhooks import WebhookView


def sample(type_: str) -> EventView:
    """Return an event of a type, as replay and webhooks show it."""
    return EventView.of(EVENT_ID, 42, type_=type_, created_at=AT, data=DATA[type_].json_text())


def sample_json(type_: str) -> dict[str, Any]:
    return json.loads(sample(type_).json())


def _pricing_error(code: str, message: str) -> InvoicePricingErrorDataView:
    error = PricingErrorView(
        code=code,
        message=message,
        item_id=str(TRAINING_ITEM_ID),
        product_id=str(TRAINING.product_id),
        outcome=PricingOutcome.HTTP_ERROR,
        response_status=500,
        response_body="out of order",
    )
    return InvoicePricingErrorDataView(invoice=_invoice(InvoiceStatus.AWAITING_VALUE), error=error)


def _issue_error(code: str, message: str, *, failure: IssueFailure | None) -> InvoiceIssueErrorDataView:
    return InvoiceIssueErrorDataView(
        invoice=_invoice(InvoiceStatus.READY, issue_error=failure),
        error=IssueErrorView(code=code, message=message),
    )


def _invoice(status: InvoiceStatus, **changes: Any) -> EventInvoiceView:
    detail = invoice(status)
    return EventInvoiceView.of_detail(replace(detail, invoice=replace(detail.invoice, **changes)))


CANCELED = replace(SUBSCRIPTION, status=SubscriptionStatus.CANCELED, canceled_at=AT)
_FAILURE = IssueFailure("invalid_document", "The payer's document is not valid.", AT)
_STATUS = {
    "invoice.created": InvoiceStatus.DRAFT,
    "invoice.held": InvoiceStatus.AWAITING_VALUE,
    "invoice.ready": InvoiceStatus.READY,
    "invoice.issued": InvoiceStatus.ISSUED,
    "invoice.paid": InvoiceStatus.PAID,
    "invoice.overdue": InvoiceStatus.OVERDUE,
    "invoice.canceled": InvoiceStatus.CANCELED,
    "invoice.payment_unexpected": InvoiceStatus.CANCELED,
}
DATA: Mapping[str, View] = {
    "subscription.created": SubscriptionDataView.of(SUBSCRIPTION),
    "subscription.customized": SubscriptionDataView.of(replace(SUBSCRIPTION, customized=True)),
    "subscription.canceled": SubscriptionCanceledDataView.of(CANCELED, commitment(CANCELED)),
    **{type_: InvoiceDataView.of(invoice(status)) for type_, status in _STATUS.items()},
    "invoice.refunded": InvoiceDataView(invoice=_invoice(InvoiceStatus.PAID, refunded_at=AT)),
    "invoice.disputed": InvoiceDataView(invoice=_invoice(InvoiceStatus.PAID, disputed_at=AT)),
    "invoice.pricing_warning": _pricing_error(
        "pricing_failing",
        "The price endpoint has been failing for 15 minutes. It will be called again automatically.",
    ),
    "invoice.pricing_exhausted": _pricing_error(
        "pricing_exhausted",
        "The last call failed: the endpoint answered 500. Release the item with retry-pricing or a value.",
    ),
    "invoice.issue_delayed": _issue_error("retrying", "no answer within 20 s", failure=None),
    "invoice.issue_failed": _issue_error(_FAILURE.code, _FAILURE.detail, failure=_FAILURE),
    "webhook.disabled": WebhookDisabledDataView(
        webhook=WebhookView.of(Webhook(WEBHOOK_URL, AT, AT)),
        error=WebhookErrorView(
            code="gone",
            message="The endpoint answered 410 Gone. Register it again with PUT /v1/integration/webhook to resume "
            "deliveries.",
            last_error="answered 410",
            response_status=410,
        ),
    ),
}
"""The `data` of a sample of every event type."""
