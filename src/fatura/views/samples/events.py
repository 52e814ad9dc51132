"""A sample of every event (D-36, D-37)."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from fatura.domain.delivery import Webhook
from fatura.domain.gateway_health import CallError, ConnectionHealth
from fatura.domain.invoice import IssueFailure
from fatura.domain.invoice_states import InvoiceStatus
from fatura.domain.payments import EntryKind, PaymentEntry
from fatura.domain.pricing import PricingOutcome
from fatura.domain.subscription import CustomerProfile, SubscriptionStatus, TermsReason, commitment
from fatura.views.customers import CustomerProfileView
from fatura.views.events import (
    ConnectionDataView,
    ConnectionErrorDataView,
    CustomerDataView,
    EventInvoiceView,
    EventView,
    InvoiceDataView,
    InvoiceEntryDataView,
    InvoiceIssueErrorDataView,
    InvoicePricingErrorDataView,
    InvoiceRefundDataView,
    IssueErrorView,
    PricingErrorView,
    SubscriptionBillingErrorDataView,
    SubscriptionCanceledDataView,
    SubscriptionDataView,
    SubscriptionGatewayDataView,
    SubscriptionTermsDataView,
    WebhookDisabledDataView,
    WebhookErrorView,
)
from fatura.views.integration import ConnectionErrorView, ConnectionView
from fatura.views.payments import RefundView
from fatura.views.samples.story import (
    ANA,
    AT,
    CONNECTION,
    EVENT_ID,
    OLD_CONNECTION_ID,
    REFUND,
    SUBSCRIPTION,
    TRAINING,
    TRAINING_ITEM_ID,
    WEBHOOK_URL,
    entry,
    invoice,
)
from fatura.views.view import View
from fatura.views.webhooks import WebhookView


def sample(type_: str) -> EventView:
    """Return an event of a type, as replay and webhooks show it."""
    return EventView.of(EVENT_ID, 42, type_=type_, created_at=AT, data=DATA[type_].json_text())


def sample_json(type_: str) -> dict[str, Any]:
    return json.loads(sample(type_).json())


def _pricing_error(code: str, detail: str) -> InvoicePricingErrorDataView:
    error = PricingErrorView(
        code=code,
        detail=detail,
        item_id=str(TRAINING_ITEM_ID),
        product_id=str(TRAINING.product_id),
        outcome=PricingOutcome.HTTP_ERROR,
        response_status=500,
        response_body="out of order",
    )
    return InvoicePricingErrorDataView(invoice=_invoice(InvoiceStatus.AWAITING_VALUE), error=error)


def _issue_error(code: str, detail: str, *, failure: IssueFailure | None) -> InvoiceIssueErrorDataView:
    return InvoiceIssueErrorDataView(
        invoice=_invoice(InvoiceStatus.READY, issue_error=failure),
        error=IssueErrorView(code=code, detail=detail),
    )


def _invoice(status: InvoiceStatus, **changes: Any) -> EventInvoiceView:
    detail = invoice(status)
    return EventInvoiceView.of_detail(replace(detail, invoice=replace(detail.invoice, **changes)))


def _entry_data(status: InvoiceStatus, *entries: PaymentEntry, **changes: Any) -> InvoiceEntryDataView:
    """Return the data of an event that reports the final entry in `entries`."""
    detail = invoice(status, *entries)
    detail = replace(detail, invoice=replace(detail.invoice, **changes))
    return InvoiceEntryDataView.of_entry(detail, entries[-1])


_K = EntryKind
CANCELED = replace(SUBSCRIPTION, status=SubscriptionStatus.CANCELED, canceled_at=AT)
_FAILURE = IssueFailure("invalid_document", "The payer's document is not valid.", AT)
_TIMEOUT = CallError("timeout", "get_charge: no answer within 20 s")
_FAILING = ConnectionHealth(
    failures=12, failing_since=AT, next_probe_at=AT, probes=9, emitted=True, error=_TIMEOUT
)
_STATUS = {
    "invoice.created": InvoiceStatus.DRAFT,
    "invoice.held": InvoiceStatus.AWAITING_VALUE,
    "invoice.ready": InvoiceStatus.READY,
    "invoice.reissued": InvoiceStatus.READY,
    "invoice.issued": InvoiceStatus.ISSUED,
    "invoice.paid": InvoiceStatus.PAID,
    "invoice.overdue": InvoiceStatus.OVERDUE,
    "invoice.canceled": InvoiceStatus.CANCELED,
}
DATA: Mapping[str, View] = {
    "subscription.created": SubscriptionDataView.of(SUBSCRIPTION),
    "subscription.customized": SubscriptionDataView.of(replace(SUBSCRIPTION, customized=True)),
    "subscription.terms_changed": SubscriptionTermsDataView.of(
        replace(SUBSCRIPTION, plan_version=2), reason=TermsReason.PROPAGATED, changed_at=AT
    ),
    "subscription.gateway_changed": SubscriptionGatewayDataView.of(
        SUBSCRIPTION, previous_connection_id=OLD_CONNECTION_ID
    ),
    "subscription.billing_failed": SubscriptionBillingErrorDataView.of(
        SUBSCRIPTION,
        code="unexpected_error",
        detail="The invoice of cycle 1 could not be generated because of an unexpected error. "
        "It is tried again every hour. The log of the engine has the cause.",
    ),
    "subscription.canceled": SubscriptionCanceledDataView.of(CANCELED, commitment(CANCELED)),
    **{type_: InvoiceDataView.of(invoice(status)) for type_, status in _STATUS.items()},
    "invoice.partially_paid": _entry_data(InvoiceStatus.ISSUED, entry(amount_cents=10000)),
    "invoice.overpaid": _entry_data(InvoiceStatus.PAID, entry(amount_cents=20000)),
    "invoice.payment_unexpected": _entry_data(InvoiceStatus.CANCELED, entry()),
    "invoice.refunded": _entry_data(InvoiceStatus.PAID, entry(), entry(_K.REFUND), refunded_at=AT),
    "invoice.refund_failed": InvoiceRefundDataView(
        invoice=_invoice(InvoiceStatus.PAID),
        refund=RefundView.of(REFUND.failed_with("insufficient_balance", "The balance is too low.", at=AT)),
    ),
    "invoice.disputed": _entry_data(InvoiceStatus.PAID, entry(), entry(_K.DISPUTE_OPENED), disputed_at=AT),
    "invoice.dispute_closed": _entry_data(
        InvoiceStatus.PAID, entry(), entry(_K.DISPUTE_OPENED), entry(_K.DISPUTE_WON)
    ),
    "invoice.pricing_warning": _pricing_error(
        "pricing_failing",
        "The price endpoint has been failing for 15 minutes. It will be called again automatically.",
    ),
    "invoice.pricing_exhausted": _pricing_error(
        "pricing_exhausted",
        "The last call failed: the endpoint answered 500. Release the item with retry-pricing or a value.",
    ),
    "invoice.issue_delayed": _issue_error("retrying", "no answer within 20 s", failure=None),
    "invoice.charge_missing": InvoiceIssueErrorDataView(
        invoice=_invoice(InvoiceStatus.ISSUED),
        error=IssueErrorView(
            code="charge_missing",
            detail="The gateway does not know the charge ch_0001 any more; check it there.",
            gateway_invoice_id="ch_0001",
        ),
    ),
    "invoice.issue_failed": _issue_error(_FAILURE.code, _FAILURE.detail, failure=_FAILURE),
    "customer.erased": CustomerDataView(
        customer=CustomerProfileView.of_profile(
            CustomerProfile(ANA.erased(), has_document=False, created_at=AT, erased_at=AT)
        )
    ),
    "webhook.disabled": WebhookDisabledDataView(
        webhook=WebhookView.of(Webhook(WEBHOOK_URL, AT, AT), shows_path=False),
        error=WebhookErrorView(
            code="gone",
            detail="The endpoint answered 410 Gone. Register it again with PUT /v1/integration/webhook to resume "
            "deliveries.",
            last_error="answered 410",
            response_status=410,
        ),
    ),
    "connection.failing": ConnectionErrorDataView(
        connection=ConnectionView.of(CONNECTION, _FAILING, settings={}),
        error=ConnectionErrorView.of(_TIMEOUT),
    ),
    "connection.recovered": ConnectionDataView(connection=ConnectionView.of(CONNECTION, settings={})),
    "connection.credentials_expiring": ConnectionDataView(
        connection=ConnectionView.of(
            replace(CONNECTION, credentials_expire_at=CONNECTION.created_at + timedelta(days=365)),
            settings={},
        )
    ),
}
"""A sample of the `data` of every event type."""
