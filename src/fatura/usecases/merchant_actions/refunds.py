"""Refund payments of an invoice: through the gateway, or by recording a refund of manual payments (D-53).

The refund is committed with the Idempotency-Key before it is sent. A repeat with the same key continues that refund.
"""

from dataclasses import dataclass, replace
from functools import partial
from uuid import UUID

import msgspec

from fatura.domain.account import Account
from fatura.domain.charge import IN_DOUBT, ChargeStage
from fatura.domain.errors import (
    INVOICE_NOT_REFUNDABLE,
    REFUND_REFUSED,
    REFUND_UNSUPPORTED,
    EngineError,
    account_recovering,
    require,
)
from fatura.domain.invoice_states import InvoiceStatus
from fatura.domain.payments import EntryKind, EntrySource, PaymentEntry
from fatura.domain.refunds import Part, RefundRequest, RefundStage, choose
from fatura.domain.subscription import ERASED
from fatura.store.billing import payment_entries
from fatura.store.charging import issuance_state, refund_requests
from fatura.store.charging.issuance_state import IssuanceState
from fatura.store.connections import connections
from fatura.store.restore import frozen_accounts
from fatura.store.subscriptions import erased_rows, erasures
from fatura.usecases.audit_draft import AuditDraft
from fatura.usecases.billing import invoices
from fatura.usecases.deps import Deps
from fatura.usecases.idempotency import IdempotentRequest, execute_once, key_reused
from fatura.usecases.merchant_actions import charge_release
from fatura.usecases.open_call_limit import Places
from fatura.usecases.payments import merchant_requests, pending_payments, refund_calls
from fatura.usecases.transaction import Work, in_snapshot
from fatura.views.invoices import InvoiceView
from fatura.views.view import View

_BEING_ISSUED = IN_DOUBT | {ChargeStage.PLANNED, ChargeStage.ABSENT}


@dataclass(frozen=True, slots=True)
class RefundAnswer:
    """The invoice after the request. `is_replayed` is true if an earlier request had the same Idempotency-Key."""

    view: InvoiceView
    is_done: bool
    is_replayed: bool


class _Started(View):
    """The refund's id, stored for the Idempotency-Key. A repeated request continues this refund."""

    id: str


async def refund(
    deps: Deps,
    account: Account,
    request: IdempotentRequest,
    invoice_id: UUID,
    *,
    amount_cents: int | None,
    reason: str | None,
    draft: AuditDraft,
) -> RefundAnswer:
    """Refund an amount, and return the invoice after the gateway answered or timed out.

    A refund returns payments of one charge only, or manual payments only. If `amount_cents` is None, refund all the
    money that is not refunded yet. This fails if the money comes from several charges, or from a charge and from manual
    payments.
    Raises EngineError: `engine.not_found`, `engine.invoice_not_refundable`, `engine.amount_exceeds_paid`,
    `engine.too_many_refunds`, `engine.refund_unsupported`, `engine.refund_refused`, `engine.account_recovering`; the
    errors of `execute_once` and of `Places.take`.
    """
    with deps.gateway_requests.places(account.account_id) as places:
        start = partial(
            _start,
            invoice_id=invoice_id,
            key=request.key,
            amount_cents=amount_cents,
            reason=reason,
            places=places,
        )
        stored = await execute_once(deps, account, request, start, status=202, draft=draft)
        refund_id = UUID(msgspec.json.decode(stored.body, type=_Started).id)
        await refund_calls.settle_one(deps, account, refund_id, places=places)
    found, view = await in_snapshot(deps, account, _read, refund_id)
    if found.stage is RefundStage.FAILED:
        meta = {"code": found.error_code, "refundId": str(refund_id)}
        raise EngineError(REFUND_REFUSED, found.error_detail or "", meta=meta)
    return RefundAnswer(view, is_done=found.stage is RefundStage.DONE, is_replayed=stored.replayed)


async def _start(
    work: Work, *, invoice_id: UUID, key: str, amount_cents: int | None, reason: str | None, places: Places
) -> _Started:
    """Store the refund. If this process dies, a worker sends the refund after POLL_AFTER.

    A refund of manual payments is recorded as done immediately.
    """
    state = require(await issuance_state.lock(work.tx, invoice_id), "invoice", id_=invoice_id)
    await work.refresh()
    refund_id = work.deps.tagger.request_id("refund", invoice_id, key=key)
    started = _Started(id=str(refund_id))
    earlier = await refund_requests.find(work.tx, refund_id)
    if earlier is not None:  # an expired Idempotency-Key is used again
        wanted_cents = earlier.left_cents if amount_cents is None else amount_cents
        if wanted_cents != earlier.amount_cents:
            raise key_reused()
        work.audit_nothing()
        return started
    if not await frozen_accounts.may_record(work.tx):
        raise account_recovering()
    if await refund_requests.has_open(work.tx, invoice_id):
        detail = "Another refund of the invoice is pending; wait until it is done or failed."
        raise EngineError(INVOICE_NOT_REFUNDABLE, detail)
    if await merchant_requests.is_waiting(work, invoice_id):
        detail = (
            "A reissue or a payment waits until the gateway has canceled the charge; repeat it with its "
            "Idempotency-Key, then ask for the refund."
        )
        raise EngineError(INVOICE_NOT_REFUNDABLE, detail)
    if _is_being_issued(state):
        detail = "The invoice is being issued; wait until it has its charge, then ask for the refund."
        raise EngineError(INVOICE_NOT_REFUNDABLE, detail)
    ledger = (await payment_entries.of_invoices(work.tx, [invoice_id])).get(invoice_id, ())
    failed_count = await refund_requests.count_failed(work.tx, invoice_id)
    part, amount_cents = choose(ledger, amount_cents, failed_count=failed_count)
    new = RefundRequest(
        refund_id=refund_id,
        invoice_id=invoice_id,
        charge_id=part.charge_id,
        connection_id=part.connection_id,
        gateway_charge_id=part.gateway_charge_id,
        stage=RefundStage.PLANNED,
        amount_cents=amount_cents,
        left_cents=part.left_cents,
        currency=state.currency,
        reason=reason,
        created_at=work.now,
        next_attempt_at=work.now + charge_release.POLL_AFTER,
    )
    await _store(work, new, part, places=places)
    hidden = () if reason is None else ("reason",)
    work.audit(
        invoice_id,
        before={},
        after={"refundId": str(refund_id), "amountCents": amount_cents},
        hidden=hidden,
    )
    return started


async def _store(work: Work, new: RefundRequest, part: Part, *, places: Places) -> None:
    """Store a refund. If the customer is erased, do not store `reason`, and mark the refund as erased (D-229).

    The database removes the gateway's texts from a refund that is marked as erased.
    """
    is_erased = await erasures.is_erased(work.tx, new.invoice_id)
    if is_erased and new.reason is not None:
        new = replace(new, reason=ERASED)
    if part.source is EntrySource.MANUAL:
        await _record_manual(work, new)
    else:
        await _check_connection(work, part)
        places.take(1)
        await refund_requests.insert(work.tx, new)
    if is_erased:
        await erased_rows.refunds(work.tx, [new.invoice_id])


def _is_being_issued(state: IssuanceState) -> bool:
    """Return whether the engine requests a charge of the open amount now, or will request it.

    A refund would raise the open amount, so this charge would be too small.
    """
    stage = None if state.charge is None else state.charge.stage
    return state.status is InvoiceStatus.READY and stage in _BEING_ISSUED


async def _check_connection(work: Work, part: Part) -> None:
    assert part.connection_id is not None, "a payment of a gateway has a connection"
    stored = await connections.find(work.tx, part.connection_id)
    assert stored is not None, "a payment's connection exists"
    if not stored.connection.refunds:
        detail = "The gateway connection makes no refunds; refund the payment in the gateway instead."
        raise EngineError(REFUND_UNSUPPORTED, detail)
    if not stored.connection.active:
        detail = "The gateway connection is inactive; activate it, then ask for the refund."
        raise EngineError(INVOICE_NOT_REFUNDABLE, detail)


async def _record_manual(work: Work, new: RefundRequest) -> None:
    """Record a refund of manual payments. The merchant returns the money without the gateway."""
    entry = PaymentEntry(
        payment_entry_id=work.new_id(),
        invoice_id=new.invoice_id,
        kind=EntryKind.REFUND,
        amount_cents=new.amount_cents,
        fee_cents=0,
        currency=new.currency,
        occurred_at=work.now,
        source=EntrySource.MANUAL,
        recorded_at=work.now,
        note=new.reason,
    )
    await pending_payments.add(work, entry)
    await refund_requests.insert(work.tx, new.done_by(entry.payment_entry_id, at=work.now))


async def _read(work: Work, refund_id: UUID) -> tuple[RefundRequest, InvoiceView]:
    found = await refund_requests.find(work.tx, refund_id)
    assert found is not None, "a refund is never deleted"
    return found, await invoices.read(work, found.invoice_id)
