"""The billing run: due subscriptions in sets, one invoice a cycle whatever runs beside it (D-2 to D-5, D-28)."""

from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from uuid import UUID

from fatura import ids
from fatura.domain.account import Account
from fatura.domain.calendar import next_generation_instant, next_period_start
from fatura.domain.charging import AttemptState, ChargeAttempt, charge_due_date
from fatura.domain.events import invoice_data
from fatura.domain.invoice import BillingTerms, Invoice, InvoiceDetail, InvoiceDraft, InvoiceItem, build
from fatura.domain.invoice_states import BIRTHS, InvoiceStatus
from fatura.domain.offer import PaymentMethod
from fatura.domain.shapes import Shape, day
from fatura.observability import log
from fatura.store.billing import generation
from fatura.store.billing.generation import DueSubscription, NewInvoice
from fatura.store.catalog import plans
from fatura.store.db import DatabaseUnavailableError, DeadlockError, LockTimeoutError
from fatura.store.restore import charge_matching, frozen_accounts, lost_invoices
from fatura.store.restore.lost_invoices import LostInvoice
from fatura.usecases.deps import Deps
from fatura.usecases.lane_names import LaneName
from fatura.usecases.transaction import Work, in_transaction

ONE_BY_ONE = 50
"""How many subscriptions of a failed batch are billed one by one before a batch is tried again."""
PUT_OFF = timedelta(hours=1)
"""How long a subscription that cannot be billed is left alone, so that the others are."""

Template = tuple[UUID, int, PaymentMethod]
"""What decides an invoice's content: the plan version, the cycle and the method."""


async def run(deps: Deps, account: Account, *, limit: int) -> int:
    """Bill one batch; when it fails, bill one by one and put the failing ones off, so that they hold up nobody.

    Returns how many subscriptions were billed or put off. Raises DatabaseUnavailableError, LockTimeoutError.
    """
    try:
        return await _generate(deps, account, limit=limit)
    except (DatabaseUnavailableError, LockTimeoutError, DeadlockError):
        raise
    except Exception:  # noqa: BLE001 - the batch's failure is told with the one that causes it
        log.exception("generation.batch_failed", account_id=str(account.account_id))
    return sum([await _generate_or_put_off(deps, account) for _ in range(ONE_BY_ONE)])


async def _generate(deps: Deps, account: Account, *, limit: int, claimed: list[UUID] | None = None) -> int:
    async def effect(work: Work) -> int:
        return await generate(work, limit=limit, claimed=claimed)

    return await in_transaction(deps, account, effect)


async def _generate_or_put_off(deps: Deps, account: Account) -> int:
    claimed: list[UUID] = []
    try:
        return await _generate(deps, account, limit=1, claimed=claimed)
    except (DatabaseUnavailableError, LockTimeoutError, DeadlockError):
        raise
    except Exception:  # noqa: BLE001 - told here; the subscription is tried again in an hour
        log.exception("generation.put_off", subscription_ids=[str(each) for each in claimed])

    async def put_off(work: Work) -> int:
        for subscription_id in claimed:
            await generation.put_off(work.tx, subscription_id, until=work.now + PUT_OFF)
        return len(claimed)

    return await in_transaction(deps, account, put_off)


async def generate(work: Work, *, limit: int, claimed: list[UUID] | None = None) -> int:
    """Bill the next cycle of up to `limit` due subscriptions in this transaction; return how many.

    `claimed` is told their ids, for who must know which they were when billing them fails.

    The subscriptions stay locked until the commit and a second invoice for a cycle is impossible (unique key), so
    that runs beside each other share the due work without a lease.
    """
    if not await frozen_accounts.may_charge(work.tx):
        return 0
    due = await generation.claim_due(work.tx, now=work.now, limit=limit)
    if claimed is not None:
        claimed.extend(each.subscription_id for each in due)
    if not due:
        return 0
    terms = await plans.billing_terms(work.tx, {each.plan_version_id for each in due})
    drafts = {
        template: build(terms[template[0]], cycle=template[1], method=template[2])
        for template in dict.fromkeys(map(_template, due))
    }
    lost = await lost_invoices.of_subscriptions(work.tx, [each.subscription_id for each in due])
    batch = _batch(work, due, terms=terms, drafts=drafts, lost=lost)
    await generation.advance_subscriptions(work.tx, batch)
    await generation.insert_invoices(work.tx, batch, list(drafts.values()), now=work.now)
    await generation.insert_items(work.tx, batch, list(drafts.values()))
    await generation.insert_price_pulls(work.tx, batch, list(drafts.values()), now=work.now)
    for new in batch:
        if found := lost.get(_billed(new.due)):
            await _expect_charge(work, new, found)
    await _tell(work, batch, drafts)
    return len(batch)


def _template(due: DueSubscription) -> Template:
    return due.plan_version_id, due.cycle_count + 1, due.payment_method


def _batch(
    work: Work,
    due: Sequence[DueSubscription],
    *,
    terms: Mapping[UUID, BillingTerms],
    drafts: Mapping[Template, InvoiceDraft],
    lost: Mapping[tuple[UUID, int], LostInvoice],
) -> Sequence[NewInvoice]:
    """Give each due subscription its ids, its place among the templates and its following cycle.

    A cycle that was billed before a restore gets the id that it had, and the one after it does not wait for its day.
    """
    places = {template: place for place, template in enumerate(drafts)}
    cycles = {cycle: _following(work, *cycle) for cycle in {_cycle(each, terms) for each in due}}
    invoice_ids = ids.invoice_ids(work.now, map(_billed, due))
    item_ids = iter(work.new_ids(sum(len(drafts[_template(each)].items) for each in due)))
    batch: list[NewInvoice] = []
    for each, invoice_id in zip(due, invoice_ids, strict=True):
        template, (subscription_id, cycle) = _template(each), _billed(each)
        known = lost.get((subscription_id, cycle))
        following, generate_at = cycles[_cycle(each, terms)]
        batch.append(
            NewInvoice(
                invoice_id=known.invoice_id if known else invoice_id,
                item_ids=[next(item_ids) for _ in drafts[template].items],
                due=each,
                period_end=following - timedelta(days=1),
                template=places[template],
                following_period_start=following,
                following_generate_at=work.now if (subscription_id, cycle + 1) in lost else generate_at,
            )
        )
    return batch


def _cycle(due: DueSubscription, terms: Mapping[UUID, BillingTerms]) -> tuple[date, int, int]:
    """Return what decides when the following cycle is; a batch has few of them."""
    return due.next_period_start, due.charge_day, terms[due.plan_version_id].period_months


def _following(work: Work, period_start: date, charge_day: int, period_months: int) -> tuple[date, datetime]:
    """Return when the following cycle's period starts, and when it may be generated (D-4, D-5)."""
    following = next_period_start(period_start, charge_day=charge_day, period_months=period_months)
    return following, next_generation_instant(following, generated_at=work.now)


def _billed(due: DueSubscription) -> tuple[UUID, int]:
    """Return what the invoice bills: the subscription and the cycle."""
    return due.subscription_id, due.cycle_count + 1


async def _expect_charge(work: Work, new: NewInvoice, found: LostInvoice) -> None:
    """Insert the attempt whose charge the gateway already holds, so that no other charge is created (D-123)."""
    expected = ChargeAttempt(
        invoice_id=new.invoice_id,
        number=found.attempt,
        connection_id=new.due.connection_id,
        state=AttemptState.SENDING,
        amount_cents=found.amount_cents,
        charge_due_date=found.charge_due_date or charge_due_date(new.due.next_due_date, today=work.today),
        first_sent_at=work.deps.clock(),
        sent_at=work.now,
        known_charge_ids=found.charge_ids,
    )
    await charge_matching.insert_attempt(work.tx, expected)


async def _tell(work: Work, batch: Sequence[NewInvoice], drafts: Mapping[Template, InvoiceDraft]) -> None:
    product_ids = {item.product_id for draft in drafts.values() for item in draft.items}
    refs = await generation.product_refs(work.tx, list(product_ids))
    shapes: dict[int, Shape] = {}
    for new in batch:
        draft = drafts[_template(new.due)]
        assert draft.status in BIRTHS, draft.status
        work.totals[f"invoices_{draft.status}"] += 1
        types = ["invoice.created"]
        if draft.status is InvoiceStatus.PAID:
            types.append("invoice.paid")
        if draft.status is InvoiceStatus.READY:
            work.notify(LaneName.ISSUANCE)
        if draft.has_pending_items:
            work.notify(LaneName.PRICING)
        if new.template not in shapes:
            shapes[new.template] = invoice_data(_detail(work, new, draft, refs=refs))["invoice"]
        data = {"invoice": _own(shapes[new.template], new)}
        for type_ in types:
            work.emit(type_, data, subscription_id=new.due.subscription_id, invoice_id=new.invoice_id)


def _own(shape: Shape, new: NewInvoice) -> Shape:
    """Return the shape of one invoice, from that of another of its template: what no template decides is its own."""
    return shape | {
        "id": str(new.invoice_id),
        "subscriptionId": str(new.due.subscription_id),
        "dueDate": day(new.due.next_due_date),
        "subscriptionExternalRef": new.due.external_ref,
        "customerId": str(new.due.customer_id),
        "customerExternalRef": new.due.customer_external_ref,
        "items": [
            item | {"id": str(item_id)} for item, item_id in zip(shape["items"], new.item_ids, strict=True)
        ],
    }


def _detail(
    work: Work, new: NewInvoice, draft: InvoiceDraft, *, refs: Mapping[UUID, str | None]
) -> InvoiceDetail:
    """Return the new invoice as a read would show it, without reading it back."""
    items = [
        InvoiceItem(
            item_id=item_id,
            product_id=item.product_id,
            product_name=item.product_name,
            pricing_source=item.pricing_source,
            pricing_status=item.pricing_status,
            months=item.months,
            monthly_price_cents=item.monthly_price_cents,
            discount_percent=item.discount_percent,
            amount_cents=item.amount_cents,
            description=None,
            product_external_ref=refs[item.product_id],
        )
        for item_id, item in zip(new.item_ids, draft.items, strict=True)
    ]
    invoice = Invoice(
        invoice_id=new.invoice_id,
        subscription_id=new.due.subscription_id,
        cycle=draft.cycle,
        status=draft.status,
        due_date=new.due.next_due_date,
        payment_method=draft.payment_method,
        installments=draft.installments,
        total_cents=draft.total_cents,
        gateway_invoice_id=None,
        issued_at=None,
        paid_at=work.now if draft.status is InvoiceStatus.PAID else None,
        created_at=work.now,
    )
    return InvoiceDetail(
        invoice, items, new.due.customer_id, new.due.customer_external_ref, new.due.external_ref
    )
