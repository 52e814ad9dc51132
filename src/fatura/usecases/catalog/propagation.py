"""Move a plan's subscribers to its current version, or show in a dry run what would change (D-23)."""

from collections.abc import Sequence
from uuid import UUID

from fatura.domain.errors import NOT_FOUND, PLAN_ARCHIVED, EngineError
from fatura.domain.invoice import build
from fatura.domain.offer import PaymentMethod, Plan
from fatura.domain.propagation import SkipReason, skip_reason
from fatura.domain.subscription import PaymentMethodSource
from fatura.store.catalog import plans, propagation
from fatura.store.catalog.propagation import PaymentRoute, Propagation, SubscriberGroup
from fatura.usecases.catalog.plans import account_connections, lock_plan
from fatura.usecases.transaction import Work
from fatura.views.plans import PropagationView, SkippedSubscriptionView


async def propagate(
    work: Work, plan_id: UUID, *, dry_run: bool, from_version: int | None = None
) -> PropagationView:
    """Move active subscribers without private terms to the current version from their next cycle on (D-23).

    A subscription that does not override the payment method also gets the new default method.
    The plan is locked first, then its subscribers. Until the commit, nobody can subscribe to the plan or publish a
    version, and no moved subscription is billed, so no invoice mixes old and new terms. A dry run locks no
    subscriber and writes nothing.
    Raises EngineError: `engine.not_found` for the plan or its `from_version`; `engine.plan_archived`.
    """
    plan = await _locked_plan(work, plan_id, dry_run=dry_run, from_version=from_version)
    move = Propagation(plan_id, plan.plan_version_id, plan.version, from_version)
    locked = None if dry_run else await propagation.lock(work.tx, move)
    groups = await propagation.groups(work.tx, move)
    assert locked in {None, sum(group.subscribers for group in groups)}, "locked subscribers do not change"
    reasons = await _reasons(work, plan, groups)
    moving = [group for group in groups if reasons[group.route] is None]
    moved = sum(group.subscribers for group in moving)
    refused = [(route, reason) for route, reason in reasons.items() if reason is not None]
    skipped = await propagation.skipped(work.tx, move, refused)
    before, after = await _next_cycle_cents(work, plan, moving)
    if moving and not dry_run:
        methods = [(route, _method_after(route, plan)) for route in {group.route for group in moving}]
        pinned = await propagation.pin(work.tx, move, methods)
        assert pinned == moved, (pinned, moved)
    return PropagationView(
        version=plan.version,
        moved=moved,
        skipped=[
            SkippedSubscriptionView(subscription_id=str(subscription_id), reason=SkipReason(reason))
            for subscription_id, reason in skipped
        ],
        next_cycle_cents_before=before,
        next_cycle_cents_after=after,
    )


async def _locked_plan(work: Work, plan_id: UUID, *, dry_run: bool, from_version: int | None) -> Plan:
    plan = await lock_plan(work, plan_id, for_share=dry_run)
    if from_version is not None and from_version > plan.version:
        raise EngineError(
            NOT_FOUND, f"The plan has no version {from_version}; its current one is {plan.version}."
        )
    if plan.archived_at is not None:
        raise EngineError(
            PLAN_ARCHIVED,
            "The plan is archived: its subscribers keep their terms; customize those that need others.",
        )
    return plan


def _method_after(route: PaymentRoute, plan: Plan) -> PaymentMethod:
    """Return the payment method under the new terms: the subscriber's override, or else the new default."""
    return route.method if route.source is PaymentMethodSource.OVERRIDE else plan.default_payment_method


async def _reasons(
    work: Work, plan: Plan, groups: Sequence[SubscriberGroup]
) -> dict[PaymentRoute, SkipReason | None]:
    """Return for each payment route why its connection cannot charge under the new terms, or None if it can."""
    connections = {each.connection_id: each for each in await account_connections(work)}
    return {
        route: skip_reason(
            connections[route.connection_id],
            _method_after(route, plan),
            max_installments=plan.max_installments,
        )
        for route in dict.fromkeys(group.route for group in groups)
    }


async def _next_cycle_cents(work: Work, plan: Plan, groups: Sequence[SubscriberGroup]) -> tuple[int, int]:
    """Return the total of all next invoices under the old and under the new terms, excluding variable items."""
    terms = await plans.billing_terms(
        work.tx, {plan.plan_version_id, *(group.plan_version_id for group in groups)}
    )
    new_terms = terms[plan.plan_version_id]
    before = after = 0
    for group in groups:
        cycle = group.cycle_count + 1
        old = build(terms[group.plan_version_id], cycle=cycle, method=group.route.method)
        new = build(new_terms, cycle=cycle, method=_method_after(group.route, plan))
        before += group.subscribers * old.fixed_total_cents
        after += group.subscribers * new.fixed_total_cents
    return before, after
