"""Erase a customer for an operator. This also works in a suspended account, whose API keys are refused (D-255)."""

from dataclasses import dataclass
from uuid import UUID

from fatura.domain.audit import Actor, Origin
from fatura.domain.audit_actions import CUSTOMER_ERASE
from fatura.domain.errors import require
from fatura.store.subscriptions import customers, erasures
from fatura.usecases.accounts import overview
from fatura.usecases.audit_draft import AuditDraft
from fatura.usecases.deps import Deps
from fatura.usecases.subscriptions import erased_list, erasure
from fatura.usecases.transaction import Work, in_transaction


@dataclass(frozen=True, slots=True)
class OperatorErasure:
    """What the command did. If the erasure is not done, workers continue it."""

    canceled_subscriptions: int
    is_done: bool


async def erase(deps: Deps, account_id: UUID, customer_id: UUID, *, asked_by: Actor) -> OperatorErasure:
    """Cancel the customer's active subscriptions, and erase the customer. Safe to repeat.

    If the customer has an open invoice or a call in progress, change nothing.
    Raises EngineError: `engine.not_found`, `engine.customer_in_use`; and DATABASE_FAILURES.
    """
    account = await overview.load(deps, account_id)
    canceled = await in_transaction(deps, account, _cancel_subscriptions, customer_id, asked_by)
    draft = AuditDraft(Origin(asked_by), CUSTOMER_ERASE)
    answer = await erasure.erase(deps, account, None, customer_id, draft=draft)
    return OperatorErasure(canceled, answer.is_done)


async def _cancel_subscriptions(work: Work, customer_id: UUID, asked_by: Actor) -> int:
    """Cancel the customer's subscriptions, unless the customer has an open invoice or a call in progress."""
    found = require(await customers.find(work.tx, customer_id), "customer", id_=customer_id)
    canceled = await erased_list.cancel_subscriptions(work, customer_id, asked_by)
    if not found.customer.is_erased:
        # check only now: the cancellation has locked the subscriptions, so no more invoices are generated
        erasure.check_unused(await erasures.uses(work.tx, customer_id, real_now=work.deps.clock()))
    return canceled
