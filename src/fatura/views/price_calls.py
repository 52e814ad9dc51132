"""The request of a price call, and the answer that a price endpoint gives (spec 4.7)."""

from datetime import date
from typing import Annotated, Self

from msgspec import UNSET, Meta, UnsetType

from fatura.domain.pricing import MAX_DESCRIPTION_CHARS, CallMode
from fatura.views.view import Count, Ordinal, View


class PriceReferenceView(View):
    """A resource, named by your own id, or by ours where it has none."""

    external_ref: str


class PricePeriodView(View):
    """The period that the price is for; both days are included."""

    start: date
    end: date


class PriceRequestView(View):
    """The body that is posted to a price endpoint; the same bytes are signed and stored (spec 4.7)."""

    version: Annotated[int, Meta(extra_json_schema={"const": 1})]
    mode: Annotated[CallMode, Meta(description="`test` for a call that bills nothing.")]
    pricing_request_id: Annotated[
        str, Meta(description="Same for every retry of the call: answer a repeat with the same amount.")
    ]
    product: PriceReferenceView
    subscription: PriceReferenceView
    customer: PriceReferenceView
    period: PricePeriodView
    cycle: Ordinal
    currency: Annotated[str, Meta(description="ISO 4217.")]

    @classmethod
    def of(
        cls,
        mode: CallMode,
        *,
        pricing_request_id: str,
        product_ref: str,
        subscription_ref: str,
        customer_ref: str,
        period_start: date,
        period_end: date,
        cycle: int,
        currency: str,
    ) -> Self:
        return cls(
            version=1,
            mode=mode,
            pricing_request_id=pricing_request_id,
            product=PriceReferenceView(external_ref=product_ref),
            subscription=PriceReferenceView(external_ref=subscription_ref),
            customer=PriceReferenceView(external_ref=customer_ref),
            period=PricePeriodView(start=period_start, end=period_end),
            cycle=cycle,
            currency=currency,
        )


class PriceAnswerView(View):
    """The answer of a price endpoint: an amount, or `skip: true` to charge nothing in this cycle (D-30)."""

    amount: Annotated[Count, Meta(description="Amount in cents; required unless skipped.")] | UnsetType = (
        UNSET
    )
    description: (
        Annotated[
            str,
            Meta(
                description=f"Text that the subscriber reads; {MAX_DESCRIPTION_CHARS} characters of it are kept."
            ),
        ]
        | UnsetType
    ) = UNSET
    skip: bool | UnsetType = UNSET
