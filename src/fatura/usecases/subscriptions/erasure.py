"""Erase a customer: remove the personal data from the customer's row and from all rows that repeat it (D-62, D-226).

The first transaction erases the customer's own row, and stores that an erasure is running. Transactions that begin
later do not read the old data of the customer. Further transactions each remove the data from a batch of older rows. A
batch locks its subscriptions or invoices, so it waits for earlier transactions that still use the old data. Therefore
no old data is left when the final batch is committed. The request runs batches for some seconds, and workers run all
further batches, also after a crash.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol
from uuid import UUID

import msgspec

from fatura.domain.account import Account
from fatura.domain.errors import CUSTOMER_IN_USE, EngineError, require
from fatura.observability import log
from fatura.store.billing import invoices
from fatura.store.db import LockTimeoutError
from fatura.store.subscriptions import customers, erased_rows, erasures
from fatura.store.subscriptions.erased_rows import StoredData
from fatura.store.subscriptions.erasures import Erasure, Stage, Uses
from fatura.usecases.audit_draft import AuditDraft
from fatura.usecases.deps import Deps
from fatura.usecases.idempotency import IdempotentRequest, execute_once
from fatura.usecases.one_by_one import PUT_OFF_BY
from fatura.usecases.stored_target import POLL_SECONDS
from fatura.usecases.transaction import DATABASE_FAILURES, LaneName, Work, in_snapshot, in_transaction
from fatura.views.customers import CustomerProfileView
from fatura.views.erased import erased
from fatura.views.events import CustomerDataView
from fatura.views.view import View

WAIT_SECONDS = 15
"""How long the request runs batches before it answers 202."""
SUBSCRIPTIONS = 100
INVOICES = 50
EVENTS = 500
"""Maximum number of events in memory. A batch reads the events of its rows in portions of at most this size."""
KEYS = 5000
"""Maximum number of idempotency keys that one transaction reads."""


@dataclass(frozen=True, slots=True)
class ErasureAnswer:
    """The customer after the request. `is_replayed` is true if an earlier request had the same Idempotency-Key."""

    view: CustomerProfileView
    is_replayed: bool

    @property
    def is_done(self) -> bool:
        return self.view.erased_at is not None


class _Started(View):
    """The customer's id, stored for an Idempotency-Key. A repeated request returns the customer's current state."""

    id: str


async def erase(
    deps: Deps,
    account: Account,
    request: IdempotentRequest | None,
    customer_id: UUID,
    *,
    draft: AuditDraft | None,
) -> ErasureAnswer:
    """Erase a customer, or continue the erasure. If the customer is erased already, nothing changes.

    Raises EngineError: `engine.not_found`, `engine.customer_in_use`, and the errors of `execute_once`.
    """
    begin = partial(start, customer_id=customer_id)
    stored = await execute_once(deps, account, request, begin, status=200, draft=draft)
    await run_for(
        deps, account, UUID(msgspec.json.decode(stored.body, type=_Started).id), seconds=WAIT_SECONDS
    )
    view = await in_snapshot(deps, account, _read, customer_id)
    return ErasureAnswer(view, is_replayed=stored.replayed)


async def run(deps: Deps, account: Account) -> int:
    """Run one batch of the erasure that has been due longest. Returns 0 if none is due. Raises DATABASE_FAILURES.

    If the batch fails, log this and put the erasure off, so that other erasures of the account continue (D-186).
    """
    customer_id = await in_transaction(deps, account, _first_due)
    if customer_id is None:
        return 0
    try:
        return await in_transaction(deps, account, _erase_batch, customer_id)
    except LockTimeoutError as error:
        log.warning("erasure.locked", customer_id=str(customer_id), error=error)
    except DATABASE_FAILURES:
        raise
    except Exception:  # noqa: BLE001 - logged with its traceback; the batch is tried again later
        log.exception("erasure.put_off", customer_id=str(customer_id))
    await in_transaction(deps, account, _put_off, customer_id)
    return 1


async def start(work: Work, *, customer_id: UUID, is_forced: bool = False) -> _Started:
    """Erase the customer's own row and store that an erasure is running, unless that was done before.

    With `is_forced`, the customer may be in use.
    Raises EngineError: `engine.not_found`, `engine.customer_in_use`.
    """
    found = require(await customers.lock_to_erase(work.tx, customer_id), "customer", id_=customer_id)
    started = _Started(id=str(customer_id))
    if found.customer.is_erased:
        work.audit(customer_id, before={}, after={})
        return started
    if not is_forced:
        _check_unused(await erasures.uses(work.tx, customer_id, real_now=work.deps.clock()))
    await work.refresh()
    after = replace(found, customer=found.customer.erased(), has_document=False)
    await customers.erase(work.tx, after.customer)
    await erasures.insert(work.tx, customer_id, requested_at=work.now)
    before_view, after_view = CustomerProfileView.of_profile(found), CustomerProfileView.of_profile(after)
    work.audit(customer_id, before=before_view, after=after_view)
    work.notify(LaneName.ERASURE)
    return started


def _check_unused(uses: Uses) -> None:
    """Check that nothing uses the customer. Raises EngineError: `engine.customer_in_use`."""
    steps: list[str] = []
    if uses.subscription_ids:
        steps.append("cancel the active subscriptions")
    if uses.invoice_ids:
        steps.append("cancel the open invoices, or wait until they are paid")
    if uses.pending_invoice_ids:
        steps.append("wait until the calls for the pending invoices have ended")
    if steps:
        kinds = {
            "subscriptionIds": uses.subscription_ids,
            "invoiceIds": uses.invoice_ids,
            "pendingInvoiceIds": uses.pending_invoice_ids,
        }
        meta = {name: [str(each) for each in ids] for name, ids in kinds.items()}
        raise EngineError(
            CUSTOMER_IN_USE,
            f"The customer is in use: {'; '.join(steps)}. Then erase the customer.",
            meta=meta,
        )


async def run_for(deps: Deps, account: Account, customer_id: UUID, *, seconds: float) -> bool:
    """Run batches until the erasure is done or `seconds` have passed. Return whether it is done."""
    give_up_at = time.monotonic() + seconds
    while not await in_transaction(deps, account, _is_done, customer_id):
        if time.monotonic() >= give_up_at:
            return False
        if not await _work_on(deps, account, customer_id):
            await asyncio.sleep(POLL_SECONDS)
    return True


async def _work_on(deps: Deps, account: Account, customer_id: UUID) -> int:
    try:
        return await in_transaction(deps, account, _erase_batch, customer_id)
    except LockTimeoutError:
        return 0  # another transaction keeps a row locked; the batch is tried again


async def _is_done(work: Work, customer_id: UUID) -> bool:
    found = await erasures.find(work.tx, customer_id)
    assert found is not None, "an erasure is never deleted"
    return found.stage is Stage.DONE


async def _first_due(work: Work) -> UUID | None:
    return await erasures.first_due(work.tx, now=work.now)


async def _put_off(work: Work, customer_id: UUID) -> None:
    await erasures.put_off(work.tx, customer_id, until=work.now + PUT_OFF_BY)


async def _read(work: Work, customer_id: UUID) -> CustomerProfileView:
    found = await customers.find(work.tx, customer_id)
    assert found is not None, "a customer is never deleted"
    return CustomerProfileView.of_profile(found)


async def _erase_batch(work: Work, customer_id: UUID) -> int:
    """Remove the data from the next rows, and store the progress.

    Returns 1, or 0 if the erasure is done or another process works on it.
    """
    running = await erasures.claim_running(work.tx, customer_id)
    if running is None:
        return 0
    await work.tx.allow_erasure()
    after = await _STEPS[running.stage](work, running)
    await erasures.store(work.tx, after)
    if after.stage is Stage.DONE:
        await work.refresh()
        await customers.set_erased_at(work.tx, customer_id, erased_at=work.now)
        work.emit("customer.erased", CustomerDataView(customer=await _read(work, customer_id)))
    return 1


async def _erase_subscriptions(work: Work, running: Erasure) -> Erasure:
    found = await erased_rows.subscriptions(
        work.tx, running.customer_id, after=running.visited_id, limit=SUBSCRIPTIONS
    )
    await _erase_events(work, partial(erased_rows.events_of_subscriptions, work.tx, found))
    if len(found) < SUBSCRIPTIONS:
        return replace(running, stage=Stage.INVOICES, visited_id=None)
    return replace(running, visited_id=found[-1])


async def _erase_invoices(work: Work, running: Erasure) -> Erasure:
    found = await erased_rows.billed(
        work.tx,
        running.customer_id,
        after=running.visited_id,
        after_cycle=running.visited_cycle,
        limit=INVOICES,
    )
    invoice_ids = [each.invoice_id for each in found]
    await invoices.lock(work.tx, invoice_ids)
    await erased_rows.invoices(work.tx, invoice_ids)
    await _erase_events(work, partial(erased_rows.events_of_invoices, work.tx, invoice_ids))
    if len(found) < INVOICES:
        return replace(running, stage=Stage.ANSWERS, visited_id=None, visited_cycle=None)
    return replace(running, visited_id=found[-1].subscription_id, visited_cycle=found[-1].cycle)


class _NextEvents(Protocol):
    def __call__(self, *, after: int, limit: int) -> Awaitable[Sequence[StoredData]]: ...


async def _erase_events(work: Work, next_events: _NextEvents) -> None:
    after = 0
    while found := await next_events(after=after, limit=EVENTS):
        await erased_rows.events(work.tx, [replace(each, data=erased(each.data)) for each in found])
        await erased_rows.delivery_attempts(work.tx, [each.sequence for each in found])
        after = found[-1].sequence


async def _erase_answers(work: Work, running: Erasure) -> Erasure:
    found = await erased_rows.answers(
        work.tx, running.customer_id, after=running.visited_key or "", limit=KEYS
    )
    changed = [(each, erased(each.answer).encode()) for each in found if each.answer is not None]
    await erased_rows.set_answers(work.tx, changed)
    if len(found) < KEYS:
        return replace(running, stage=Stage.DONE, visited_key=None)
    return replace(running, visited_key=found[-1].key)


_STEPS: dict[Stage, Callable[[Work, Erasure], Awaitable[Erasure]]] = {
    Stage.SUBSCRIPTIONS: _erase_subscriptions,
    Stage.INVOICES: _erase_invoices,
    Stage.ANSWERS: _erase_answers,
}
