"""Issue one invoice again because a person asks for it (D-34)."""

from collections.abc import Sequence
from uuid import UUID

from fatura.domain import shapes
from fatura.domain.account import Account
from fatura.domain.charging import AttemptState
from fatura.domain.errors import INVOICE_NOT_READY, EngineError, account_recovering, not_found
from fatura.domain.invoice_states import InvoiceStatus
from fatura.store.charging import held_invoices
from fatura.store.restore import frozen_accounts
from fatura.usecases.billing import invoices
from fatura.usecases.charging import issuance
from fatura.usecases.charging.gateway_calls import Job
from fatura.usecases.deps import Deps
from fatura.usecases.idempotency import IdempotentRequest, is_repeat
from fatura.usecases.lane_names import LaneName
from fatura.usecases.operations import health
from fatura.usecases.transaction import Work, in_transaction

WHY_NOT = {
    InvoiceStatus.DRAFT: "waits for its prices; it is issued by itself when they are there",
    InvoiceStatus.AWAITING_VALUE: "waits for a value; retry pricing or enter the value by hand",
    InvoiceStatus.ISSUED: "is issued already",
    InvoiceStatus.PAID: "is paid already",
    InvoiceStatus.OVERDUE: "is issued already, and overdue",
    InvoiceStatus.CANCELED: "is canceled and will not be issued",
}


async def retry(deps: Deps, account: Account, request: IdempotentRequest, invoice_id: UUID) -> shapes.Shape:
    """Issue a `ready` invoice now, and return it as it is when its gateway has answered, or not in 20 s.

    After a refusal, or when a person was to look for a lost charge, the next attempt is sent. An attempt that is under
    way is left to whoever sent it, and one whose outcome is unknown is looked up: nothing is ever sent twice.
    Raises EngineError: `engine.not_found`, `engine.invoice_not_ready`, `engine.account_recovering`.
    """
    may_lease = await health.clock_is_trusted(deps)

    async def reserve(work: Work) -> Sequence[Job]:
        return await _reserve(work, request, invoice_id, may_lease=may_lease)

    await issuance.carry_out(deps, account, await in_transaction(deps, account, reserve))
    return await in_transaction(deps, account, lambda work: invoices.read(work, invoice_id))


async def _reserve(
    work: Work, request: IdempotentRequest, invoice_id: UUID, *, may_lease: bool
) -> Sequence[Job]:
    """Lease the invoice and commit to its attempt; a host whose clock is off leaves it to the workers (D-5).

    A repeat of a request gives up no parked attempt: that may be the one it has sent itself, or met under way, when its
    answer was lost, and whoever repeats it has not looked at the gateway again (D-113).
    """
    held = await held_invoices.hold(work.tx, invoice_id)
    if held is None:
        raise not_found("invoice", invoice_id)
    if held.status is not InvoiceStatus.READY:
        raise EngineError(INVOICE_NOT_READY, f"The invoice {WHY_NOT[held.status]}.")
    if not await frozen_accounts.may_charge(work.tx):
        raise account_recovering()
    is_repeated = await is_repeat(work, request)
    await work.refresh()
    real_now = work.deps.clock()
    if held.is_leased(real_now) or (is_repeated and held.attempt is AttemptState.PARKED):
        return []
    if held.attempt is AttemptState.PARKED:
        await held_invoices.give_up_parked(work.tx, invoice_id)
    lease_until = real_now + issuance.LEASE if may_lease else None
    await held_invoices.make_due(work.tx, invoice_id, now=work.now, lease_until=lease_until)
    if may_lease:
        return await issuance.commit_to(work, [invoice_id])
    work.notify(LaneName.ISSUANCE)
    return []
