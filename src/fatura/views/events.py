"""Events: the object that replay and webhooks send, and the data of every event type (spec 6, D-36, D-37)."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Self
from uuid import UUID

from msgspec import UNSET, Meta, Raw, UnsetType

from fatura.domain.events import CATALOGUE
from fatura.domain.invoice import InvoiceDetail
from fatura.domain.payments import PaymentEntry
from fatura.domain.pricing import PricingOutcome
from fatura.domain.subscription import Commitment, Subscription, TermsChange, TermsReason
from fatura.views.customers import CustomerProfileView
from fatura.views.integration import ConnectionErrorView, ConnectionView
from fatura.views.invoices import InvoiceItemView, InvoiceSummaryView
from fatura.views.payments import PaymentEntryView, RefundView
from fatura.views.subscriptions import CanceledSubscriptionView, SubscriptionView, TermsChangeView
from fatura.views.view import Count, ExternalRef, Id, Instant, Ordinal, View, instant
from fatura.views.webhooks import WebhookView


class EventView(View):
    """One event, as it was when it was emitted (D-37)."""

    id: Id
    sequence: Annotated[Ordinal, Meta(description="1, 2, 3 ... in each account, without gaps.")]
    type: Annotated[str, Meta(extra_json_schema={"enum": list(CATALOGUE)})]
    created_at: Instant
    data: Raw

    @classmethod
    def of(cls, event_id: UUID, sequence: int, *, type_: str, created_at: datetime, data: str) -> Self:
        """Return an event; `data` is its stored JSON text, which is sent unchanged (D-37, D-39)."""
        assert type_ in CATALOGUE, type_
        return cls(
            id=str(event_id),
            sequence=sequence,
            type=type_,
            created_at=instant(created_at),
            data=Raw(data.encode()),
        )


class EventListView(View):
    """A part of the account's events, oldest first (D-38)."""

    data: list[EventView]
    next_cursor: Annotated[
        str,
        Meta(
            description="Send this value as `cursor` to get the next events. After the last event, send it in the "
            "next poll."
        ),
    ]
    complete_from: Annotated[
        Ordinal,
        Meta(
            description="Number of the oldest event that is kept. Old events with lower numbers are deleted (D-248)."
        ),
    ]


class EventInvoiceItemView(InvoiceItemView):
    """One line of an invoice, with your own id of its product (D-37)."""

    product_external_ref: ExternalRef | None


class EventInvoiceView(InvoiceSummaryView):
    """An invoice with its items and payments, and with your own ids of its subscription and products (D-37)."""

    subscription_external_ref: ExternalRef | None
    items: list[EventInvoiceItemView]
    payments: list[PaymentEntryView]
    payment_count: Count

    @classmethod
    def of_detail(cls, detail: InvoiceDetail) -> Self:
        return cls.of(
            detail.invoice,
            subscription_external_ref=detail.subscription_external_ref,
            items=[EventInvoiceItemView.of(item) for item in detail.items],
            payments=[PaymentEntryView.of(entry) for entry in detail.payments],
            payment_count=detail.payment_count,
        )


class PricingErrorView(View):
    """Why an item has no value, and the raw answer of its price endpoint (D-36)."""

    code: str
    detail: str
    item_id: Id
    product_id: Id
    outcome: PricingOutcome | None
    response_status: int | None
    response_body: Annotated[str | None, Meta(description="Start of the raw response body.")]


class IssueErrorView(View):
    """Why issuing the invoice is delayed or has stopped, or which charge a person must check (D-36)."""

    code: str
    detail: str
    gateway_invoice_id: (
        Annotated[
            str,
            Meta(
                description="Id of the charge, if `code` is `amount_differs`, `charge_missing`, `charge_repeated` or "
                "`second_charge`."
            ),
        ]
        | UnsetType
    ) = UNSET


class WebhookErrorView(View):
    """Why the webhook was disabled (D-36)."""

    code: str
    detail: str
    last_error: str | None
    response_status: int | None


class SubscriptionDataView(View):
    """The subscription."""

    subscription: SubscriptionView

    @classmethod
    def of(cls, subscription: Subscription) -> Self:
        return cls(subscription=SubscriptionView.of(subscription))


class SubscriptionCanceledDataView(View):
    """The canceled subscription with its commitment."""

    subscription: CanceledSubscriptionView

    @classmethod
    def of(cls, subscription: Subscription, commitment: Commitment) -> Self:
        return cls(subscription=CanceledSubscriptionView.with_commitment(subscription, commitment))


class SubscriptionTermsDataView(View):
    """The subscription, and the new entry in the history of its terms."""

    subscription: SubscriptionView
    change: TermsChangeView

    @classmethod
    def of(cls, subscription: Subscription, *, reason: TermsReason, changed_at: datetime) -> Self:
        change = TermsChange(
            from_cycle=subscription.cycle_count + 1,
            plan_id=subscription.plan_id,
            plan_version=subscription.plan_version,
            customized=subscription.customized,
            changed_at=changed_at,
            reason=reason,
        )
        return cls(subscription=SubscriptionView.of(subscription), change=TermsChangeView.of(change))


class SubscriptionGatewayDataView(View):
    """The subscription, and the gateway connection that billed it before (D-59)."""

    subscription: SubscriptionView
    previous_gateway_connection_id: Id

    @classmethod
    def of(cls, subscription: Subscription, *, previous_connection_id: UUID) -> Self:
        return cls(
            subscription=SubscriptionView.of(subscription),
            previous_gateway_connection_id=str(previous_connection_id),
        )


class SubscriptionErrorView(View):
    """Why the next invoice of a subscription could not be generated (D-142)."""

    code: str
    detail: str


class SubscriptionBillingErrorDataView(View):
    """The subscription, and why its next invoice could not be generated."""

    subscription: SubscriptionView
    error: SubscriptionErrorView

    @classmethod
    def of(cls, subscription: Subscription, *, code: str, detail: str) -> Self:
        error = SubscriptionErrorView(code=code, detail=detail)
        return cls(subscription=SubscriptionView.of(subscription), error=error)


class InvoiceDataView(View):
    """The invoice."""

    invoice: EventInvoiceView

    @classmethod
    def of(cls, detail: InvoiceDetail) -> Self:
        return cls(invoice=EventInvoiceView.of_detail(detail))


class InvoiceEntryDataView(View):
    """The invoice, and the payment, refund or dispute that the event reports (D-50)."""

    invoice: EventInvoiceView
    entry: PaymentEntryView

    @classmethod
    def of_entry(cls, detail: InvoiceDetail, entry: PaymentEntry) -> Self:
        return cls(invoice=EventInvoiceView.of_detail(detail), entry=PaymentEntryView.of(entry))


class InvoicePricingErrorDataView(View):
    """The invoice, and why an item has no value."""

    invoice: EventInvoiceView
    error: PricingErrorView


class InvoiceIssueErrorDataView(View):
    """The invoice, and the problem with its charge."""

    invoice: EventInvoiceView
    error: IssueErrorView


class InvoiceRefundDataView(View):
    """The invoice, and the refund that was not made."""

    invoice: EventInvoiceView
    refund: RefundView


class CustomerDataView(View):
    """The customer."""

    customer: CustomerProfileView


class WebhookDisabledDataView(View):
    """The webhook, and why it was disabled."""

    webhook: WebhookView
    error: WebhookErrorView


class ConnectionDataView(View):
    """The gateway connection."""

    connection: ConnectionView


class ConnectionErrorDataView(View):
    """The gateway connection, and why its newest call failed."""

    connection: ConnectionView
    error: ConnectionErrorView


DATA: Mapping[str, type[View]] = {
    **dict.fromkeys(CATALOGUE, InvoiceDataView),
    "subscription.created": SubscriptionDataView,
    "subscription.customized": SubscriptionDataView,
    "subscription.terms_changed": SubscriptionTermsDataView,
    "subscription.gateway_changed": SubscriptionGatewayDataView,
    "subscription.billing_failed": SubscriptionBillingErrorDataView,
    "subscription.canceled": SubscriptionCanceledDataView,
    "invoice.partially_paid": InvoiceEntryDataView,
    "invoice.overpaid": InvoiceEntryDataView,
    "invoice.payment_unexpected": InvoiceEntryDataView,
    "invoice.refunded": InvoiceEntryDataView,
    "invoice.refund_failed": InvoiceRefundDataView,
    "invoice.disputed": InvoiceEntryDataView,
    "invoice.dispute_closed": InvoiceEntryDataView,
    "invoice.pricing_warning": InvoicePricingErrorDataView,
    "invoice.pricing_exhausted": InvoicePricingErrorDataView,
    "invoice.issue_delayed": InvoiceIssueErrorDataView,
    "invoice.issue_failed": InvoiceIssueErrorDataView,
    "invoice.charge_missing": InvoiceIssueErrorDataView,
    "customer.erased": CustomerDataView,
    "webhook.disabled": WebhookDisabledDataView,
    "connection.failing": ConnectionErrorDataView,
    "connection.recovered": ConnectionDataView,
    "connection.credentials_expiring": ConnectionDataView,
}
"""The view of each event type's `data`."""
