"""Subscriptions, their cancellation and the preview of their next invoice as answered (spec 2.4, 4.4)."""

from typing import Literal

from pydantic import Field

from fatura.api.models.shared import (
    Shown,
    ShownCents,
    ShownDay,
    ShownId,
    ShownInstant,
    ShownRef,
    ShownTotalCents,
)
from fatura.domain.invoice import PricingSource, PricingStatus
from fatura.domain.offer import MAX_INSTALLMENTS, PaymentMethod
from fatura.domain.subscription import PaymentMethodSource, SubscriptionStatus


class Customer(Shown):
    """The customer of a subscription; the tax document is never shown."""

    id: ShownId
    externalRef: ShownRef
    name: str = Field(min_length=1, max_length=200, examples=["Ana Souza"])
    email: str = Field(json_schema_extra={"format": "email"}, examples=["ana@example.com"])


class CustomerProfile(Customer):
    """A customer on its own routes; the tax document is never shown."""

    hasDocument: bool = Field(description="Whether a tax document is known.")
    createdAt: ShownInstant


class Subscription(Shown):
    """A customer bound to a plan (spec 2.4)."""

    id: ShownId
    externalRef: ShownRef | None = Field(description="The client's own subscription id.")
    planId: ShownId
    planVersion: int = Field(ge=1, description="Version pinned at enrollment.", examples=[1])
    customized: bool = Field(description="true when it runs on terms of its own.")
    customer: Customer
    status: SubscriptionStatus
    chargeDay: int = Field(ge=1, le=28, description="Due day of the invoices.", examples=[10])
    paymentMethod: PaymentMethod = Field(description="The method that bills.")
    paymentMethodSource: PaymentMethodSource = Field(description="Where the method came from.")
    gatewayConnectionId: ShownId | None = Field(description="Connection that bills it, frozen at creation.")
    cycleCount: int = Field(ge=0, description="Invoices generated so far.", examples=[3])
    commitmentCycles: int | None = Field(
        ge=1, description="Frozen at enrollment; recorded only.", examples=[12]
    )
    nextDueDate: ShownDay
    startedAt: ShownInstant
    canceledAt: ShownInstant | None = Field(description="null while active.")


class Commitment(Shown):
    """How a canceled subscription stands to its commitment; recorded, never judged."""

    cycles: int | None = Field(ge=1, description="Agreed cycles; null is no commitment.", examples=[12])
    completed: int = Field(ge=0, description="Cycles billed up to the cancellation.", examples=[5])
    fulfilled: bool


class CanceledSubscription(Subscription):
    """The answer of a cancellation (spec 4.4)."""

    commitment: Commitment


class PreviewItem(Shown):
    """An item as the billing run would build it now."""

    productId: ShownId
    productName: str = Field(examples=["Hosting"])
    pricingSource: Literal[PricingSource.TABLE, PricingSource.ENDPOINT]
    pricingStatus: Literal[PricingStatus.PRICED, PricingStatus.PENDING]
    monthlyPriceCents: ShownCents | None = Field(description="null on variable items.")
    months: int = Field(ge=1, le=12, examples=[1])
    discountPercent: int | None = Field(ge=1, le=100, description="null is none.", examples=[20])
    amountCents: ShownTotalCents | None = Field(description="null on variable items.")
    note: str | None = Field(description="How a variable value would be resolved.")


class Preview(Shown):
    """The next invoice, as the billing run would build it now; nothing is stored (spec 4.4)."""

    subscriptionId: ShownId
    cycle: int = Field(ge=1, description="The next cycle.", examples=[4])
    dueDate: ShownDay
    paymentMethod: PaymentMethod
    installments: int | None = Field(
        ge=2,
        le=MAX_INSTALLMENTS,
        description="null for single payments and methods other than card.",
        examples=[3],
    )
    fixedTotalCents: ShownTotalCents = Field(description="Sum of the fixed items.")
    hasPendingItems: bool = Field(description="true when there is a variable item.")
    items: list[PreviewItem]
