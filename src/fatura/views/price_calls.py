"""The request of a price call, and the answer that a price endpoint gives (spec 4.7)."""

from datetime import date
from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from fatura.domain.pricing import MAX_DESCRIPTION_CHARS, CallMode
from fatura.views.view import Count, Currency, Ordinal, View


class PriceReferenceView(View):
    """A product, subscription or customer. `externalRef` is your own id; if you gave none, it is Fatura's id."""

    external_ref: str


class PricePeriodView(View):
    """The period that the invoice covers; both days are included.

    The period begins on the due date. The period of cycle 1 can begin earlier, on the day on which the subscription
    was created. The first call comes three days before the due date, so the usage in this period is not known yet. To
    bill by usage, answer with the price of the usage since the previous cycle's call.
    """

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
    currency: Currency


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
