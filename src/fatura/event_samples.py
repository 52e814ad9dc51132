"""One sample payload for each kind of event, made of the same views as the real ones; for the reference pages."""

import json
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID

import msgspec

from fatura.domain.delivery import Webhook
from fatura.domain.events import CATALOGUE
from fatura.domain.invoice import (
    Invoice,
    InvoiceDetail,
    InvoiceItem,
    IssueFailure,
    PricingSource,
    PricingStatus,
)
from fatura.domain.invoice_states import InvoiceStatus
from fatura.domain.offer import PaymentMethod
from fatura.domain.pricing import PricingOutcome
from fatura.domain.subscription import (
    Customer,
    PaymentMethodSource,
    Subscription,
    SubscriptionStatus,
    commitment,
)
from fatura.views.events import (
    EventInvoiceView,
    InvoiceDataView,
    InvoiceIssueErrorDataView,
    InvoicePricingErrorDataView,
    IssueErrorView,
    PricingErrorView,
    SubscriptionCanceledDataView,
    SubscriptionDataView,
    WebhookDisabledDataView,
    WebhookErrorView,
    event_json,
)
from fatura.views.view import View
from fatura.views.webhooks import WebhookView

AT = datetime(2026, 11, 20, 12, tzinfo=UTC)
_IDS = [UUID(f"019a2f6e-1c3b-7d52-9f0a-6b1c2d3e4f{number:02x}") for number in range(16)]
(
    _EVENT,
    _SUBSCRIPTION,
    _PLAN,
    _TERMS,
    _CUSTOMER,
    _CONNECTION,
    _INVOICE,
    _ITEM,
    _USAGE_ITEM,
    _PRODUCT,
    _USAGE,
) = _IDS[:11]

SUBSCRIPTION = Subscription(
    subscription_id=_SUBSCRIPTION,
    external_ref="sub-77",
    plan_id=_PLAN,
    plan_version_id=_TERMS,
    plan_version=1,
    customized=False,
    customer=Customer(_CUSTOMER, "crm-4711", "Ana Souza", "ana@example.com"),
    status=SubscriptionStatus.ACTIVE,
    charge_day=10,
    payment_method=PaymentMethod.PIX,
    payment_method_source=PaymentMethodSource.PLAN_DEFAULT,
    connection_id=_CONNECTION,
    cycle_count=0,
    commitment_cycles=12,
    next_period_start=date(2026, 12, 10),
    next_due_date=date(2026, 12, 10),
    started_at=AT,
    canceled_at=None,
)
_FIXED = InvoiceItem(
    item_id=_ITEM,
    product_id=_PRODUCT,
    product_name="Hosting",
    pricing_source=PricingSource.TABLE,
    pricing_status=PricingStatus.PRICED,
    months=1,
    monthly_price_cents=9990,
    discount_percent=20,
    amount_cents=7992,
    description=None,
    product_external_ref="hosting",
)
_PRICED = InvoiceItem(
    item_id=_USAGE_ITEM,
    product_id=_USAGE,
    product_name="API calls",
    pricing_source=PricingSource.ENDPOINT,
    pricing_status=PricingStatus.PRICED,
    months=1,
    monthly_price_cents=None,
    discount_percent=None,
    amount_cents=1250,
    description="1,250 calls",
    product_external_ref="api-calls",
)
_PENDING = replace(_PRICED, pricing_status=PricingStatus.PENDING, amount_cents=None, description=None)
_STATUS = {
    "invoice.created": InvoiceStatus.DRAFT,
    "invoice.held": InvoiceStatus.AWAITING_VALUE,
    "invoice.pricing_warning": InvoiceStatus.AWAITING_VALUE,
    "invoice.pricing_exhausted": InvoiceStatus.AWAITING_VALUE,
    "invoice.ready": InvoiceStatus.READY,
    "invoice.issue_delayed": InvoiceStatus.READY,
    "invoice.issue_failed": InvoiceStatus.READY,
    "invoice.issued": InvoiceStatus.ISSUED,
    "invoice.paid": InvoiceStatus.PAID,
    "invoice.refunded": InvoiceStatus.PAID,
    "invoice.disputed": InvoiceStatus.PAID,
    "invoice.overdue": InvoiceStatus.OVERDUE,
    "invoice.canceled": InvoiceStatus.CANCELED,
    "invoice.payment_unexpected": InvoiceStatus.CANCELED,
}
_PRICING_ERRORS = {
    "invoice.pricing_warning": PricingErrorView(
        code="pricing_failing",
        message="The price endpoint has been failing for 15 minutes. It will be called again automatically.",
        item_id=str(_USAGE_ITEM),
        product_id=str(_USAGE),
        outcome=PricingOutcome.HTTP_ERROR,
        response_status=500,
        response_body="out of order",
    ),
    "invoice.pricing_exhausted": PricingErrorView(
        code="pricing_exhausted",
        message="The last call failed: the endpoint answered 500. Release the item with retry-pricing or a value.",
        item_id=str(_USAGE_ITEM),
        product_id=str(_USAGE),
        outcome=PricingOutcome.HTTP_ERROR,
        response_status=500,
        response_body="out of order",
    ),
}
_ISSUE_FAILED = "invoice.issue_failed"
_ISSUE_ERRORS = {
    "invoice.issue_delayed": IssueErrorView(code="retrying", message="no answer within 20 s"),
    _ISSUE_FAILED: IssueErrorView(code="invalid_document", message="The payer's document is not valid."),
}


def sample(type_: str) -> dict[str, Any]:
    """Return a sample of an event, as replay and push show it (D-37)."""
    data = msgspec.json.encode(sample_data(type_)).decode()
    return json.loads(event_json(_EVENT, 42, type_=type_, created_at=AT, data=data))


def sample_data(type_: str) -> View:
    assert type_ in CATALOGUE, type_
    if type_ == "webhook.disabled":
        return _webhook_disabled()
    if type_ == "subscription.canceled":
        canceled = replace(SUBSCRIPTION, status=SubscriptionStatus.CANCELED, canceled_at=AT)
        return SubscriptionCanceledDataView.of(canceled, commitment(canceled))
    if type_.startswith("subscription."):
        return SubscriptionDataView.of(replace(SUBSCRIPTION, customized=type_ == "subscription.customized"))
    detail = _detail(type_)
    if type_ in _PRICING_ERRORS:
        return InvoicePricingErrorDataView(
            invoice=EventInvoiceView.of_detail(detail), error=_PRICING_ERRORS[type_]
        )
    if type_ in _ISSUE_ERRORS:
        return InvoiceIssueErrorDataView(
            invoice=EventInvoiceView.of_detail(detail), error=_ISSUE_ERRORS[type_]
        )
    return InvoiceDataView.of(detail)


def _webhook_disabled() -> View:
    return WebhookDisabledDataView(
        webhook=WebhookView.of(Webhook("https://shop.example/fatura", AT, AT)),
        error=WebhookErrorView(
            code="gone",
            message="The endpoint answered 410 Gone. Register it again with PUT /v1/integration/webhook to "
            "resume deliveries.",
            last_error="answered 410",
            response_status=410,
        ),
    )


def _detail(type_: str) -> InvoiceDetail:
    status, error = _STATUS[type_], _ISSUE_ERRORS[_ISSUE_FAILED]
    waits = status in {InvoiceStatus.DRAFT, InvoiceStatus.AWAITING_VALUE}
    charged = status in {InvoiceStatus.ISSUED, InvoiceStatus.PAID, InvoiceStatus.OVERDUE}
    invoice = Invoice(
        invoice_id=_INVOICE,
        subscription_id=_SUBSCRIPTION,
        customer=SUBSCRIPTION.customer,
        cycle=1,
        status=status,
        due_date=date(2026, 12, 10),
        payment_method=PaymentMethod.PIX,
        installments=None,
        total_cents=None if waits else 9242,
        gateway_invoice_id="ch_0001" if charged else None,
        issued_at=AT if charged else None,
        paid_at=AT if status is InvoiceStatus.PAID else None,
        refunded_at=AT if type_ == "invoice.refunded" else None,
        disputed_at=AT if type_ == "invoice.disputed" else None,
        canceled_at=AT if status is InvoiceStatus.CANCELED else None,
        issue_error=IssueFailure(error.code, error.message, AT) if type_ == _ISSUE_FAILED else None,
        created_at=AT,
    )
    return InvoiceDetail(invoice, [_FIXED, _PENDING if waits else _PRICED], SUBSCRIPTION.external_ref)
