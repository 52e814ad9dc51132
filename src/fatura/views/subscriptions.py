"""Subscriptions, their cancellation and the preview of their next invoice (spec 2.4, 4.4)."""

from collections.abc import Sequence
from datetime import date
from typing import Annotated, Any, Literal, Self
from uuid import UUID

from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import replace

from fatura.domain.invoice import InvoiceDraft, ItemDraft, PricingSource, PricingStatus
from fatura.domain.offer import PaymentMethod
from fatura.domain.subscription import (
    Commitment,
    PaymentMethodSource,
    Subscription,
    SubscriptionStatus,
    TermsChange,
    TermsReason,
)
from fatura.views.customers import CustomerView
from fatura.views.invoices import Installments, Months
from fatura.views.view import (
    Cents,
    Count,
    ExternalRef,
    Id,
    Instant,
    ListView,
    Ordinal,
    PageView,
    Percent,
    TotalCents,
    View,
    instant,
)

VARIABLE_NOTE = "The value will be asked from the product's price endpoint when the invoice is generated."


class SubscriptionWarningView(View):
    """Something that the request did although it is often a mistake (D-254)."""

    code: Literal["already_subscribed"]
    detail: str
    subscription_ids: Annotated[
        list[Id], Meta(description="The customer's other active subscriptions to the plan, at most ten.")
    ]


class SubscriptionView(View):
    """The subscription of a customer to a plan (spec 2.4)."""

    id: Id
    external_ref: Annotated[ExternalRef | None, Meta(description="Your own id of the subscription.")]
    plan_id: Id
    plan_version: Annotated[Ordinal, Meta(description="The plan's version that bills the subscription.")]
    customized: Annotated[bool, Meta(description="true when the subscription has terms of its own.")]
    customer: CustomerView
    status: SubscriptionStatus
    charge_day: Annotated[int, Meta(ge=1, le=28, description="Day of the month on which invoices are due.")]
    payment_method: Annotated[PaymentMethod, Meta(description="Payment method of its invoices.")]
    payment_method_source: Annotated[
        PaymentMethodSource, Meta(description="Whether the method is the plan's or the subscription's own.")
    ]
    gateway_connection_id: Annotated[
        Id | None,
        Meta(description="Connection that charges the invoices, fixed at creation; only a move changes it."),
    ]
    cycle_count: Annotated[
        Count, Meta(description="Cycle of the newest invoice; `startCycle` - 1 before the first invoice.")
    ]
    commitment_cycles: Annotated[
        Ordinal | None, Meta(description="Commitment in cycles, recorded only; null when there is none.")
    ]
    next_due_date: Annotated[
        date,
        Meta(
            description="Due date of the next invoice, which is generated three days before. The period that this "
            "invoice covers begins on this day. Only the first invoice may differ: without `chargeDay` and "
            "`firstChargeDate`, its period begins on the day of the creation, and it is due three days later."
        ),
    ]
    started_at: Instant
    canceled_at: Annotated[Instant | None, Meta(description="null while active.")]
    warnings: (
        Annotated[
            list[SubscriptionWarningView],
            Meta(
                description="Only in the answer of `POST /v1/subscriptions`, and only if the customer already had an "
                "active subscription to this plan. Nothing was refused: cancel one of them if this was a mistake."
            ),
        ]
        | UnsetType
    ) = UNSET

    def with_warning(self, others: Sequence[UUID]) -> Self:
        """Return a copy that names the customer's other active subscriptions to the plan."""
        return replace(
            self,
            warnings=[
                SubscriptionWarningView(
                    code="already_subscribed",
                    detail="The customer already has an active subscription to this plan and will pay for both. If "
                    "this was a mistake, cancel one with POST /v1/subscriptions/{subscriptionId}/cancel.",
                    subscription_ids=list(map(str, others)),
                )
            ],
        )

    @classmethod
    def of(cls, subscription: Subscription, **more: Any) -> Self:
        connection_id = subscription.connection_id
        return cls(
            id=str(subscription.subscription_id),
            external_ref=subscription.external_ref,
            plan_id=str(subscription.plan_id),
            plan_version=subscription.plan_version,
            customized=subscription.customized,
            customer=CustomerView.of(subscription.customer),
            status=subscription.status,
            charge_day=subscription.charge_day,
            payment_method=subscription.payment_method,
            payment_method_source=subscription.payment_method_source,
            gateway_connection_id=None if connection_id is None else str(connection_id),
            cycle_count=subscription.cycle_count,
            commitment_cycles=subscription.commitment_cycles,
            next_due_date=subscription.next_due_date,
            started_at=instant(subscription.started_at),
            canceled_at=instant(subscription.canceled_at),
            **more,
        )


class SubscriptionPageView(PageView[SubscriptionView]):
    """A page of subscriptions, newest first."""


class CommitmentView(View):
    """The commitment of a canceled subscription; recorded, never enforced (spec 4.4)."""

    cycles: Annotated[Ordinal | None, Meta(description="Agreed cycles; null when there is no commitment.")]
    completed: Annotated[Count, Meta(description="`cycleCount` at the cancellation.")]
    fulfilled: bool


class CanceledSubscriptionView(SubscriptionView, kw_only=True):
    """A canceled subscription with its commitment (spec 4.4)."""

    commitment: CommitmentView

    @classmethod
    def with_commitment(cls, subscription: Subscription, commitment: Commitment) -> Self:
        return cls.of(subscription, commitment=CommitmentView.from_attributes(commitment))


class TermsChangeView(View):
    """The terms that apply to a subscription from a cycle on (D-54)."""

    from_cycle: Annotated[Ordinal, Meta(description="First cycle that these terms bill.")]
    plan_id: Id
    plan_version: Ordinal
    customized: Annotated[bool, Meta(description="true when the terms are the subscription's own.")]
    changed_at: Instant
    reason: Annotated[
        TermsReason,
        Meta(
            description="`enrolled`: the subscription was created; `customized`: it got terms of its own; "
            "`propagated`: it moved to another version of its plan."
        ),
    ]

    @classmethod
    def of(cls, change: TermsChange) -> Self:
        return cls.from_attributes(change)


class TermsHistoryView(ListView[TermsChangeView]):
    """The changes of a subscription's terms, oldest first (D-54)."""


class PreviewItemView(View):
    """An invoice item as the billing run would build it now."""

    product_id: Id
    product_name: str
    pricing_source: PricingSource
    pricing_status: PricingStatus
    monthly_price_cents: Annotated[Cents | None, Meta(description="null on variable items.")]
    months: Months
    discount_percent: Annotated[Percent | None, Meta(description="null when there is no discount.")]
    amount_cents: Annotated[TotalCents | None, Meta(description="null on variable items.")]
    note: Annotated[str | None, Meta(description="How the value of a variable item is obtained.")]

    @classmethod
    def of(cls, item: ItemDraft) -> Self:
        note = None if item.pricing_source is PricingSource.TABLE else VARIABLE_NOTE
        return cls.from_attributes(item, note=note)


class PreviewView(View):
    """The next invoice as the billing run would build it now; nothing is stored (spec 4.4)."""

    subscription_id: Id
    cycle: Annotated[Ordinal, Meta(description="The next cycle.")]
    due_date: date
    payment_method: PaymentMethod
    installments: Installments
    fixed_total_cents: Annotated[TotalCents, Meta(description="Sum of the fixed items.")]
    has_pending_items: Annotated[bool, Meta(description="true when there is a variable item.")]
    items: list[PreviewItemView]

    @classmethod
    def of(cls, subscription: Subscription, draft: InvoiceDraft) -> Self:
        return cls.from_attributes(
            draft,
            subscription_id=str(subscription.subscription_id),
            due_date=subscription.next_due_date,
            items=[PreviewItemView.of(item) for item in draft.items],
        )
