"""The list of erased customers: export it, and apply it after a restore from a backup (D-230)."""

import math
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from fatura.domain.audit import Actor, Origin
from fatura.domain.audit_actions import CUSTOMER_ERASE, SUBSCRIPTION_CANCEL
from fatura.domain.errors import require
from fatura.store.subscriptions import customers, erasures
from fatura.store.subscriptions.erasures import Uses
from fatura.usecases.audit_draft import AuditDraft
from fatura.usecases.deps import Deps
from fatura.usecases.subscriptions import erasure, subscriptions
from fatura.usecases.transaction import (
    Work,
    in_audited_transaction,
    in_snapshot,
    in_transaction,
    load_account,
)
from fatura.views.subscriptions import SubscriptionView

PAGE = 1000
_BEFORE_ALL = UUID(int=0)


class Result(StrEnum):
    ERASED = "erased"
    ERASED_BEFORE = "erased before"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Applied:
    """The result for one customer of the list. The engine does not charge open invoices: a person must close them."""

    result: Result
    canceled_subscriptions: int = 0
    open_invoice_ids: Sequence[UUID] = ()


async def erased_ids(deps: Deps, account_id: UUID) -> AsyncGenerator[UUID]:
    """Yield the ids of the account's erased customers, including those whose erasure is still running."""
    account, after = await load_account(deps, account_id), _BEFORE_ALL
    while page := await in_snapshot(deps, account, _page, after=after):
        for customer_id in page:
            yield customer_id
        after = page[-1]


async def _page(work: Work, *, after: UUID) -> Sequence[UUID]:
    return await erasures.page(work.tx, after=after, limit=PAGE)


async def apply(deps: Deps, account_id: UUID, customer_id: UUID, *, asked_by: Actor) -> Applied:
    """Erase a customer who was erased after the backup was made. Safe to repeat: each call lists the open invoices.

    In the restored database, the customer may be in use. The customer's subscriptions had been canceled before the
    first erasure, so cancel them again.
    """
    account = await load_account(deps, account_id)
    if not await in_transaction(deps, account, _exists, customer_id):
        return Applied(Result.UNKNOWN)
    if await in_transaction(deps, account, _is_erased, customer_id):
        opened = await in_transaction(deps, account, _open_invoices, customer_id)
        return Applied(Result.ERASED_BEFORE, open_invoice_ids=opened)
    draft = AuditDraft(Origin(asked_by), CUSTOMER_ERASE)
    canceled = await in_audited_transaction(
        deps, account, draft, cancel_and_start, customer_id, asked_by, is_forced=True
    )
    await erasure.run_for(deps, account, customer_id, seconds=math.inf)
    opened = await in_transaction(deps, account, _open_invoices, customer_id)
    return Applied(Result.ERASED, canceled, opened)


async def cancel_and_start(work: Work, customer_id: UUID, asked_by: Actor, *, is_forced: bool = False) -> int:
    """Cancel the customer's active subscriptions and start the erasure. Return how many were canceled.

    With `is_forced`, the customer may be in use. Raises the errors of `erasure.start`.
    """
    # lock the customer first, so that no request subscribes the customer during this transaction
    require(await customers.lock_to_erase(work.tx, customer_id), "customer", id_=customer_id)
    canceled = await _cancel_subscriptions(work, customer_id, asked_by)
    # start the erasure only now: the cancellation has locked the subscriptions, so no more invoices are generated
    await erasure.start(work, customer_id=customer_id, is_forced=is_forced)
    return canceled


async def _cancel_subscriptions(work: Work, customer_id: UUID, asked_by: Actor) -> int:
    canceled = 0
    while active := (await _uses(work, customer_id)).subscription_ids:
        for subscription_id in active:
            before, after = await subscriptions.cancel_unaudited(work, subscription_id)
            work.audit_for(
                Origin(asked_by),
                SUBSCRIPTION_CANCEL,
                resource_id=subscription_id,
                before=SubscriptionView.of(before),
                after=SubscriptionView.of(after),
            )
            canceled += 1
    return canceled


async def _exists(work: Work, customer_id: UUID) -> bool:
    return await customers.find(work.tx, customer_id) is not None


async def _is_erased(work: Work, customer_id: UUID) -> bool:
    found = await erasures.find(work.tx, customer_id)
    return found is not None and found.stage is erasures.Stage.DONE


async def _open_invoices(work: Work, customer_id: UUID) -> Sequence[UUID]:
    return await erasures.open_invoices(work.tx, customer_id)


async def _uses(work: Work, customer_id: UUID) -> Uses:
    return await erasures.uses(work.tx, customer_id, real_now=work.deps.clock())
