"""Erase a customer for an operator. This also works in a suspended account, whose API keys are refused (D-255)."""

from dataclasses import dataclass
from uuid import UUID

from fatura.domain.audit import Actor, Origin
from fatura.domain.audit_actions import CUSTOMER_ERASE
from fatura.usecases.accounts import overview
from fatura.usecases.audit_draft import AuditDraft
from fatura.usecases.deps import Deps
from fatura.usecases.subscriptions import erased_list, erasure
from fatura.usecases.transaction import in_audited_transaction


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
    draft = AuditDraft(Origin(asked_by), CUSTOMER_ERASE)
    canceled = await in_audited_transaction(
        deps, account, draft, erased_list.cancel_and_start, customer_id, asked_by
    )
    is_done = await erasure.run_for(deps, account, customer_id, seconds=erasure.WAIT_SECONDS)
    return OperatorErasure(canceled, is_done)
