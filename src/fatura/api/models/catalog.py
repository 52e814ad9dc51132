"""Products and plans as answered (spec 2.2, 2.3)."""

from pydantic import Field

from fatura.api.http.fields import PeriodMonths
from fatura.api.models.shared import Shown, ShownCents, ShownId, ShownInstant, ShownRef
from fatura.domain.endpoint_url import MAX_CHARS
from fatura.domain.offer import MAX_DISCOUNTS, MAX_INSTALLMENTS, MAX_ITEMS, PaymentMethod
from fatura.domain.pricing import PricingOutcome
from fatura.domain.product import PricingMode


class PricingTest(Shown):
    """What a live call to the product's price endpoint would have come to (spec 4.2)."""

    outcome: PricingOutcome
    amountCents: ShownCents | None = Field(description="Value returned, when `ok`.")
    description: str | None = Field(max_length=300, description="Description returned.")
    responseStatus: int | None = Field(
        description="HTTP status; null when there was no response.", examples=[200]
    )
    latencyMs: int = Field(ge=0, examples=[84])
    responseBody: str | None = Field(
        description="Raw response body, at most 64 KiB.", examples=['{"amount":1250}']
    )


class Product(Shown):
    """A catalog product (spec 2.2)."""

    id: ShownId
    name: str = Field(
        min_length=1, max_length=120, description="Name the subscriber reads.", examples=["Hosting"]
    )
    description: str | None = Field(max_length=500, description="Internal description.")
    externalRef: ShownRef | None = Field(description="The client's own id; need not be unique.")
    pricingMode: PricingMode = Field(description="How the price is defined; immutable.")
    monthlyPriceCents: ShownCents | None = Field(description="Monthly price; null for `endpoint` products.")
    endpointUrl: str | None = Field(
        max_length=MAX_CHARS,
        description="Price endpoint; null for `fixed` products.",
        examples=["https://merchant.example/price"],
    )
    capCents: ShownCents | None = Field(description="Ceiling of a charge; null for `fixed` products.")
    archivedAt: ShownInstant | None = Field(
        description="null is active; archived products enter no new plan."
    )
    createdAt: ShownInstant


class Discount(Shown):
    """One rule of a discount schedule: the first that covers a cycle applies, rules never stack (spec 2.3)."""

    percent: int = Field(ge=1, le=100, examples=[20])
    fromCycle: int = Field(ge=1, description="First cycle (cycle = invoice).", examples=[1])
    toCycle: int | None = Field(ge=1, description="Last cycle; null is no end.", examples=[3])


class PlanItem(Shown):
    """One product of a plan."""

    productId: ShownId
    position: int = Field(ge=0, lt=MAX_ITEMS, description="Place in the plan, counted from 0.", examples=[0])
    discounts: list[Discount] = Field(max_length=MAX_DISCOUNTS, description="In order of priority.")


class PlanSummary(Shown):
    """A plan without its items, as lists show it (spec 2.3)."""

    id: ShownId
    name: str = Field(min_length=1, max_length=120, examples=["Pro, monthly"])
    version: int = Field(
        ge=1, description="Every edit makes a new one; subscribers stay on theirs.", examples=[1]
    )
    periodMonths: PeriodMonths = Field(description="Months of a cycle.", examples=[1])
    defaultPaymentMethod: PaymentMethod = Field(description="Method of new subscribers.")
    maxInstallments: int = Field(
        ge=1, le=MAX_INSTALLMENTS, description="1 is a single payment.", examples=[1]
    )
    commitmentCycles: int | None = Field(ge=1, description="Recorded only; null is none.", examples=[12])
    archivedAt: ShownInstant | None = Field(
        description="null is active; archived plans take no new subscriber."
    )
    createdAt: ShownInstant


class Plan(PlanSummary):
    """A plan with its items (spec 2.3)."""

    items: list[PlanItem] = Field(min_length=1, max_length=MAX_ITEMS)
