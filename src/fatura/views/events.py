"""Events: the object that replay and webhooks send, and the data of every event type (spec 6, D-36, D-37)."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Self
from uuid import UUID

from msgspec import UNSET, Meta, Raw, UnsetType

from fatura.domain.events import CATALOGUE
from fatura.domain.invoice import InvoiceDetail
from fatura.domain.pricing import PricingOutcome
from fatura.domain.subscription import Commitment, Subscription
from fatura.views.invoices import InvoiceItemView, InvoiceSummaryView
from fatura.views.subscriptions import CanceledSubscriptionView, SubscriptionView
from fatura.views.view import ExternalRef, Id, Instant, Ordinal, View, instant
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
        """Return an event; `data` is its stored JSON, which is sent unchanged (D-37, D-39)."""
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
        Meta(description="Send it as `cursor` to continue. The last answer has one too, for the next poll."),
    ]


class EventInvoiceItemView(InvoiceItemView):
    """One line of an invoice, with your own id of its product (D-37)."""

    product_external_ref: ExternalRef | None


class EventInvoiceView(InvoiceSummaryView):
    """An invoice with its items and your own ids of its subscription and products (D-37)."""

    subscription_external_ref: ExternalRef | None
    items: list[EventInvoiceItemView]

    @classmethod
    def of_detail(cls, detail: InvoiceDetail) -> Self:
        return cls.of(
            detail.invoice,
            subscription_external_ref=detail.subscription_external_ref,
            items=[EventInvoiceItemView.of(item) for item in detail.items],
        )


class PricingErrorView(View):
    """Why an item has no value, and the raw answer of its price endpoint (D-36)."""

    code: str
    message: str
    item_id: Id
    product_id: Id
    outcome: PricingOutcome | None
    response_status: int | None
    response_body: Annotated[str | None, Meta(description="Start of the raw response body.")]


class IssueErrorView(View):
    """Why the charge was not created, or why a person must check a second charge (D-36)."""

    code: str
    message: str
    gateway_invoice_id: (
        Annotated[str, Meta(description="The additional charge; only with `second_charge`.")] | UnsetType
    ) = UNSET


class WebhookErrorView(View):
    """Why the webhook was disabled (D-36)."""

    code: str
    message: str
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


class InvoiceDataView(View):
    """The invoice."""

    invoice: EventInvoiceView

    @classmethod
    def of(cls, detail: InvoiceDetail) -> Self:
        return cls(invoice=EventInvoiceView.of_detail(detail))


class InvoicePricingErrorDataView(View):
    """The invoice, and why an item has no value."""

    invoice: EventInvoiceView
    error: PricingErrorView


class InvoiceIssueErrorDataView(View):
    """The invoice, and the problem with its charge."""

    invoice: EventInvoiceView
    error: IssueErrorView


class WebhookDisabledDataView(View):
    """The webhook, and why it was disabled."""

    webhook: WebhookView
    error: WebhookErrorView


DATA: Mapping[str, type[View]] = {
    **dict.fromkeys(CATALOGUE, InvoiceDataView),
    "subscription.created": SubscriptionDataView,
    "subscription.customized": SubscriptionDataView,
    "subscription.canceled": SubscriptionCanceledDataView,
    "invoice.pricing_warning": InvoicePricingErrorDataView,
    "invoice.pricing_exhausted": InvoicePricingErrorDataView,
    "invoice.issue_delayed": InvoiceIssueErrorDataView,
    "invoice.issue_failed": InvoiceIssueErrorDataView,
    "webhook.disabled": WebhookDisabledDataView,
}
"""The view of each event type's `data`."""
