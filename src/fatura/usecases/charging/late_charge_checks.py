"""Look again for charges that were believed absent, or are one too many, and have a second one canceled (D-33, D-125).

A gateway that knows neither keys nor our ids may make a charge long after it was asked to, when there is another one.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from fatura.domain.account import Account
from fatura.domain.charging import LATE_CHECK_GAPS, AttemptState
from fatura.gateways.port import CALL_TIMEOUT_SECONDS, Charge, ChargeState, Gateway, GatewayError
from fatura.observability import log
from fatura.store.charging import charges, connections, late_charge_checks
from fatura.store.charging.charges import ClaimedInvoice, NewAttempt
from fatura.usecases.charging import gateway_connections, outcomes
from fatura.usecases.charging.delays import Tried
from fatura.usecases.deps import Deps
from fatura.usecases.transaction import Work, in_transaction

RETRY = timedelta(minutes=10)
"""When a gateway that did not answer is asked again."""


@dataclass(frozen=True, slots=True)
class _Look:
    """One attempt to be looked for; no gateway: its credentials do not open."""

    claimed: ClaimedInvoice
    attempt: NewAttempt
    sent_at: datetime
    gateway: Gateway | None


async def look(deps: Deps, account: Account, *, limit: int) -> int:
    """Look for the charges of up to `limit` attempts that are due for it, all at once; return how many."""

    async def reserve(work: Work) -> Sequence[_Look]:
        return await _reserve(work, limit=limit)

    looks = await in_transaction(deps, account, reserve)
    ended = await asyncio.gather(*(_look(deps, account, each) for each in looks), return_exceptions=True)
    for each, failure in zip(looks, ended, strict=True):
        if failure is not None:  # it stops no other look; the next one is planned already
            log.error("late_charge_check.failed", invoice_id=str(each.attempt.invoice_id), exc_info=failure)
    return len(looks)


async def _reserve(work: Work, *, limit: int) -> Sequence[_Look]:
    due = await late_charge_checks.claim(work.tx, now=work.now, waits=LATE_CHECK_GAPS[1:], limit=limit)
    if not due:
        return []
    stored = {each.connection.connection_id: each for each in await connections.find_all(work.tx)}
    invoices = await charges.claimed(work.tx, [attempt.invoice_id for attempt, _ in due])
    by_id = {each.invoice_id: each for each in invoices}
    return [
        _Look(
            by_id[attempt.invoice_id],
            attempt,
            sent_at,
            gateway_connections.opened(work, stored[attempt.connection_id]),
        )
        for attempt, sent_at in due
    ]


async def _look(deps: Deps, account: Account, each: _Look) -> None:
    """Adopt what the invoice waits for, tell what is one too many, and have that canceled."""
    found = await _found(each)

    async def record(work: Work) -> Sequence[Charge]:
        invoice_id, number = each.attempt.invoice_id, each.attempt.attempt
        locked = await charges.lock_attempt(work.tx, invoice_id, number)
        if found is None:
            await late_charge_checks.put_off(work.tx, invoice_id, number, next_check_at=work.now + RETRY)
        tried = Tried(each.claimed, each.attempt, each.sent_at, asked_at=work.now, looked_up=True)
        answers = [await outcomes.record(work, tried, charge) for charge in found or []]
        after = await charges.lock_attempt(work.tx, invoice_id, number)
        if found and after.state is AttemptState.CONFIRMED and locked.state is not after.state:
            await plan_first(work, found[0])  # adopted, while a worker may be sending again
        return [second for second in answers if second is not None]

    seconds = await in_transaction(deps, account, record)
    if each.gateway is not None:
        await asyncio.gather(*(cancel(each.gateway, charge) for charge in seconds))


async def _found(each: _Look) -> Sequence[Charge] | None:
    """Return the attempt's charges that are not canceled, oldest first; None when the gateway did not answer."""
    if each.gateway is None:
        return None
    try:
        async with asyncio.timeout(CALL_TIMEOUT_SECONDS):
            found = await each.gateway.find_charges(each.attempt.invoice_id, each.attempt.attempt)
    except (GatewayError, TimeoutError) as error:
        log.warning("late_charge_check.unanswered", invoice_id=str(each.attempt.invoice_id), error=str(error))
        return None
    return [charge for charge in found if charge.state is not ChargeState.CANCELED]


async def plan_first(work: Work, charge: Charge) -> None:
    """Have a charge's attempt looked at again, from the first look on."""
    next_check_at = work.now + LATE_CHECK_GAPS[0]
    await late_charge_checks.plan(work.tx, charge.invoice_id, charge.attempt, next_check_at=next_check_at)


async def cancel(gateway: Gateway, charge: Charge) -> None:
    """Have a second charge canceled that was told; the look that was planned with that finds out whether it is."""
    if charge.state is ChargeState.PAID:
        return
    try:
        async with asyncio.timeout(CALL_TIMEOUT_SECONDS):
            canceled = await gateway.cancel_charge(charge.charge_id)
    except (GatewayError, TimeoutError) as error:
        log.warning("late_charge_check.not_canceled", charge_id=charge.charge_id, error=str(error))
    else:
        log.warning("late_charge_check.canceled", charge_id=charge.charge_id, state=canceled.state)
