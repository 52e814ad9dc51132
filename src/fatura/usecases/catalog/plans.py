"""Create, read, publish and archive plans (spec 4.3)."""

from dataclasses import replace
from datetime import datetime
from functools import partial
from uuid import UUID

from fatura.domain.connection import Connection, check_support
from fatura.domain.errors import PLAN_ARCHIVED, EngineError, not_found, require
from fatura.domain.filters import PlanFilter
from fatura.domain.offer import Plan, Terms, check_products
from fatura.store import counters
from fatura.store.catalog import plans, products
from fatura.store.connections import connections
from fatura.usecases.paging import Page
from fatura.usecases.transaction import Work
from fatura.views.plans import PlanPageView, PlanSummaryView, PlanView


async def create(work: Work, *, name: str, terms: Terms) -> PlanView:
    """Create a plan at version 1 (spec 4.3).

    Raises EngineError: `engine.not_found` or `engine.product_archived` for the product of an item,
    `engine.discount_on_variable_product`, `engine.payment_method_unsupported`, `engine.installments_unsupported`.
    `Work.finish` raises `engine.quota_exceeded`.
    """
    await check_terms(work, terms, await account_connections(work))
    plan = _plan(work, work.new_id(), name=name, version=1, terms=terms, created_at=work.now)
    await plans.insert(work.tx, plan.plan_id, created_at=work.now)
    await store_version(work, plan, terms)
    work.totals["plans"] += 1
    view = PlanView.with_items(plan, terms.items)
    work.audit(plan.plan_id, after=view)
    return view


async def publish(work: Work, plan_id: UUID, *, name: str, terms: Terms) -> PlanView:
    """Publish a new version; existing subscribers keep their version (spec 3.2, 4.3, D-19).

    Raises EngineError: `engine.not_found`, `engine.plan_archived`, and what `create` raises.
    """
    current = await lock_plan(work, plan_id)
    await check_product_ids(work, terms)
    if current.archived_at is not None:
        raise EngineError(
            PLAN_ARCHIVED, "The plan is archived and takes no new version; create another plan."
        )
    await check_terms(work, terms, await account_connections(work))
    version = current.version + 1
    plan = _plan(work, plan_id, name=name, version=version, terms=terms, created_at=current.created_at)
    await store_version(work, plan, terms)
    await plans.publish_version(work.tx, plan_id, version=plan.version)
    view = PlanView.with_items(plan, terms.items)
    replaced = PlanView.with_items(current, await plans.items(work.tx, current.plan_version_id))
    work.audit(plan_id, before=replaced, after=view)
    return view


async def read(work: Work, plan_id: UUID) -> PlanView:
    """Return a plan at its current version, with items. Raises EngineError: `engine.not_found`."""
    plan = require(await plans.find(work.tx, plan_id), "plan", id_=plan_id)
    return PlanView.with_items(plan, await plans.items(work.tx, plan.plan_version_id))


async def read_page(work: Work, page: Page, wanted: PlanFilter) -> PlanPageView:
    """Return a page of the plans that match a filter, newest first, without items (spec 4.3, D-16)."""
    if wanted == PlanFilter():
        total = (await counters.totals(work.tx))["plans"]
    else:
        total = await plans.count(work.tx, wanted)
    records = partial(plans.page, work.tx, wanted)
    return await page.read(PlanPageView, records, of=PlanSummaryView.of, total=total)


async def archive(work: Work, plan_id: UUID) -> PlanSummaryView:
    """Archive a plan: it takes no new subscriptions, and existing ones are still billed (spec 3.2, 4.3).

    Raises EngineError: `engine.not_found`.
    """
    plan = await lock_plan(work, plan_id)
    await plans.archive(work.tx, plan_id, archived_at=work.now)
    view = PlanSummaryView.of(replace(plan, archived_at=plan.archived_at or work.now))
    work.audit(plan_id, before=PlanSummaryView.of(plan), after=view)
    return view


async def lock_plan(work: Work, plan_id: UUID, *, for_share: bool = False) -> Plan:
    """Lock a plan and return it at its current version. Raises EngineError: `engine.not_found`."""
    if not await (plans.lock_for_share if for_share else plans.lock)(work.tx, plan_id):
        raise not_found("plan", plan_id)
    plan = await plans.find(work.tx, plan_id)
    assert plan is not None, "a plan has a current version"
    return plan


async def account_connections(work: Work) -> list[Connection]:
    return [stored.connection for stored in await connections.find_all(work.tx)]


async def check_product_ids(work: Work, terms: Terms) -> None:
    """Check that the products exist. Call this before the checks that answer 409, because 404 takes precedence (D-10).

    Raises EngineError: `engine.not_found`.
    """
    wanted = [item.product_id for item in terms.items]
    facts = await products.lock_facts(work.tx, wanted)
    known = {product_id: replace(fact, archived_at=None) for product_id, fact in facts.items()}
    check_products([replace(item, discounts=()) for item in terms.items], known)


async def check_terms(work: Work, terms: Terms, billing: list[Connection] | Connection) -> None:
    """Check the products and the payment terms (spec 4.3, D-20).

    A connection of `billing` must support the payment method and the installments. Raises the EngineErrors listed at
    `create`.
    """
    facts = await products.lock_facts(work.tx, [item.product_id for item in terms.items])
    check_products(terms.items, facts)
    check_support(terms.default_payment_method, terms.max_installments, connections=billing)


async def store_version(work: Work, plan: Plan, terms: Terms, *, subscription_id: UUID | None = None) -> None:
    """Insert a plan version. With `subscription_id`, the version has that subscription's private terms (D-19, D-22)."""
    await plans.insert_version(work.tx, plan, terms, subscription_id=subscription_id, created_at=work.now)
    await plans.insert_items(work.tx, plan.plan_version_id, terms.items)
    work.totals["plan_items"] += len(terms.items)
    await plans.insert_discounts(work.tx, plan.plan_version_id, terms.items)


async def drop_private_terms(work: Work, replaced: PlanView, plan_version_id: UUID) -> None:
    """Delete the items of a subscription's former private terms, unless an invoice was billed under these terms.

    Subtract the number of items from the account's total of plan items, even if the items are kept.
    """
    work.totals["plan_items"] -= len(replaced.items)
    await plans.delete_unbilled_items(work.tx, plan_version_id)


async def uncount_private_terms(work: Work, plan_version_id: UUID) -> None:
    """Subtract the items of a canceled subscription's private terms from the account's total, if an invoice was billed.

    The items are kept, because clients can still read the terms. So items that billed nothing must count, or clients
    could store any number of them (D-245).
    """
    work.totals["plan_items"] -= await plans.count_billed_items(work.tx, plan_version_id)


def _plan(work: Work, plan_id: UUID, *, name: str, version: int, terms: Terms, created_at: datetime) -> Plan:
    return Plan(
        plan_id=plan_id,
        plan_version_id=work.new_id(),
        name=name,
        version=version,
        period_months=terms.period_months,
        default_payment_method=terms.default_payment_method,
        max_installments=terms.max_installments,
        commitment_cycles=terms.commitment_cycles,
        archived_at=None,
        created_at=created_at,
    )
