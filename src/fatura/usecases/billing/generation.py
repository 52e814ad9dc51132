"""The billing run: generate the next invoice of each due subscription, in batches (D-2 to D-5, D-28)."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import date, datetime, timedelta
from itertools import islice
from typing import Any, NamedTuple
from uuid import UUID

from msgspec.structs import replace

from fatura import ids
from fatura.domain.account import Account
from fatura.domain.calendar import next_generation_instant, next_period_start
from fatura.domain.charge import ChargeStage, InvoiceCharge
from fatura.domain.charging import charge_due_date
from fatura.domain.invoice import BillingTerms, Invoice, InvoiceDetail, InvoiceDraft, InvoiceItem, build
from fatura.domain.invoice_states import INITIAL_STATES, InvoiceStatus
from fatura.domain.offer import PaymentMethod
from fatura.observability import log
from fatura.store.billing import generation
from fatura.store.billing.generation import DueSubscription, NewInvoice
from fatura.store.catalog import plans
from fatura.store.restore import charge_matching, frozen_accounts, lost_invoices
from fatura.store.restore.lost_invoices import LostInvoice
from fatura.store.subscriptions import subscriptions
from fatura.usecases.deps import Deps
from fatura.usecases.one_by_one import each_alone_if_one_fails
from fatura.usecases.transaction import DATABASE_FAILURES, LaneName, Work, in_transaction
from fatura.views.customers import CustomerView
from fatura.views.events import EventInvoiceView, InvoiceDataView, SubscriptionBillingErrorDataView

ONE_BY_ONE = 50
"""Maximum number of subscriptions that one run bills one by one."""
PUT_OFF_BY = timedelta(hours=1)
"""Delay before a subscription whose billing failed is tried again."""
BILLING_FAILED = (
    "The invoice of cycle {cycle} could not be generated because of an unexpected error. It is tried again every hour. "
    "The log of the engine has the cause."
)


class DraftKey(NamedTuple):
    """The values on which an invoice's content depends. Invoices with equal values share one draft."""

    plan_version_id: UUID
    cycle: int
    method: PaymentMethod


async def run(deps: Deps, account: Account, *, limit: int) -> int:
    """Bill one batch of due subscriptions. If this fails, bill each subscription alone, and put off those that fail.

    A subscription that was put off is later billed alone, so that it cannot make a batch fail.
    Returns the number of subscriptions billed or put off. Raises DATABASE_FAILURES.
    """
    try:
        billed = await in_transaction(deps, account, generate, limit=limit)
        singles = await in_transaction(deps, account, _retry_ids, limit=ONE_BY_ONE)
    except DATABASE_FAILURES:
        raise
    except Exception:  # noqa: BLE001 - billed one by one below, where only the faulty subscription fails
        log.exception("generation.batch_failed", account_id=str(account.account_id))
        billed = 0
        singles = await in_transaction(deps, account, _due_ids, limit=ONE_BY_ONE)
    return billed + sum([await _generate_or_put_off(deps, account, each) for each in singles])


async def _generate_or_put_off(deps: Deps, account: Account, subscription_id: UUID) -> int:
    try:
        return await in_transaction(deps, account, _generate_one, subscription_id)
    except DATABASE_FAILURES:
        raise
    except Exception:  # noqa: BLE001 - logged in full; the subscription is tried again in an hour
        log.exception("generation.put_off", subscription_id=str(subscription_id))
    return await in_transaction(deps, account, _put_off, subscription_id)


async def generate(work: Work, *, limit: int) -> int:
    """Bill the next cycle of up to `limit` due subscriptions in this transaction; return how many were billed.

    The subscriptions stay locked until the commit, so concurrent runs bill different subscriptions. A unique
    constraint refuses a second invoice for a cycle.
    """
    if not await frozen_accounts.may_charge(work.tx):
        return 0
    return await _bill(work, await generation.claim_due(work.tx, now=work.now, limit=limit))


async def _generate_one(work: Work, subscription_id: UUID) -> int:
    if not await frozen_accounts.may_charge(work.tx):
        return 0
    return await _bill(work, await generation.claim_one(work.tx, subscription_id, now=work.now))


async def _due_ids(work: Work, *, limit: int) -> Sequence[UUID]:
    return await generation.due_ids(work.tx, now=work.now, limit=limit)


async def _retry_ids(work: Work, *, limit: int) -> Sequence[UUID]:
    return await generation.retry_ids(work.tx, now=work.now, limit=limit)


async def _put_off(work: Work, subscription_id: UUID) -> int:
    """Put off the subscription for an hour. At the first failure since its newest invoice, emit an event (D-142).

    If the event cannot be built, the engine tries to emit it at the next failure.
    """
    until = work.now + PUT_OFF_BY
    if await generation.put_off(work.tx, subscription_id, now=work.now, until=until):
        await each_alone_if_one_fails(work, [subscription_id], _emit_failed, put_off=_log_not_emitted)
    return 1


async def _emit_failed(work: Work, subscription_ids: Sequence[UUID]) -> Sequence[UUID]:
    for subscription in await subscriptions.find_all(work.tx, subscription_ids):
        detail = BILLING_FAILED.format(cycle=subscription.cycle_count + 1)
        data = SubscriptionBillingErrorDataView.of(subscription, code="unexpected_error", detail=detail)
        work.emit("subscription.billing_failed", data, subscription_id=subscription.subscription_id)
    await generation.note_failure_emitted(work.tx, subscription_ids)
    return subscription_ids


async def _log_not_emitted(_work: Work, subscription_id: UUID) -> None:
    """Log that the event cannot be built. The subscription is put off nevertheless, so it does not delay others."""
    log.exception("generation.failure_not_emitted", subscription_id=str(subscription_id))


async def _bill(work: Work, due: Sequence[DueSubscription]) -> int:
    if not due:
        return 0
    terms = await plans.billing_terms(work.tx, {each.plan_version_id for each in due})
    keys = [DraftKey(each.plan_version_id, each.cycle, each.payment_method) for each in due]
    indexes = {key: index for index, key in enumerate(dict.fromkeys(keys))}
    drafts = [build(terms[key.plan_version_id], cycle=key.cycle, method=key.method) for key in indexes]
    lost = await lost_invoices.of_subscriptions(work.tx, [each.subscription_id for each in due])
    batch = _new_invoices(work, due, [indexes[key] for key in keys], terms=terms, drafts=drafts, lost=lost)
    refs = await generation.product_refs(
        work.tx, list({item.product_id for each in drafts for item in each.items})
    )
    await generation.advance_subscriptions(work.tx, batch)
    async with meanwhile(generation.insert_invoices(work.tx, batch, drafts, now=work.now)):
        _emit_created(work, batch, drafts, refs=refs)
    await generation.insert_items(work.tx, batch, drafts)
    await generation.insert_price_pulls(work.tx, batch, drafts, now=work.now)
    for new in batch:
        if found := lost.get((new.due.subscription_id, new.due.cycle)):
            await _expect_charge(work, new, drafts[new.draft_index], found=found)
    return len(batch)


@asynccontextmanager
async def meanwhile(statement: Coroutine[Any, Any, None]) -> AsyncGenerator[None]:
    """Let PostgreSQL run a statement while the block computes, and wait for the statement at the end of the block."""
    running = asyncio.create_task(statement)
    try:
        await asyncio.sleep(0)  # the task sends the statement
        yield
    finally:
        await running


def _new_invoices(
    work: Work,
    due: Sequence[DueSubscription],
    draft_indexes: Sequence[int],
    *,
    terms: Mapping[UUID, BillingTerms],
    drafts: Sequence[InvoiceDraft],
    lost: Mapping[tuple[UUID, int], LostInvoice],
) -> Sequence[NewInvoice]:
    """Return the new invoice of each due subscription.

    `lost` has the invoices that a restore of the database lost, but whose charges still exist at the gateway. A lost
    invoice gets its old id and connection again. If the invoice of the following cycle was lost too, that cycle is due
    for generation immediately.
    """
    invoice_ids = ids.invoice_ids(work.now, [(each.subscription_id, each.cycle) for each in due])
    item_counts = [len(each.items) for each in drafts]
    item_ids = iter(work.new_ids(sum(item_counts[index] for index in draft_indexes)))
    following: dict[tuple[date, int, int], tuple[date, datetime]] = {}
    batch: list[NewInvoice] = []
    for each, index, invoice_id in zip(due, draft_indexes, invoice_ids, strict=True):
        period = (each.next_period_start, each.charge_day, terms[each.plan_version_id].period_months)
        if period not in following:
            following[period] = _following(work, *period)
        following_start, generate_at = following[period]
        known = lost.get((each.subscription_id, each.cycle))
        is_next_lost = (each.subscription_id, each.cycle + 1) in lost
        batch.append(
            NewInvoice(
                invoice_id=known.invoice_id if known else invoice_id,
                connection_id=known.connection_id if known else each.connection_id,
                item_ids=list(islice(item_ids, item_counts[index])),
                due=each,
                period_end=following_start - timedelta(days=1),
                draft_index=index,
                following_period_start=following_start,
                following_generate_at=work.now if is_next_lost else generate_at,
            )
        )
    return batch


def _following(work: Work, period_start: date, charge_day: int, period_months: int) -> tuple[date, datetime]:
    """Return when the following cycle starts, and when the invoice of that cycle is due for generation (D-4, D-5)."""
    following = next_period_start(period_start, charge_day=charge_day, period_months=period_months)
    return following, next_generation_instant(following, generated_at=work.now)


async def _expect_charge(work: Work, new: NewInvoice, draft: InvoiceDraft, *, found: LostInvoice) -> None:
    """Insert a row for the charge of a lost invoice, so that issuance creates no other charge (D-123)."""
    expected = InvoiceCharge(
        charge_id=work.new_id(),
        invoice_id=new.invoice_id,
        number=found.attempt,
        connection_id=new.connection_id,
        stage=ChargeStage.UNKNOWN,
        amount_cents=found.amount_cents,
        currency=work.account.currency,
        payment_method=draft.payment_method,
        installments=draft.installments,
        due_date=found.charge_due_date or charge_due_date(new.due.next_due_date, today=work.today),
        created_at=work.now,
        first_sent_at=work.deps.clock(),
        sent_at=work.now,
        known_charge_ids=found.charge_ids,
    )
    await charge_matching.insert_charge(work.tx, expected)


def _emit_created(
    work: Work,
    batch: Sequence[NewInvoice],
    drafts: Sequence[InvoiceDraft],
    *,
    refs: Mapping[UUID, str | None],
) -> None:
    views: dict[int, EventInvoiceView] = {}
    for new in batch:
        draft = drafts[new.draft_index]
        if new.draft_index not in views:
            views[new.draft_index] = EventInvoiceView.of_detail(_detail(work, new, draft, refs=refs))
        data = InvoiceDataView(invoice=_own(views[new.draft_index], new))
        work.emit("invoice.created", data, subscription_id=new.due.subscription_id, invoice_id=new.invoice_id)
        if draft.status is InvoiceStatus.PAID:
            work.emit(
                "invoice.paid", data, subscription_id=new.due.subscription_id, invoice_id=new.invoice_id
            )
    for index, count in Counter(new.draft_index for new in batch).items():
        draft = drafts[index]
        assert draft.status in INITIAL_STATES, draft.status
        work.totals[f"invoices_{draft.status}"] += count
        if draft.status is InvoiceStatus.READY:
            work.notify(LaneName.ISSUANCE)
        if draft.has_pending_items:
            work.notify(LaneName.PRICING)


def _own(view: EventInvoiceView, new: NewInvoice) -> EventInvoiceView:
    """Return the view of the new invoice. `view` shows an invoice with the same draft; replace the differing fields."""
    return replace(
        view,
        id=str(new.invoice_id),
        subscription_id=str(new.due.subscription_id),
        due_date=new.due.next_due_date,
        subscription_external_ref=new.due.external_ref,
        customer=CustomerView.of(new.due.customer),
        items=[
            replace(item, id=str(item_id)) for item, item_id in zip(view.items, new.item_ids, strict=True)
        ],
    )


def _detail(
    work: Work, new: NewInvoice, draft: InvoiceDraft, *, refs: Mapping[UUID, str | None]
) -> InvoiceDetail:
    """Return the new invoice as a read from the database would return it."""
    items = [
        InvoiceItem.of_draft(
            item,
            item_id=item_id,
            currency=work.account.currency,
            product_external_ref=refs[item.product_id],
        )
        for item_id, item in zip(new.item_ids, draft.items, strict=True)
    ]
    invoice = Invoice(
        invoice_id=new.invoice_id,
        subscription_id=new.due.subscription_id,
        customer=new.due.customer,
        cycle=draft.cycle,
        status=draft.status,
        due_date=new.due.next_due_date,
        payment_method=draft.payment_method,
        installments=draft.installments,
        total_cents=draft.total_cents,
        currency=work.account.currency,
        created_at=work.now,
        paid_at=work.now if draft.status is InvoiceStatus.PAID else None,
    )
    return InvoiceDetail(invoice, items, new.due.external_ref)
