"""Poll charges at the gateways and record payments, refunds and disputes (D-26, D-35).

`reconcile` polls the charges of a batch of invoices whose poll is due. `probe` polls the charges of one invoice, to
test whether a failing connection works again.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

from fatura.domain.account import Account
from fatura.domain.calendar import local_date
from fatura.domain.charging import POLL_FOR, is_past_due, next_paid_poll_at
from fatura.domain.invoice_states import Fact, InvoiceStatus
from fatura.gateways.port import Charge, ChargeState
from fatura.observability import log
from fatura.store.billing import invoices as stored_invoices
from fatura.store.billing import payment_entries
from fatura.store.charging import charge_polling, charges, claims, waiting
from fatura.store.charging.claims import ClaimedInvoice
from fatura.store.restore import frozen_accounts
from fatura.usecases.billing import invoice_moves
from fatura.usecases.billing.invoice_moves import Report
from fatura.usecases.connections import charge_calls, connection_health, gateway_connections
from fatura.usecases.connections.observed_gateway import ObservedGateway
from fatura.usecases.deps import Deps
from fatura.usecases.one_by_one import PUT_OFF_BY, each_alone_if_one_fails
from fatura.usecases.payments import (
    gateway_payments,
    merchant_requests,
    second_charges,
    waiting_requests,
)
from fatura.usecases.reconciliation import charge_stages, missing_charges, poll_times
from fatura.usecases.reconciliation.invoice_polls import Asked, Poll, answers_of, ask
from fatura.usecases.transaction import LaneName, Work, in_transaction

_POLLED_STATES = (InvoiceStatus.ISSUED, InvoiceStatus.OVERDUE, InvoiceStatus.PAID, InvoiceStatus.CANCELED)
"""States in which an invoice can be due for a poll. For example, a webhook makes a CANCELED invoice due."""
RETRY_AFTER = timedelta(minutes=10)
"""Delay before a poll is repeated, for example because the gateway did not answer."""
FACT_OF_STATE = {
    ChargeState.REFUSED: Fact.PAYMENT_MISSED,
    ChargeState.EXPIRED: Fact.PAYMENT_MISSED,
    ChargeState.CANCELED: Fact.CHARGE_CANCELED,
}


async def reconcile(deps: Deps, account: Account, *, limit: int) -> int:
    """Claim up to `limit` invoices whose poll is due and allowed, and poll their charges concurrently.

    One transaction records all answers. If it fails, one transaction for each invoice records the answers about that
    invoice, so that one faulty answer does not block the others. Afterwards, charges that nobody should pay are
    canceled at the gateway. A poll that the budget does not allow yet stays due. Return the number of claimed invoices.
    """
    limit = deps.answering.limit(account.account_id, limit)
    claimed, polls = await in_transaction(deps, account, _claim, limit=limit)
    await _poll_and_record(deps, account, polls)
    return claimed


async def probe(deps: Deps, account: Account, connection_id: UUID) -> ObservedGateway | None:
    """Poll one invoice that waits for a failing connection, and return the connection's gateway (D-55).

    Return None if no invoice waits, or if the credentials cannot be decrypted.
    """
    polls = await in_transaction(deps, account, _claim_probe, connection_id)
    await _poll_and_record(deps, account, polls)
    return polls[0].gateway if polls else None


async def _poll_and_record(deps: Deps, account: Account, polls: Sequence[Poll]) -> None:
    if polls:
        await _record_answers(deps, account, await asyncio.gather(*map(ask, polls)))
        await connection_health.record(deps, account, [each.gateway for each in polls if each.gateway])


async def _record_answers(deps: Deps, account: Account, answered: Sequence[Poll]) -> None:
    try:
        await gateway_payments.record_ahead(deps, account, answers_of(answered))
        unwanted = await in_transaction(deps, account, _record, answered)
    except Exception:  # noqa: BLE001 - each answer is recorded alone; the failure of one is logged
        if len(answered) == 1:
            log.exception("charge.poll_not_recorded", invoice_id=str(answered[0].invoice.invoice_id))
            await in_transaction(deps, account, _put_off, answered[0].invoice)
        else:
            await asyncio.gather(*(_record_answers(deps, account, [each]) for each in answered))
        return
    await asyncio.gather(*(_cancel(deps, account, gateway, charge) for gateway, charge in unwanted))


async def _cancel(deps: Deps, account: Account, gateway: ObservedGateway, charge: Charge) -> None:
    """Cancel a charge that nobody should pay. If the gateway does not confirm, report the charge (D-185)."""
    if not await second_charges.cancel(gateway, charge):
        await in_transaction(
            deps,
            account,
            second_charges.emit,
            charge.invoice_id,
            connection_id=gateway.connection_id,
            known=None,
            charge=charge,
        )


async def _claim(work: Work, *, limit: int) -> tuple[int, Sequence[Poll]]:
    """Lease due invoices. Return how many were leased, and the polls to make now. Do not poll failing connections."""
    ids = await poll_times.lease_due(work, limit=limit)
    return len(ids), await each_alone_if_one_fails(work, ids, _due_polls, put_off=_put_off_failing)


async def _due_polls(work: Work, ids: Sequence[UUID]) -> Sequence[Poll]:
    """Return the polls of leased invoices to make now."""
    invoices = await claims.read(work.tx, ids)
    opened = await gateway_connections.open_for_calls(work, {each.connection_id for each in invoices})
    polls: list[Poll] = []
    for each in opened.values():
        connection_id = each.stored.connection.connection_id
        of_connection = [invoice for invoice in invoices if invoice.connection_id == connection_id]
        planned = await _polls(work, of_connection, each.gateway)
        calls = {poll.invoice.invoice_id: len(poll.asked) for poll in planned}
        allowed = await poll_times.allowed(work, each.stored, of_connection, calls=calls)
        allowed_ids = {invoice.invoice_id for invoice in allowed}
        polls += [poll for poll in planned if poll.invoice.invoice_id in allowed_ids]
    return polls


async def _claim_probe(work: Work, connection_id: UUID) -> Sequence[Poll]:
    real_now = work.deps.clock()
    ids = await waiting.claim(
        work.tx, connection_id, _POLLED_STATES, real_now=real_now, lease_until=real_now + poll_times.LEASE
    )
    return await each_alone_if_one_fails(
        work, ids, partial(_probe_polls, connection_id=connection_id), put_off=_put_off_failing
    )


async def _probe_polls(work: Work, ids: Sequence[UUID], *, connection_id: UUID) -> Sequence[Poll]:
    opened = await gateway_connections.open_gateways(work, {connection_id}, is_probe=True)
    return await _polls(work, await claims.read(work.tx, ids), opened[connection_id].gateway)


async def _put_off_failing(work: Work, invoice_id: UUID) -> None:
    log.exception("charge.poll_put_off", invoice_id=str(invoice_id))
    await claims.put_off(work.tx, [invoice_id], until=[work.now + PUT_OFF_BY])


async def _polls(
    work: Work, invoices: Sequence[ClaimedInvoice], gateway: ObservedGateway | None
) -> Sequence[Poll]:
    """Return the polls of leased invoices of one connection."""
    asked: dict[UUID, list[Asked]] = {}
    for charge in await charges.confirmed(work.tx, [invoice.invoice_id for invoice in invoices]):
        asked.setdefault(charge.invoice_id, []).append(Asked(charge))
    return [Poll(invoice, gateway, work.now, tuple(asked[invoice.invoice_id])) for invoice in invoices]


async def _put_off(work: Work, invoice: ClaimedInvoice) -> None:
    """Schedule another poll of an invoice whose answers were not recorded."""
    await claims.reschedule_polls(
        work.tx, [invoice], next_attempts_at=[work.now + RETRY_AFTER], were_polled=True
    )


async def _record(work: Work, polls: Sequence[Poll]) -> Sequence[tuple[ObservedGateway, Charge]]:
    """Record the answers of polls, change the invoices, and schedule the next polls.

    If a webhook made an invoice due again during its poll, the answer may be outdated, so the invoice is polled again.
    Payments, refunds and disputes in the answer are recorded nevertheless, because they never become outdated. The
    states paid and canceled are recorded too. Otherwise, repeated webhooks could delay the recording without limit.

    Return the charges to cancel: second charges, and charges that are payable although their invoice is paid or
    canceled.
    """
    # `fatura restored` must match the gateway's charges before polls change the invoices
    if not await frozen_accounts.may_record(work.tx):
        for each in polls:
            await _put_off(work, each.invoice)
        return []
    ids = [each.invoice.invoice_id for each in polls]
    await stored_invoices.lock(work.tx, ids)
    paid_at = await payment_entries.newest_payments(work.tx, ids)
    polls = [replace(each, paid_at=paid_at.get(each.invoice.invoice_id)) for each in polls]
    next_at = [_next_poll_at(work, each) for each in polls]
    due_again = await claims.reschedule_polls(
        work.tx, [each.invoice for each in polls], next_attempts_at=next_at, were_polled=True
    )
    unanswered = [each.invoice.invoice_id for each in polls if not each.is_answered]
    if unanswered:
        await waiting.mark(work.tx, unanswered)
    paid_now = await gateway_payments.record(work, answers_of(polls), due_again=due_again)
    await charge_calls.record(work, [made for each in polls for made in each.changing(paid_now)])
    polls = await charge_stages.without_outdated(work, polls)
    poll_at = dict(zip(ids, next_at, strict=True)) | dict.fromkeys(due_again, work.now)
    undecided = await merchant_requests.undecided(work, ids)
    current = [each for each in polls if each.invoice.invoice_id not in due_again or each.is_closed]
    current = [each for each in current if each.invoice.invoice_id not in undecided or not each.is_released]
    current, seconds = await charge_stages.record(work, current)
    newest = [(each.newest, each.asked[-1].answer) for each in current]
    answered = [(charge, answer) for charge, answer in newest if answer is not None]
    reissued = await waiting_requests.settle(work, answered)
    current = [each for each in current if each.invoice.invoice_id not in reissued]
    await _report_facts(work, current, poll_at=poll_at)
    payable = [charge.invoice_id for charge, answer in answered if answer.is_payable]
    await merchant_requests.plan_polls(work, payable)
    if undecided:
        decided_at = work.now + merchant_requests.IN_PROGRESS_FOR
        await charge_polling.make_due_by(work.tx, list(undecided), at=[decided_at] * len(undecided))
    unwanted = [*seconds, *await _payable_in_vain(work, polls, seconds)]
    if unwanted:  # if a charge cannot be canceled now, the next poll leads to another attempt
        planned = await second_charges.next_cancellations(
            work, [(gateway.connection_id, charge) for gateway, charge in unwanted]
        )
        await charge_polling.make_due_by(work.tx, list(planned), at=list(planned.values()))
    return unwanted


async def _report_facts(
    work: Work, polls: Sequence[Poll], *, poll_at: Mapping[UUID, datetime | None]
) -> None:
    """Report to `invoice_moves` the facts that follow from the polls. `poll_at` is when to poll each invoice again.

    A canceled invoice without payments is not polled, so late look-ups read its canceled charge (D-27).
    """
    reports = [
        replace(fact, poll_at=poll_at.get(fact.invoice_id)) for fact in map(_fact, polls) if fact is not None
    ]
    moved = await invoice_moves.report(work, reports)
    if moved:  # plan again: `poll_at` was computed before the payments in the answers were recorded
        await gateway_payments.plan_polls(work, list(moved))
    canceled = moved.intersection(each.invoice_id for each in reports if each.fact is Fact.CHARGE_CANCELED)
    if canceled:
        charge_ids = [each.newest.charge_id for each in polls if each.invoice.invoice_id in canceled]
        await second_charges.plan_checks(work, charge_ids)


async def _payable_in_vain(
    work: Work, polls: Sequence[Poll], seconds: Sequence[tuple[ObservedGateway, Charge]]
) -> Sequence[tuple[ObservedGateway, Charge]]:
    """Return the payable charges of paid or canceled invoices, without the second charges in `seconds`."""
    gateways = {poll.invoice.invoice_id: poll.gateway for poll in polls}
    reported = {second.charge_id for _, second in seconds}
    return [
        (gateway, each)
        for each in await gateway_payments.payable_in_vain(work, answers_of(polls))
        if (gateway := gateways[each.invoice_id]) is not None and each.charge_id not in reported
    ]


def _next_poll_at(work: Work, poll: Poll) -> datetime | None:
    """Return when to poll again. If a payment is recorded now, `gateway_payments` may choose an earlier time."""
    at = None if poll.invoice.paid_at is not None else _next_unpaid_poll_at(work, poll)
    return at or _next_paid_poll_at(work, poll)


def _next_paid_poll_at(work: Work, poll: Poll) -> datetime | None:
    """Return when to poll a paid or partly paid invoice again, to find refunds and disputes, or None if never.

    If the gateway left out at least one charge, poll again soon, until the newest payment is older than POLL_FOR.
    """
    payments = [at for at in (poll.paid_at, poll.invoice.paid_at) if at is not None]
    if not payments:
        return None
    paid_at = max(payments)
    if poll.has_all_answers:
        return next_paid_poll_at(poll.invoice.invoice_id, paid_at=paid_at, polled_at=work.now)
    return work.now + RETRY_AFTER if work.now < paid_at + POLL_FOR else None


def _next_unpaid_poll_at(work: Work, poll: Poll) -> datetime | None:
    answer = poll.decisive.answer
    if poll.decisive.is_unknown:
        return missing_charges.next_poll_at(work, poll.decisive.charge, polled_at=poll.polled_at)
    if answer is None:
        return work.now + RETRY_AFTER
    if answer.state is ChargeState.CANCELED:
        return None
    return poll_times.next_poll(work, poll.decisive.charge)


def _fact(poll: Poll) -> Report | None:
    """Return the fact to report to `invoice_moves`, according to the state of the poll's decisive charge.

    Return None if the gateway did not answer, or if no fact follows from the answer.
    """
    charge, answer = poll.decisive.charge, poll.decisive.answer
    if answer is None:
        return None
    fact = FACT_OF_STATE.get(answer.state)
    if fact is None:
        if not is_past_due(charge.due_date, charge.payment_method, today=local_date(poll.polled_at)):
            return None
        fact = Fact.PAYMENT_MISSED
    return Report(
        poll.invoice.invoice_id,
        fact,
        gateway_invoice_id=charge.gateway_invoice_id,
        charge_due_date=charge.due_date,
        issued_at=charge.confirmed_at,
    )


async def poll_now(work: Work, invoice_id: UUID) -> None:
    """Make an invoice's charges due for polling immediately."""
    await charge_polling.make_due(work.tx, invoice_id, at=work.now, real_now=work.deps.clock())
    work.notify(LaneName.RECONCILIATION)


async def check_earlier_now(work: Work, connection_id: UUID, gateway_invoice_id: str) -> None:
    """If the invoice of this charge was reissued and is `ready`, schedule an immediate late look-up of the charge."""
    if await charge_polling.make_earlier_due(work.tx, [(connection_id, gateway_invoice_id)], now=work.now):
        work.notify(LaneName.RECONCILIATION)
