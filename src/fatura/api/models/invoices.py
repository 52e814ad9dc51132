"""Invoices, their items and pricing attempts as answered (spec 2.5)."""

from pydantic import Field

from fatura.api.models.shared import Shown, ShownCents, ShownDay, ShownId, ShownInstant, ShownTotalCents
from fatura.api.models.subscriptions import Customer
from fatura.domain.invoice import PricingSource, PricingStatus
from fatura.domain.invoice_states import InvoiceStatus
from fatura.domain.offer import MAX_INSTALLMENTS, PaymentMethod
from fatura.domain.pricing import PricingOutcome


class IssueFailure(Shown):
    """Why an invoice is not issued until a person acts (D-34)."""

    code: str = Field(description="Stable code of the reason.", examples=["invalid_document"])
    detail: str = Field(
        description="The reason in words, often the gateway's.",
        examples=["The payer's document is not valid."],
    )
    at: ShownInstant


class InvoiceSummary(Shown):
    """An invoice without items and attempts, as lists show it (spec 2.5)."""

    id: ShownId
    subscriptionId: ShownId
    customer: Customer = Field(description="The subscription's customer, as it is now.")
    cycle: int = Field(ge=1, description="The first invoice is cycle 1.", examples=[1])
    status: InvoiceStatus
    dueDate: ShownDay
    paymentMethod: PaymentMethod
    installments: int | None = Field(
        ge=2,
        le=MAX_INSTALLMENTS,
        description="null for single payments and methods other than card.",
        examples=[3],
    )
    totalCents: ShownTotalCents | None = Field(description="null while an item awaits its value.")
    gatewayInvoiceId: str | None = Field(description="The charge's id in the gateway.", examples=["ch_0001"])
    issuedAt: ShownInstant | None = Field(description="When the gateway confirmed the charge.")
    paidAt: ShownInstant | None = Field(description="When the payment was confirmed.")
    refundedAt: ShownInstant | None = Field(description="When the gateway first reported a refund.")
    disputedAt: ShownInstant | None = Field(description="When the gateway first reported a dispute.")
    canceledAt: ShownInstant | None = Field(description="When it was canceled.")
    issueError: IssueFailure | None = Field(
        description="Why a `ready` invoice waits for `retry-issuance`; null otherwise."
    )
    createdAt: ShownInstant = Field(description="When it was generated.")


class InvoiceItem(Shown):
    """One line of an invoice, frozen at generation (spec 2.5)."""

    id: ShownId
    productId: ShownId
    productName: str = Field(description="Name frozen at generation.", examples=["Hosting"])
    pricingSource: PricingSource = Field(
        description="`table`: fixed price with the plan's discounts; `endpoint`: asked from the client; "
        "`manual`: entered by hand."
    )
    pricingStatus: PricingStatus = Field(
        description="`pending`: awaits its value; `priced`: closed and frozen; `skipped`: not charged this cycle."
    )
    months: int = Field(ge=1, le=12, description="Months covered.", examples=[1])
    monthlyPriceCents: ShownCents | None = Field(description="Frozen; null on variable items.")
    discountPercent: int | None = Field(ge=1, le=100, description="null is none.", examples=[20])
    amountCents: ShownTotalCents | None = Field(description="null while pending, and when skipped.")
    description: str | None = Field(max_length=300, description="Line the subscriber reads.")


class PricingAttempt(Shown):
    """One call to a price endpoint (spec 2.5)."""

    itemId: ShownId
    attempt: int = Field(ge=1, description="Counts the calls for one item.", examples=[1])
    url: str = Field(description="URL called.", examples=["https://merchant.example/price"])
    outcome: PricingOutcome
    responseStatus: int | None = Field(
        description="HTTP status; null when there was no response.", examples=[200]
    )
    latencyMs: int | None = Field(ge=0, examples=[84])
    responseBody: str | None = Field(description="Raw response body.", examples=['{"amount":1250}'])
    createdAt: ShownInstant


class Invoice(InvoiceSummary):
    """An invoice with its items and pricing attempts (spec 2.5)."""

    items: list[InvoiceItem]
    pricingAttempts: list[PricingAttempt]


class Retried(Shown):
    """What retry-pricing did."""

    retried: int = Field(ge=0, description="Pending items that were asked for.", examples=[1])
