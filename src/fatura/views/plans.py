"""Plans, and the move of a plan's subscribers to its current version (spec 2.3, D-23)."""

from collections.abc import Sequence
from typing import Annotated, Any, Self

from msgspec import Meta

from fatura.domain.offer import MAX_DISCOUNTS, MAX_INSTALLMENTS, MAX_ITEMS, OfferItem, PaymentMethod, Plan
from fatura.domain.propagation import SkipReason
from fatura.views.view import Count, Id, Instant, Ordinal, PageView, Percent, TotalCents, View


class DiscountView(View):
    """One rule of a discount schedule. The first rule that covers a cycle applies; rules never stack (spec 2.3)."""

    percent: Percent
    from_cycle: Annotated[Ordinal, Meta(description="First cycle of the rule; each invoice bills one cycle.")]
    to_cycle: Annotated[Ordinal | None, Meta(description="Last cycle of the rule; null when it has no end.")]


class PlanItemView(View):
    """One product of a plan."""

    product_id: Id
    position: Annotated[int, Meta(ge=0, lt=MAX_ITEMS, description="Place in the plan, counted from 0.")]
    discounts: Annotated[
        list[DiscountView], Meta(max_length=MAX_DISCOUNTS, description="In order of priority.")
    ]

    @classmethod
    def of(cls, item: OfferItem, *, position: int) -> Self:
        discounts = [DiscountView.from_attributes(discount) for discount in item.discounts]
        return cls(product_id=str(item.product_id), position=position, discounts=discounts)


class PlanSummaryView(View):
    """A plan without its items, as lists show it (spec 2.3)."""

    id: Id
    name: Annotated[str, Meta(min_length=1, max_length=120)]
    version: Annotated[
        Ordinal, Meta(description="Each change makes a new version; subscribers keep the one they have.")
    ]
    period_months: Annotated[
        int, Meta(description="Months of a cycle.", extra_json_schema={"enum": [1, 3, 6, 12]})
    ]
    default_payment_method: Annotated[PaymentMethod, Meta(description="Payment method of new subscribers.")]
    max_installments: Annotated[
        int, Meta(ge=1, le=MAX_INSTALLMENTS, description="Most card installments; 1 is a single payment.")
    ]
    commitment_cycles: Annotated[
        Ordinal | None, Meta(description="Commitment in cycles, recorded only; null when there is none.")
    ]
    archived_at: Annotated[
        Instant | None, Meta(description="null while active; an archived plan takes no new subscriber.")
    ]
    created_at: Instant

    @classmethod
    def of(cls, plan: Plan, **more: Any) -> Self:
        return cls.from_attributes(plan, id=str(plan.plan_id), **more)


class PlanPageView(PageView[PlanSummaryView]):
    """A page of plans without their items, newest first."""


class PlanView(PlanSummaryView):
    """A plan with its items (spec 2.3)."""

    items: Annotated[list[PlanItemView], Meta(min_length=1, max_length=MAX_ITEMS)]

    @classmethod
    def with_items(cls, plan: Plan, items: Sequence[OfferItem]) -> Self:
        return cls.of(plan, items=[PlanItemView.of(item, position=place) for place, item in enumerate(items)])


class SkippedSubscriptionView(View):
    """A subscriber who was not moved to the current version."""

    subscription_id: Id
    reason: Annotated[
        SkipReason,
        Meta(
            description="`gateway_connection_inactive`: its connection is inactive or issues no charges; "
            "`payment_method_unsupported`, `installments_unsupported`: its connection cannot bill the new terms."
        ),
    ]


class PropagationView(View):
    """The result of moving a plan's subscribers, or of a dry run (D-23)."""

    version: Annotated[Ordinal, Meta(description="The plan's current version.")]
    moved: Annotated[
        Count, Meta(description="Subscribers moved; those already on the version are not counted.")
    ]
    skipped: Annotated[
        list[SkippedSubscriptionView], Meta(description="Subscribers that could not be moved, by id.")
    ]
    next_cycle_cents_before: Annotated[
        TotalCents,
        Meta(
            description="Total of the moved subscribers' next invoices under their old terms, without variable items."
        ),
    ]
    next_cycle_cents_after: Annotated[TotalCents, Meta(description="The same total under the new terms.")]
