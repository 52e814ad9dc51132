"""Plan terms in requests, shared by plans and by a subscription's own terms (spec 4.3, 4.4)."""

from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from fatura.api.http.fields import Count, Id, IntRange, PeriodMonths, refusals
from fatura.api.http.forms import Body, Examples
from fatura.domain.offer import (
    MAX_DISCOUNTS,
    MAX_INSTALLMENTS,
    MAX_ITEMS,
    Discount,
    OfferItem,
    PaymentMethod,
    Terms,
)
from fatura.views.samples.story import MEMBERSHIP


class DiscountForm(Body):
    """One rule of a discount schedule. The first rule that covers a cycle applies; rules never stack."""

    percent: Annotated[int, IntRange(1, 100), Field(description="Discount in percent.")]
    fromCycle: Annotated[Count, Field(description="First cycle of the rule; each invoice bills one cycle.")]
    toCycle: Annotated[
        Count | None, Field(description="Last cycle of the rule; without it, the rule has no end.")
    ] = None

    @model_validator(mode="after")
    def _ends_after_it_begins(self) -> Self:
        if self.toCycle is not None and self.toCycle < self.fromCycle:
            raise refusals(("toCycle", "must be at least fromCycle"))
        return self


class ItemForm(Body):
    """One product of the terms."""

    productId: Annotated[Id, Field(description="The product; an archived one is refused with 409.")]
    position: Annotated[
        int | None,
        IntRange(0, MAX_ITEMS - 1),
        Field(description="Not needed; when sent, it must be the item's place, counted from 0."),
    ] = None
    discounts: list[DiscountForm] = Field(
        default_factory=list[DiscountForm],
        max_length=MAX_DISCOUNTS,
        description="Discount schedule in order of priority; fixed prices only.",
        json_schema_extra={"default": []},
    )


class TermsForm(Body):
    """The complete terms of a plan or of a subscription."""

    examples: ClassVar[Examples] = {
        "monthly": {
            "periodMonths": 1,
            "defaultPaymentMethod": "pix",
            "items": [
                {
                    "productId": str(MEMBERSHIP.product_id),
                    "discounts": [{"percent": 20, "fromCycle": 1, "toCycle": 3}],
                }
            ],
        }
    }

    periodMonths: Annotated[PeriodMonths, Field(description="Months of a cycle.")]
    defaultPaymentMethod: Annotated[PaymentMethod, Field(description="Payment method of new subscribers.")]
    maxInstallments: Annotated[
        int,
        IntRange(1, MAX_INSTALLMENTS),
        Field(description="Highest number of card installments; 1: a single payment."),
    ] = 1
    commitmentCycles: Annotated[
        Count | None, Field(description="Commitment in cycles; recorded, never enforced.")
    ] = None
    items: Annotated[list[ItemForm], Field(min_length=1, max_length=MAX_ITEMS)]

    @model_validator(mode="after")
    def _positions_are_places(self) -> Self:
        wrong = [
            (f"items[{place}].position", f"must be {place}, the item's place")
            for place, item in enumerate(self.items)
            if item.position not in {None, place}
        ]
        if wrong:
            raise refusals(*wrong)
        return self

    def terms(self) -> Terms:
        return Terms(
            period_months=self.periodMonths,
            default_payment_method=self.defaultPaymentMethod,
            max_installments=self.maxInstallments,
            commitment_cycles=self.commitmentCycles,
            items=tuple(
                OfferItem(
                    item.productId,
                    tuple(Discount(rule.percent, rule.fromCycle, rule.toCycle) for rule in item.discounts),
                )
                for item in self.items
            ),
        )
