"""Invoices, their items and their price calls (spec 2.5)."""

from collections.abc import Sequence
from datetime import date
from typing import Annotated, Any, Self

from msgspec import Meta

from fatura.domain.invoice import Invoice, InvoiceDetail, InvoiceItem, PricingSource, PricingStatus
from fatura.domain.invoice_states import InvoiceStatus
from fatura.domain.offer import MAX_INSTALLMENTS, PaymentMethod
from fatura.domain.pricing import PricingAttempt, PricingOutcome
from fatura.views.customers import CustomerView
from fatura.views.view import Cents, Count, Id, Instant, Ordinal, PageView, Percent, TotalCents, View, instant

Months = Annotated[int, Meta(ge=1, le=12, description="Months covered.")]
Installments = Annotated[
    Annotated[int, Meta(ge=2, le=MAX_INSTALLMENTS)] | None,
    Meta(description="null for single payments and methods other than card."),
]


class IssueFailureView(View):
    """Why a `ready` invoice is not issued until a person acts (D-129)."""

    code: str
    detail: Annotated[str, Meta(description="The reason in words, often the gateway's.")]
    at: Instant


class InvoiceSummaryView(View):
    """An invoice without items and price calls, as lists show it (spec 2.5)."""

    id: Id
    subscription_id: Id
    customer: CustomerView
    cycle: Annotated[Ordinal, Meta(description="The first invoice is cycle 1.")]
    status: InvoiceStatus
    due_date: date
    payment_method: PaymentMethod
    installments: Installments
    total_cents: Annotated[TotalCents | None, Meta(description="null while an item waits for its value.")]
    gateway_invoice_id: Annotated[str | None, Meta(description="Id of the charge in the gateway.")]
    issued_at: Annotated[Instant | None, Meta(description="When the gateway confirmed the charge.")]
    paid_at: Annotated[Instant | None, Meta(description="When the payment was confirmed.")]
    refunded_at: Annotated[Instant | None, Meta(description="When a refund was first reported.")]
    disputed_at: Annotated[Instant | None, Meta(description="When a dispute was first reported.")]
    canceled_at: Annotated[Instant | None, Meta(description="When the invoice was canceled.")]
    issue_error: Annotated[
        IssueFailureView | None,
        Meta(description="Why a `ready` invoice waits for `retry-issuance`; null otherwise."),
    ]
    created_at: Annotated[Instant, Meta(description="When the invoice was generated.")]

    @classmethod
    def of(cls, invoice: Invoice, **more: Any) -> Self:
        failure = invoice.issue_error
        return cls(
            id=str(invoice.invoice_id),
            subscription_id=str(invoice.subscription_id),
            customer=CustomerView.of(invoice.customer),
            cycle=invoice.cycle,
            status=invoice.status,
            due_date=invoice.due_date,
            payment_method=invoice.payment_method,
            installments=invoice.installments,
            total_cents=invoice.total_cents,
            gateway_invoice_id=invoice.gateway_invoice_id,
            issued_at=instant(invoice.issued_at),
            paid_at=instant(invoice.paid_at),
            refunded_at=instant(invoice.refunded_at),
            disputed_at=instant(invoice.disputed_at),
            canceled_at=instant(invoice.canceled_at),
            issue_error=None if failure is None else IssueFailureView.from_attributes(failure),
            created_at=instant(invoice.created_at),
            **more,
        )


class InvoicePageView(PageView[InvoiceSummaryView]):
    """A page of invoices without items and price calls, newest first."""


class InvoiceItemView(View):
    """One line of an invoice. Its terms are fixed when the invoice is generated (spec 2.5)."""

    id: Id
    product_id: Id
    product_name: Annotated[str, Meta(description="Name of the product when the invoice was generated.")]
    pricing_source: Annotated[
        PricingSource,
        Meta(
            description="`table`: fixed price with the plan's discounts; `endpoint`: answered by your price endpoint; "
            "`manual`: entered by a person."
        ),
    ]
    pricing_status: Annotated[
        PricingStatus,
        Meta(
            description="`pending`: waits for its value; `priced`: has its final value; "
            "`skipped`: not charged in this cycle."
        ),
    ]
    months: Months
    monthly_price_cents: Annotated[
        Cents | None, Meta(description="Price when the invoice was generated; null on variable items.")
    ]
    discount_percent: Annotated[Percent | None, Meta(description="null when there is no discount.")]
    amount_cents: Annotated[TotalCents | None, Meta(description="null while pending, and when skipped.")]
    description: Annotated[
        Annotated[str, Meta(max_length=300)] | None, Meta(description="Text that the subscriber reads.")
    ]

    @classmethod
    def of(cls, item: InvoiceItem) -> Self:
        return cls.from_attributes(item, id=str(item.item_id))


class PricingAttemptView(View):
    """One call to a price endpoint (spec 2.5)."""

    item_id: Id
    attempt: Annotated[Ordinal, Meta(description="Number of the call, counted for each item.")]
    url: Annotated[str, Meta(description="URL that was called.")]
    outcome: PricingOutcome
    response_status: Annotated[int | None, Meta(description="HTTP status; null when there was no response.")]
    latency_ms: Count | None
    response_body: Annotated[str | None, Meta(description="Raw response body.")]
    created_at: Instant


class InvoiceView(InvoiceSummaryView):
    """An invoice with its items and price calls (spec 2.5)."""

    items: list[InvoiceItemView]
    pricing_attempts: list[PricingAttemptView]

    @classmethod
    def of_detail(cls, detail: InvoiceDetail, attempts: Sequence[PricingAttempt] = ()) -> Self:
        return cls.of(
            detail.invoice,
            items=[InvoiceItemView.of(item) for item in detail.items],
            pricing_attempts=[PricingAttemptView.from_attributes(attempt) for attempt in attempts],
        )


class RetriedView(View):
    """The result of retry-pricing."""

    retried: Annotated[Count, Meta(description="Pending items whose price was requested.")]
