"""Make late look-ups: search for charges that earlier look-ups did not find, and for second charges (D-33, D-125).

A gateway that does not deduplicate may create a charge minutes after the request. If the engine has sent the request
again by then, the gateway holds two charges for the invoice.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from fatura.domain import unread_charges
from fatura.domain.account import Account
from fatura.domain.charge import IN_DOUBT, MAY_APPEAR, ChargeStage, InvoiceCharge
from fatura.domain.charging import LATE_CHECK_GAPS, next_incomplete_at
from fatura.gateways.port import (
    AuthFailedError,
    Charge,
    ChargeState,
    GatewayError,
    NotFoundError,
    PermanentError,
    TransientError,
)
from fatura.observability import log
from fatura.store.charging import charge_polling, charges, claims, late_charge_checks, unmatched_charges
from fatura.store.charging.claims import ClaimedInvoice
from fatura.store.restore import charge_matching, frozen_accounts
from fatura.usecases.charging import found_charges, gateway_calls, outcomes
from fatura.usecases.charging.gateway_calls import CallKind, FoundCharges, GatewayCall, OtherInvoiceError
from fatura.usecases.connections import connection_health, gateway_connections
from fatura.usecases.connections.observed_gateway import ObservedGateway
from fatura.usecases.deps import Deps
from fatura.usecases.one_by_one import each_alone_if_one_fails
from fatura.usecases.payments import gateway_payments, second_charges
from fatura.usecases.payments.gateway_payments import ChargeAnswer
from fatura.usecases.reconciliation import poll_times
from fatura.usecases.transaction import LaneName, Work, in_transaction

RETRY_AFTER = timedelta(minutes=10)
"""A late look-up is repeated after this time if the worker dies, or if the gateway refuses the credentials."""


async def check(deps: Deps, account: Account, *, limit: int) -> int:
    """Claim up to `limit` charges whose late look-up is due and allowed, and look them up.

    Return how many were claimed. Late look-ups that the budgets do not allow yet stay due, and are neither claimed nor
    counted.
    """
    limit = deps.answering.limit(account.account_id, limit)
    claimed, calls = await in_transaction(deps, account, _claim, limit=limit)
    failures = await asyncio.gather(*(_check(deps, account, call) for call in calls), return_exceptions=True)
    await connection_health.record(deps, account, [call.gateway for call in calls])
    for call, failure in zip(calls, failures, strict=True):
        if failure is not None:  # only logged: `_claim` has scheduled the look-up again
            log.error("charge.late_check_failed", invoice_id=str(call.invoice.invoice_id), exc_info=failure)
    return claimed


async def _claim(work: Work, *, limit: int) -> tuple[int, Sequence[GatewayCall]]:
    """Return how many charges were claimed, and the look-ups to make now. A frozen account gets no look-ups (D-123).

    The account's connections take turns.
    """
    may_look = await frozen_accounts.may_record(work.tx)
    rooms = await poll_times.look_rooms(work, limit=limit, late=True)
    if not rooms:
        return 0, []
    found = await late_charge_checks.due(work.tx, rooms, now=work.now)
    chosen = [charge_id for _, charge_id in poll_times.connections_in_turn(found, rooms)[:limit]]
    due = await late_charge_checks.claim(work.tx, chosen, now=work.now, repeat_at=work.now + RETRY_AFTER)
    if not may_look:
        return len(due), []
    return len(due), await each_alone_if_one_fails(work, due, _due_calls, put_off=_log_put_off)


async def _log_put_off(_work: Work, charge: InvoiceCharge) -> None:
    """Log a look-up that cannot be made. `_claim` has scheduled it again."""
    log.exception("charge.late_check_put_off", invoice_id=str(charge.invoice_id))


async def _due_calls(work: Work, due: Sequence[InvoiceCharge]) -> Sequence[GatewayCall]:
    """Return the look-ups that may be made now.

    Look-ups that the budget does not allow yet stay due. `_claim` has scheduled all others again.
    """
    gateways = await gateway_connections.open_for_calls(work, {charge.connection_id for charge in due})
    invoices = await claims.read(work.tx, [charge.invoice_id for charge in due])
    by_id = {invoice.invoice_id: invoice for invoice in invoices}
    calls: list[GatewayCall] = []
    for connection_id, opened in gateways.items():
        of_connection = [charge for charge in due if charge.connection_id == connection_id]
        if opened.gateway is None or opened.stored.health.is_failing:
            continue
        made = await poll_times.take_looks(work, connection_id, wanted=len(of_connection), late=True)
        waiting = [charge.charge_id for charge in of_connection[made:]]
        if waiting:
            await late_charge_checks.make_due(work.tx, waiting, now=work.now)
        calls += [
            _call(work, by_id[each.invoice_id], each, gateway=opened.gateway) for each in of_connection[:made]
        ]
    return calls


def _call(
    work: Work, invoice: ClaimedInvoice, charge: InvoiceCharge, *, gateway: ObservedGateway
) -> GatewayCall:
    # issuance reads the found charges by their ids, so a late look-up only searches by the reference
    is_parked = charge.stage is ChargeStage.PARKED and charge.error_code == "charge_missing"
    return GatewayCall(
        kind=CallKind.LOOK_UP,
        invoice=invoice,
        charge=charge if is_parked else replace(charge, known_charge_ids=()),
        gateway=gateway,
        reserved_at=work.now,
        reserved_at_real=work.deps.clock(),
    )


async def _check(deps: Deps, account: Account, call: GatewayCall) -> None:
    found = await _find_charges(call)
    charges = () if found is None else found.charges
    answers = [each for each in _answers(call, charges) if gateway_payments.may_exceed_batch(each.charge)]
    if answers and await in_transaction(deps, account, _report_seconds, call, answers):
        await gateway_payments.record_ahead(deps, account, answers)
    seconds = await in_transaction(deps, account, _record, call, found)
    await asyncio.gather(*(second_charges.cancel(call.gateway, second) for second in seconds))


def _answers(call: GatewayCall, found: Sequence[Charge]) -> Sequence[ChargeAnswer]:
    return [ChargeAnswer(call.invoice.invoice_id, call.charge.connection_id, charge) for charge in found]


async def _report_seconds(work: Work, call: GatewayCall, answers: Sequence[ChargeAnswer]) -> bool:
    """Report the second charges among these answers. Return whether `record_ahead` may now record the payments.

    In two cases, report nothing and return False:

    - The account is frozen (D-123).
    - The invoice can still adopt one of these charges, and must be issued before payments are recorded.
    """
    if not await frozen_accounts.may_record(work.tx):
        return False
    current = await charges.lock_one(work.tx, call.charge)
    if current.stage in MAY_APPEAR:
        return False
    ids = [answer.charge.charge_id for answer in answers]
    unstored = set(await unmatched_charges.without_charge(work.tx, current.connection_id, ids))
    for answer in answers:
        charge, known = answer.charge, current.gateway_invoice_id
        if charge.state is not ChargeState.CANCELED and charge.charge_id in unstored:
            await second_charges.emit(
                work, answer.invoice_id, connection_id=answer.connection_id, known=known, charge=charge
            )
    return True


async def _find_charges(call: GatewayCall) -> FoundCharges | None:
    """Return the charges that the look-up finds; None if the gateway refuses the credentials.

    `missing` has the charges that cannot be read by their ids. If the gateway answers that it does not know a charge,
    the charge is missing only if the provider's list contains it as an invalid charge.
    """
    try:
        return await _read(call, await _search(call))
    except AuthFailedError:
        return None


async def _search(call: GatewayCall) -> FoundCharges:
    """Search for charges with the call's reference, if the gateway offers look-ups.

    A refused search counts as a search without a result. Another failure becomes `search_error`. Raises
    AuthFailedError.
    """
    if call.gateway.capabilities().idempotency == "none":
        return FoundCharges((), ())
    try:
        found, invalid = await gateway_calls.search(call)
    except (NotFoundError, PermanentError):
        return FoundCharges((), ())
    except AuthFailedError:
        raise
    except (GatewayError, TimeoutError) as error:
        log.debug("gateway.late_check_unanswered", invoice_id=str(call.invoice.invoice_id), error=error)
        reason = error if isinstance(error, GatewayError) else TransientError("no answer in time")
        return FoundCharges((), (), reason)
    except Exception:  # noqa: BLE001 - after a defect of an adapter, the charges are read nevertheless
        log.exception("charge.search_failed", invoice_id=str(call.invoice.invoice_id))
        return FoundCharges((), (), TransientError(gateway_calls.UNEXPECTED))
    return FoundCharges(found, invalid)


async def _read(call: GatewayCall, searched: FoundCharges) -> FoundCharges:
    """Read some charges by their ids after the search, because a list can be out of date or wrong.

    - Read the charges that the list shows wrongly.
    - Read the charge whose gateway id the engine stores, if the list lacks it. After a restore, the number that the
      engine stores may be higher than the number in the gateway's reference. Then no search finds the charge (D-123).
    - If the attempt is parked as `charge_missing`, read each found charge that the list shows as unpaid (D-181). If
      only the list shows this charge, issuance could not read it, and would park the attempt again.
    """
    known, own = call.charge.known_charge_ids, call.charge.gateway_invoice_id
    lagging = [
        each.charge_id
        for each in searched.charges
        if each.charge_id in known and each.state is not ChargeState.CANCELED and not each.entries
    ]
    to_read = [*searched.missing, *lagging]
    if own is not None and own not in {each.charge_id for each in searched.charges}:
        to_read.append(own)
    answers = await gateway_calls.read(call, list(dict.fromkeys(to_read)))
    listed = [each for each in searched.charges if each.charge_id not in answers]
    read = [each for each in answers.values() if isinstance(each, Charge)]
    expected = {*known, *lagging, own}
    mine = [each for each in read if each.attempt == call.charge.number or each.charge_id in expected]
    elsewhere = [each.charge_id for each in read if each not in mine]
    strange = {charge_id for charge_id, each in answers.items() if isinstance(each, OtherInvoiceError)} - {
        own
    }
    elsewhere += sorted(strange)
    unread = [
        charge_id
        for charge_id, answer in answers.items()
        if not isinstance(answer, Charge)
        and charge_id not in strange
        and (charge_id in searched.missing or not isinstance(answer, NotFoundError))
    ]
    return replace(searched, charges=[*listed, *mine], missing=unread, elsewhere=elsewhere)


async def _record(work: Work, call: GatewayCall, answer: FoundCharges | None) -> Sequence[Charge]:
    """Record the charges that a late look-up found. If the invoice has no charge yet, issue it with one of them.

    Return the second charges, which the caller must cancel. Payments of canceled charges are recorded too (D-50).
    In a frozen account, record nothing: `fatura restored` must match all charges of an invoice together (D-123, D-181).
    """
    if answer is None or not await frozen_accounts.may_record(work.tx):
        return []  # `_claim` has scheduled the look-up again
    # This look-up does not read all known charges. Without their ids, `outcomes.record` treats them as newly found,
    # and lets issuance look them all up.
    call = replace(call, charge=replace(call.charge, known_charge_ids=()))
    found, connection_id = answer.charges, call.charge.connection_id
    before = await charges.lock_one(work.tx, call.charge)
    if before.stage is ChargeStage.MISSING and before.gateway_invoice_id in {
        each.charge_id for each in found
    }:
        # The gateway shows the missing charge again. A poll makes it payable, or applies a request that waits until it
        # is canceled (D-56).
        real_now = work.deps.clock()
        await charge_polling.make_due(work.tx, before.invoice_id, at=work.now, real_now=real_now)
        work.notify(LaneName.RECONCILIATION)
    own = await found_charges.without_stored(work, before, answer)
    live = await _best_first(work, call, before, own)
    seconds = [each for charge in live if (each := await outcomes.record(work, call, charge)) is not None]
    await second_charges.note_canceled(work, [(connection_id, charge) for charge in found])
    await unmatched_charges.end_unknown(work.tx, [(connection_id, charge.charge_id) for charge in found])
    unstored = await unmatched_charges.without_charge(work.tx, connection_id, answer.elsewhere)
    if unstored:
        await second_charges.look_soon(work, connection_id, unstored)
    after = await charges.lock_one(work.tx, call.charge)
    await _schedule(work, call, after, own, to_cancel=[each for each in seconds if each.is_payable])
    # while the outcome is unknown, leave the found charges to issuance: it first issues the invoice with one of them,
    # and the next poll then records their payments
    looked_up = set(after.known_charge_ids) if after.stage in IN_DOUBT else set[str]()
    answers = [each for each in _answers(call, found) if each.charge.charge_id not in looked_up]
    await gateway_payments.record(work, answers)
    if after.stage is ChargeStage.OPEN and before.stage is not ChargeStage.OPEN:
        # another worker may be repeating the request, which may create a second charge: start the look-ups again
        await second_charges.plan_checks(work, [call.charge.charge_id])
    return seconds


async def _best_first(
    work: Work, call: GatewayCall, stored: InvoiceCharge, answer: FoundCharges
) -> Sequence[Charge]:
    """Return the charges to record, without the canceled ones. An invoice without a charge adopts the first of them.

    If the attempt is in doubt and some charges are invalid, return no charge. Issuance then looks up all charges of the
    answer. It waits an hour for the invalid charges, because the payer may have paid one of them (D-181).
    """
    live = [charge for charge in answer.charges if charge.state is not ChargeState.CANCELED]
    if stored.stage not in MAY_APPEAR:
        return live
    if (
        answer.missing
        and stored.stage is not ChargeStage.PARKED
        and await found_charges.is_ready(work, stored)
    ):
        await found_charges.add(work, call, answer)
        await charge_matching.make_due(work.tx, stored.invoice_id, now=work.now)
        work.notify(LaneName.ISSUANCE)
        return ()
    if len(live) <= 1:
        return live
    expected = await found_charges.expectation(work, call.invoice, stored, found=live)
    best = found_charges.choose(live, expected)
    return [best, *(each for each in live if each is not best)]


async def _schedule(
    work: Work,
    call: GatewayCall,
    stored: InvoiceCharge,
    answer: FoundCharges,
    *,
    to_cancel: Sequence[Charge],
) -> None:
    """Schedule the next late look-up of a charge.

    - If the search failed or a charge could not be read, this look-up is incomplete. Repeat an incomplete look-up, with
      growing pauses. If the look-ups have been incomplete for too long, end them.
    - If the caller now cancels second charges (`to_cancel`), repeat the look-up too, to check that these charges were
      canceled. But do not repeat it if the engine has stopped trying to cancel them.
    - Otherwise, count the look-up and schedule the next one as usual.
    """
    charge_id, repeat_at = call.charge.charge_id, call.reserved_at + RETRY_AFTER
    until: list[datetime] = []
    if to_cancel:
        seconds = [(call.charge.connection_id, each) for each in to_cancel]
        until += (await second_charges.next_cancellations(work, seconds)).values()
    if answer.missing or answer.search_error is not None:
        again_at = await _incomplete(work, stored, answer)
        until += [] if again_at is None else [again_at]
        if not until:
            await late_charge_checks.end(work.tx, charge_id, repeat_at=repeat_at)
            return
    else:
        await late_charge_checks.note_complete(work.tx, charge_id)
    if until:
        await late_charge_checks.put_off(work.tx, charge_id, repeat_at=repeat_at, until=min(until))
        return
    next_checks_at = [work.now + gap for gap in LATE_CHECK_GAPS[1:]]
    await late_charge_checks.count(work.tx, charge_id, repeat_at=repeat_at, next_checks_at=next_checks_at)


async def _incomplete(work: Work, stored: InvoiceCharge, answer: FoundCharges) -> datetime | None:
    """Return when to repeat an incomplete look-up, or None if look-ups have been incomplete for too long.

    `unmatched_charges` also reads the missing charges by their ids, except the charge whose gateway id is stored. If
    a charge has been missing for REPORTED_AFTER, emit `invoice.issue_failed` once for this charge.
    """
    since, before = await late_charge_checks.note_incomplete(work.tx, stored.charge_id, now=work.now)
    known = await unmatched_charges.reported(work.tx, stored.connection_id, answer.missing)
    new = [each for each in answer.missing if each not in known and each != stored.gateway_invoice_id]
    await second_charges.look_late(work, stored.connection_id, expired=(), missing=new)
    read = {*(each.charge_id for each in answer.charges), *answer.elsewhere}
    unread = unread_charges.after_look_up(before, answer.missing, read=read, now=work.now)
    overdue = unread_charges.to_report(unread, answer.missing, now=work.now)
    await second_charges.report_unread(work, stored, overdue)
    unread = unread_charges.with_reported(unread, overdue)
    await late_charge_checks.save_unread(work.tx, stored.charge_id, unread)
    return next_incomplete_at(since, now=work.now)
