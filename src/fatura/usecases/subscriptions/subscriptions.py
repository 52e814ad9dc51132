"""Subscribe customers to plans; read, preview, customize and cancel subscriptions (spec 4.4)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from typing import Any
from uuid import UUID

import msgspec

from fatura.domain.calendar import first_cycle, generation_instant, latest_first_charge
from fatura.domain.connection import Connection, check_minimums, check_support, choose, installments_of
from fatura.domain.errors import PLAN_ARCHIVED, EngineError, invalid_fields, require
from fatura.domain.filters import SubscriptionFilter
from fatura.domain.invoice import amounts_by_cycle, build, lowest_charge_cents
from fatura.domain.offer import PaymentMethod, Terms
from fatura.domain.subscription import (
    Customer,
    PaymentMethodSource,
    Subscription,
    SubscriptionStatus,
    TermsReason,
    check_active,
    commitment,
    effective_method,
)
from fatura.store import counters
from fatura.store.catalog import plans
from fatura.store.connections import connections
from fatura.store.subscriptions import subscriptions, terms_history
from fatura.usecases.catalog.plans import (
    account_connections,
    check_product_ids,
    check_terms,
    drop_private_terms,
    lock_plan,
    store_version,
    uncount_private_terms,
)
from fatura.usecases.paging import Page
from fatura.usecases.subscriptions.customers import CustomerInput, create_or_reuse
from fatura.usecases.transaction import LaneName, Work
from fatura.views.events import SubscriptionCanceledDataView, SubscriptionDataView
from fatura.views.plans import PlanView
from fatura.views.subscriptions import (
    CanceledSubscriptionView,
    PreviewView,
    SubscriptionPageView,
    SubscriptionView,
    TermsChangeView,
    TermsHistoryView,
)

MAX_SHOWN_CHANGES = 1000
MAX_WARNED = 10


@dataclass(frozen=True, slots=True)
class Enrollment:
    """The body of POST /v1/subscriptions (spec 4.4)."""

    plan_id: UUID
    customer: CustomerInput
    external_ref: str | None
    payment_method: PaymentMethod | None
    charge_day: int | None
    first_charge_date: date | None
    start_cycle: int
    connection_id: UUID | None


async def create(work: Work, enrollment: Enrollment) -> SubscriptionView:
    """Subscribe a customer to the plan's current version (spec 4.4, D-3, D-58).

    Raises EngineError: `engine.invalid_request` (firstChargeDate), `engine.not_found`, `engine.plan_archived`,
    `engine.gateway_choice_required`, `engine.gateway_connection_not_found`, `engine.payment_method_unsupported`,
    `engine.installments_unsupported`, `engine.amount_unsupported`, `engine.customer_erased`.
    """
    _check_first_charge(enrollment.first_charge_date, today=work.today)
    plan = await lock_plan(work, enrollment.plan_id, for_share=True)
    if plan.archived_at is not None:
        raise EngineError(
            PLAN_ARCHIVED, "The plan is archived and takes no new subscription; choose another plan."
        )
    connection = choose(await account_connections(work), enrollment.connection_id)
    method, source = effective_method(plan.default_payment_method, enrollment.payment_method)
    _check_pinned(connection, method, plan.max_installments)
    await _check_amounts(work, connection, method, plan.plan_version_id, from_cycle=enrollment.start_cycle)
    cycle = first_cycle(
        work.today, charge_day=enrollment.charge_day, first_charge_date=enrollment.first_charge_date
    )
    await connections.keep_moves_running(work.tx, connection.connection_id)
    # `keep_moves_running` may have waited for a move from the connection to end. Read the clock again, because the
    # subscription must begin after that move (D-160).
    await work.refresh()
    customer, is_new = await create_or_reuse(work, enrollment.customer)
    others: Sequence[UUID] = () if is_new else await _other_subscriptions(work, customer, plan.plan_id)
    subscription = Subscription(
        subscription_id=work.new_id(),
        external_ref=enrollment.external_ref,
        plan_id=plan.plan_id,
        plan_version_id=plan.plan_version_id,
        plan_version=plan.version,
        customized=False,
        customer=customer,
        status=SubscriptionStatus.ACTIVE,
        charge_day=cycle.charge_day,
        payment_method=method,
        payment_method_source=source,
        connection_id=connection.connection_id,
        start_cycle=enrollment.start_cycle,
        cycle_count=enrollment.start_cycle - 1,
        commitment_cycles=plan.commitment_cycles,
        next_period_start=cycle.period_start,
        next_due_date=cycle.due_date,
        started_at=work.now,
        canceled_at=None,
    )
    generate_at = max(generation_instant(cycle.due_date), work.now)
    await subscriptions.insert(work.tx, subscription, generate_at=generate_at)
    await _append_to_history(work, subscription, TermsReason.ENROLLED)
    work.totals["subscriptions_active"] += 1
    data = SubscriptionDataView.of(subscription)
    work.emit("subscription.created", data, subscription_id=subscription.subscription_id)
    work.audit(subscription.subscription_id, after=data.subscription)
    work.notify(LaneName.GENERATION)
    return data.subscription.with_warning(others) if others else data.subscription


async def _other_subscriptions(work: Work, customer: Customer, plan_id: UUID) -> Sequence[UUID]:
    """Return up to MAX_WARNED active subscriptions of the customer to this plan, to warn the merchant (D-254)."""
    return await subscriptions.active_of(work.tx, customer.customer_id, plan_id=plan_id, limit=MAX_WARNED)


def _check_first_charge(first_charge_date: date | None, *, today: date) -> None:
    """Check that a subscription created today may have this first charge date.

    A repeated request is not checked: it gets its stored answer (D-14).
    """
    latest = latest_first_charge(today)
    if first_charge_date is not None and not today <= first_charge_date <= latest:
        raise invalid_fields(("firstChargeDate", f"must lie between {today} (today) and {latest}"))


def _check_pinned(connection: Connection, method: PaymentMethod, max_installments: int) -> None:
    """Check that the connection supports the payment method and the installments (spec 4.4 gateway rule 5, D-20)."""
    check_support(method, max_installments if method is PaymentMethod.CARD else 1, connections=connection)


async def _check_amounts(
    work: Work, connection: Connection, method: PaymentMethod, plan_version_id: UUID, *, from_cycle: int
) -> None:
    """Check that the connection supports the amounts of a subscription's cycles, as far as they are known (D-49)."""
    if not connection.has_minimums:
        return
    terms = (await plans.billing_terms(work.tx, [plan_version_id]))[plan_version_id]
    lowest_cents = lowest_charge_cents(amounts_by_cycle(terms), from_cycle=from_cycle)
    check_minimums(connection, lowest_cents, installments=installments_of(method, terms.max_installments))


async def read(work: Work, subscription_id: UUID) -> SubscriptionView:
    """Return a subscription. Raises EngineError: `engine.not_found`."""
    found = await subscriptions.find(work.tx, subscription_id)
    return SubscriptionView.of(require(found, "subscription", id_=subscription_id))


async def read_page(work: Work, page: Page, wanted: SubscriptionFilter) -> SubscriptionPageView:
    """Return a page of the subscriptions that match a filter, newest first (spec 4.4, D-16)."""
    if wanted == SubscriptionFilter(status=wanted.status):
        totals = await counters.totals(work.tx)
        states = [wanted.status] if wanted.status else SubscriptionStatus
        total = sum(totals[f"subscriptions_{each}"] for each in states)
    else:
        total = await subscriptions.count(work.tx, wanted)
    records = partial(subscriptions.page, work.tx, wanted)
    return await page.read(SubscriptionPageView, records, of=SubscriptionView.of, total=total)


async def read_terms(work: Work, subscription_id: UUID) -> PlanView:
    """Return a subscription's effective terms as a plan (D-22). Raises EngineError: `engine.not_found`."""
    subscription = require(
        await subscriptions.find(work.tx, subscription_id), "subscription", id_=subscription_id
    )
    plan = await plans.find_version(work.tx, subscription.plan_version_id)
    assert plan is not None, "a subscription is pinned to a version"
    return PlanView.with_items(plan, await plans.items(work.tx, subscription.plan_version_id))


async def read_terms_history(work: Work, subscription_id: UUID) -> TermsHistoryView:
    """Return the newest MAX_SHOWN_CHANGES changes of a subscription's terms, oldest first (D-54).

    Raises EngineError: `engine.not_found`.
    """
    require(await subscriptions.find(work.tx, subscription_id), "subscription", id_=subscription_id)
    changes = await terms_history.newest(work.tx, subscription_id, limit=MAX_SHOWN_CHANGES)
    return TermsHistoryView(data=[TermsChangeView.of(each) for each in changes])


async def preview(work: Work, subscription_id: UUID) -> PreviewView:
    """Return the next invoice as the billing run would build it now; nothing is stored (spec 4.4).

    Raises EngineError: `engine.not_found`, `engine.subscription_canceled`, and `engine.amount_unsupported` or
    `engine.installments_unsupported` if the gateway would refuse the invoice's amount (D-49).
    """
    subscription = require(
        await subscriptions.find(work.tx, subscription_id), "subscription", id_=subscription_id
    )
    check_active(subscription)
    version_id = subscription.plan_version_id
    terms = (await plans.billing_terms(work.tx, [version_id]))[version_id]
    draft = build(terms, cycle=subscription.cycle_count + 1, method=subscription.payment_method)
    connection = await _pinned_connection(work, subscription)
    check_minimums(connection, draft.total_cents or 0, installments=draft.installments)
    return PreviewView.of(subscription, draft)


async def cancel(work: Work, subscription_id: UUID) -> CanceledSubscriptionView:
    """Cancel a subscription permanently; existing invoices are not affected (spec 3.2, 4.4).

    Raises EngineError: `engine.not_found`, `engine.subscription_canceled`.
    """
    before, after = await cancel_unaudited(work, subscription_id)
    work.audit(subscription_id, before=SubscriptionView.of(before), after=SubscriptionView.of(after))
    return CanceledSubscriptionView.with_commitment(after, commitment(after))


async def cancel_unaudited(work: Work, subscription_id: UUID) -> tuple[Subscription, Subscription]:
    """Cancel a subscription as `cancel` does, but let the caller add the audit entry.

    Return the subscription before and after the cancellation.
    """
    subscription = require(
        await subscriptions.lock(work.tx, subscription_id), "subscription", id_=subscription_id
    )
    check_active(subscription)
    await work.refresh()
    await subscriptions.cancel(work.tx, subscription_id, canceled_at=work.now)
    canceled = replace(subscription, status=SubscriptionStatus.CANCELED, canceled_at=work.now)
    work.totals["subscriptions_active"] -= 1
    work.totals["subscriptions_canceled"] += 1
    if subscription.customized:
        await uncount_private_terms(work, subscription.plan_version_id)
    data = SubscriptionCanceledDataView.of(canceled, commitment(canceled))
    work.emit("subscription.canceled", data, subscription_id=subscription_id)
    return subscription, canceled


async def customize(
    work: Work, subscription_id: UUID, terms: Terms, *, commitment_given: bool
) -> SubscriptionView:
    """Replace a subscription's terms by private ones, from its next cycle on (spec 4.4, D-6, D-22).

    Raises EngineError: `engine.not_found`, `engine.product_archived`, `engine.subscription_canceled`,
    `engine.discount_on_variable_product`, `engine.payment_method_unsupported`, `engine.installments_unsupported`,
    `engine.amount_unsupported`. `Work.finish` raises `engine.quota_exceeded`.
    """
    subscription = require(
        await subscriptions.lock(work.tx, subscription_id), "subscription", id_=subscription_id
    )
    pinned = await _check_customizable(work, subscription, terms)
    await work.refresh()
    method = subscription.payment_method
    if subscription.payment_method_source is PaymentMethodSource.PLAN_DEFAULT:
        method = terms.default_payment_method
    cycles = terms.commitment_cycles if commitment_given else subscription.commitment_cycles
    base = await plans.find_version(work.tx, subscription.plan_version_id)
    assert base is not None, "a subscription is pinned to a version"
    private = replace(base, plan_version_id=work.new_id(), version=subscription.plan_version)
    private_terms = replace(terms, commitment_cycles=cycles)
    await store_version(work, private, private_terms, subscription_id=subscription_id)
    await _check_amounts(
        work, pinned, method, private.plan_version_id, from_cycle=subscription.cycle_count + 1
    )
    customized = replace(
        subscription,
        plan_version_id=private.plan_version_id,
        customized=True,
        payment_method=method,
        commitment_cycles=cycles,
    )
    await subscriptions.pin_private_terms(work.tx, customized)
    await _append_to_history(work, customized, TermsReason.CUSTOMIZED)
    data = SubscriptionDataView.of(customized)
    work.emit("subscription.customized", data, subscription_id=subscription_id)
    replaced = PlanView.with_items(base, await plans.items(work.tx, base.plan_version_id))
    if subscription.customized:
        await drop_private_terms(work, replaced, base.plan_version_id)
    work.audit(
        subscription_id,
        before=_with_terms(SubscriptionView.of(subscription), replaced),
        after=_with_terms(data.subscription, PlanView.with_items(private, terms.items)),
    )
    return data.subscription


def _with_terms(subscription: SubscriptionView, terms: PlanView) -> Mapping[str, Any]:
    """Return the state of a subscription, including its terms, for the audit log."""
    return msgspec.to_builtins(subscription) | {"terms": msgspec.to_builtins(terms)}


async def _append_to_history(work: Work, changed: Subscription, reason: TermsReason) -> None:
    await terms_history.append(work.tx, [changed.subscription_id], reason=reason, changed_at=work.now)


async def _check_customizable(work: Work, subscription: Subscription, terms: Terms) -> Connection:
    """Check the terms, and that the subscription's connection can charge under them (spec 4.4 gateway rule 5).

    Return the connection.
    """
    await check_product_ids(work, terms)
    check_active(subscription)
    pinned = replace(await _pinned_connection(work, subscription), active=True)
    await check_terms(work, terms, pinned)
    if subscription.payment_method_source is PaymentMethodSource.OVERRIDE:
        _check_pinned(pinned, subscription.payment_method, terms.max_installments)
    return pinned


async def _pinned_connection(work: Work, subscription: Subscription) -> Connection:
    connections = await account_connections(work)
    return next(each for each in connections if each.connection_id == subscription.connection_id)
