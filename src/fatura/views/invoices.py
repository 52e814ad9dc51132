"""Invoices, their items and their price calls (spec 2.5)."""

from collections.abc import Sequence
from datetime import date
from typing import Annotated, Any, Self

from msgspec import Meta

from fatura.domain.charge import PAYABLE, STAGES, ChargeStatus, PayData, ShownCharge
from fatura.domain.invoice import Invoice, InvoiceDetail, InvoiceItem, PricingSource, PricingStatus
from fatura.domain.invoice_states import InvoiceStatus
from fatura.domain.offer import MAX_INSTALLMENTS, PaymentMethod
from fatura.domain.pricing import PricingAttempt, PricingOutcome
from fatura.domain.refunds import RefundRequest
from fatura.views.customers import CustomerView
from fatura.views.payments import PaymentEntryView, RefundView
from fatura.views.view import (
    Cents,
    Count,
    Currency,
    Id,
    Instant,
    Ordinal,
    PageView,
    Percent,
    TotalCents,
    Url,
    View,
    instant,
)

Months = Annotated[int, Meta(ge=1, le=12, description="Months covered.")]
Installments = Annotated[
    Annotated[int, Meta(ge=2, le=MAX_INSTALLMENTS)] | None,
    Meta(description="null for a single payment, and for every method other than card."),
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
    cycle: Annotated[
        Ordinal,
        Meta(description="The cycle of the first invoice is the subscription's `startCycle`, by default 1."),
    ]
    status: InvoiceStatus
    due_date: date
    payment_method: PaymentMethod
    installments: Installments
    total_cents: Annotated[TotalCents | None, Meta(description="null while an item waits for its value.")]
    currency: Currency
    paid_cents: Annotated[
        TotalCents, Meta(description="Sum of all payments. Fees and refunds do not lower it.")
    ]
    refunded_cents: Annotated[TotalCents, Meta(description="Sum of all refunds.")]
    gateway_invoice_id: Annotated[str | None, Meta(description="Id of the charge in the gateway.")]
    issued_at: Annotated[Instant | None, Meta(description="When the gateway confirmed the charge.")]
    paid_at: Annotated[Instant | None, Meta(description="Instant of the payment that covered the total.")]
    refunded_at: Annotated[
        Instant | None, Meta(description="When the refunds were first known to cover what was paid.")
    ]
    disputed_at: Annotated[
        Instant | None,
        Meta(description="When a dispute was first reported; null again when all disputes are won."),
    ]
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
            currency=invoice.currency,
            paid_cents=invoice.paid_cents,
            refunded_cents=invoice.refunded_cents,
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
    """A page of invoices, newest first. Their items and price calls are not shown."""


class InvoiceItemView(View):
    """One line of an invoice. Its months, monthly price and discount never change (spec 2.5)."""

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
    currency: Currency
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
    response_body: Annotated[
        str | None,
        Meta(
            description="Raw response body. If the newest bodies have over 256 KiB together, only the first 2,000 "
            "characters of older ones."
        ),
    ]
    response_body_cut: Annotated[
        bool, Meta(description="Whether `responseBody` is only the start of the body.")
    ]
    created_at: Instant


class ChargeErrorView(View):
    """Why the charge does not exist at the gateway, or why a person must check it (D-49)."""

    code: str
    detail: Annotated[str, Meta(description="The reason in words, often the gateway's.")]


class ChargeView(View):
    """One charge of an invoice (D-49)."""

    id: Id
    number: Annotated[Ordinal, Meta(description="1, 2, 3 ... in each invoice.")]
    connection_id: Id
    provider: str
    status: Annotated[
        ChargeStatus,
        Meta(
            description="`sending`: the request is being sent; `unknown`: its outcome is unknown; `open`: the payer "
            "can pay; `refused`: the payment was declined, and the payer may try again; `not_made`: the gateway has no "
            "charge."
        ),
    ]
    gateway_invoice_id: Annotated[str | None, Meta(description="Id of the charge in the gateway.")]
    amount_cents: TotalCents
    currency: Currency
    payment_method: PaymentMethod
    installments: Installments
    due_date: date
    created_at: Instant
    closed_at: Annotated[Instant | None, Meta(description="When the charge was paid, canceled or given up.")]
    error: ChargeErrorView | None

    @classmethod
    def of(cls, charge: ShownCharge) -> Self:
        error = None
        if charge.error_code is not None:
            error = ChargeErrorView(code=charge.error_code, detail=charge.error_detail or "")
        return cls.from_attributes(
            charge, id=str(charge.charge_id), status=STAGES[charge.stage].status, error=error
        )


class PayDataView(View):
    """How the payer can pay the open charge (D-49)."""

    pay_url: Annotated[Url | None, Meta(description="The `payUrl` of the invoice.")]
    url: Annotated[str | None, Meta(description="The provider's page for the payer.")]
    pix_code: Annotated[str | None, Meta(description="Pix code to copy and paste.")]
    boleto_line: Annotated[str | None, Meta(description="The digits of the boleto.")]
    expires_at: Annotated[Instant | None, Meta(description="Until when the charge can be paid this way.")]

    @classmethod
    def of(cls, pay: PayData, *, pay_url: str | None) -> Self:
        return cls.from_attributes(pay, pay_url=pay_url)


class InvoiceView(InvoiceSummaryView):
    """An invoice with its items, payments, refunds, price calls and charges (spec 2.5, D-49, D-50)."""

    pay_url: Annotated[
        Url | None,
        Meta(
            description="Fatura's own page for the payer, in every state; null if the operator has not set its address."
        ),
    ]
    items: list[InvoiceItemView]
    payments: Annotated[
        list[PaymentEntryView],
        Meta(
            description="The newest 100 payments, refunds and disputes, in the order in which they happened."
        ),
    ]
    payment_count: Annotated[
        Count, Meta(description="Number of all payments, refunds and disputes; a route lists them.")
    ]
    refunds: Annotated[
        list[RefundView],
        Meta(description="The newest 100 refunds that you asked for, oldest first, also those that failed."),
    ]
    pricing_attempts: list[PricingAttemptView]
    charges: Annotated[list[ChargeView], Meta(description="The newest 100 charges, oldest first.")]
    payment: Annotated[
        PayDataView | None, Meta(description="How the payer can pay; null when no charge can be paid.")
    ]

    @classmethod
    def of_detail(
        cls,
        detail: InvoiceDetail,
        attempts: Sequence[PricingAttempt] = (),
        *,
        charges: Sequence[ShownCharge] = (),
        refunds: Sequence[RefundRequest] = (),
        pay_url: str | None = None,
    ) -> Self:
        payable = next((charge for charge in charges if charge.stage in PAYABLE), None)
        return cls.of(
            detail.invoice,
            pay_url=pay_url,
            items=[InvoiceItemView.of(item) for item in detail.items],
            payments=[PaymentEntryView.of(entry) for entry in detail.payments],
            payment_count=detail.payment_count,
            refunds=[RefundView.of(refund) for refund in refunds],
            pricing_attempts=[PricingAttemptView.from_attributes(attempt) for attempt in attempts],
            charges=[ChargeView.of(charge) for charge in charges],
            payment=None if payable is None else PayDataView.of(payable.pay, pay_url=pay_url),
        )


class RetriedView(View):
    """The result of retry-pricing."""

    retried: Annotated[Count, Meta(description="Pending items whose price was requested.")]
