"""Plans, and the answer of propagation, which moves subscribers to a plan's current version (spec 2.3, D-23)."""

from collections.abc import Sequence
from typing import Annotated, Any, Self
from uuid import UUID

from msgspec import Meta

from fatura.domain.offer import MAX_DISCOUNTS, MAX_INSTALLMENTS, MAX_ITEMS, OfferItem, PaymentMethod, Plan
from fatura.domain.propagation import SKIPPED_SHOWN, Propagation, PropagationStatus, SkipReason
from fatura.views.view import Count, Id, Instant, Ordinal, PageView, Percent, TotalCents, View, instant


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
        int,
        Meta(
            ge=1,
            le=MAX_INSTALLMENTS,
            description="Highest number of card installments; 1: a single payment.",
        ),
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
    """A subscription that was not moved."""

    subscription_id: Id
    reason: Annotated[
        SkipReason,
        Meta(
            description="`gateway_connection_inactive`: its connection is inactive or issues no charges; "
            "`payment_method_unsupported`, `installments_unsupported`, `amount_unsupported`: the connection cannot "
            "bill its terms; `failed`: an unexpected error, which the engine's log shows."
        ),
    ]


class PropagationView(View):
    """The result of moving a plan's subscribers, or of a dry run (D-23)."""

    version: Annotated[Ordinal, Meta(description="The version to which the subscribers move.")]
    moved: Annotated[
        Count, Meta(description="Subscribers moved; those already on the version are not counted.")
    ]
    skipped_count: Annotated[Count, Meta(description="Subscribers that could not be moved.")]
    skipped: Annotated[
        list[SkippedSubscriptionView],
        Meta(
            max_length=SKIPPED_SHOWN, description=f"The first {SKIPPED_SHOWN:,} of these subscribers, by id."
        ),
    ]
    next_cycle_cents_before: Annotated[
        TotalCents,
        Meta(
            description="Total of the moved subscribers' next invoices under their old terms, without variable items."
        ),
    ]
    next_cycle_cents_after: Annotated[TotalCents, Meta(description="The same total under the new terms.")]

    @classmethod
    def of(
        cls,
        *,
        version: int,
        moved: int,
        skipped_count: int,
        skipped: Sequence[tuple[UUID, SkipReason]],
        cents_before: int,
        cents_after: int,
        **more: Any,
    ) -> Self:
        return cls(
            version=version,
            moved=moved,
            skipped_count=skipped_count,
            skipped=[
                SkippedSubscriptionView(subscription_id=str(subscription_id), reason=reason)
                for subscription_id, reason in skipped
            ],
            next_cycle_cents_before=cents_before,
            next_cycle_cents_after=cents_after,
            **more,
        )

    @classmethod
    def of_stored(cls, stored: Propagation, skipped: Sequence[tuple[UUID, SkipReason]], **more: Any) -> Self:
        return cls.of(
            version=stored.version,
            moved=stored.moved,
            skipped_count=stored.skipped,
            skipped=skipped,
            cents_before=stored.cents_before,
            cents_after=stored.cents_after,
            **more,
        )


class PropagationProgressView(PropagationView):
    """A plan's newest propagation, and what it has done so far (D-54)."""

    id: Id
    status: Annotated[
        PropagationStatus,
        Meta(
            description="`running`: subscribers still move; `done`: all were moved or skipped; "
            "`replaced`: a later propagation moves the others."
        ),
    ]
    from_version: Annotated[
        Ordinal | None, Meta(description="Version whose subscribers move; null: those of all older versions.")
    ]
    created_at: Instant
    ended_at: Annotated[Instant | None, Meta(description="null while running.")]

    @classmethod
    def of_progress(cls, stored: Propagation, skipped: Sequence[tuple[UUID, SkipReason]]) -> Self:
        return cls.of_stored(
            stored,
            skipped,
            id=str(stored.propagation_id),
            status=stored.status,
            from_version=stored.from_version,
            created_at=instant(stored.created_at),
            ended_at=instant(stored.ended_at),
        )
