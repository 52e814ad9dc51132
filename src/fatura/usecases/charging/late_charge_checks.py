"""Check later for charges that look-ups did not find, and for second charges of an invoice (D-33, D-125).

A gateway that does not deduplicate may create a charge minutes after the request. By then, the attempt may have been
sent again, so that the invoice gets two charges.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from fatura.domain.account import Account
from fatura.domain.charging import LATE_CHECK_GAPS, AttemptState
from fatura.gateways.port import CALL_TIMEOUT_SECONDS, Charge, ChargeState, GatewayError
from fatura.observability import log
from fatura.store.charging import attempts, claims, late_charge_checks
from fatura.usecases.charging import gateway_connections, outcomes, second_charges
from fatura.usecases.charging.gateway_calls import CallKind, GatewayCall
from fatura.usecases.deps import Deps
from fatura.usecases.transaction import Work, in_transaction

RETRY_AFTER = timedelta(minutes=10)
"""Delay before a check is repeated if the gateway did not answer."""


async def check(deps: Deps, account: Account, *, limit: int) -> int:
    """Claim up to `limit` attempts whose check is due, check them concurrently, and return their number."""
    claimed, calls = await in_transaction(deps, account, _claim, limit=limit)
    failures = await asyncio.gather(*(_check(deps, account, call) for call in calls), return_exceptions=True)
    for call, failure in zip(calls, failures, strict=True):
        if failure is not None:  # only logged, because `_claim` has already scheduled the next check
            log.error("charge.late_check_failed", invoice_id=str(call.invoice.invoice_id), exc_info=failure)
    return claimed


async def _claim(work: Work, *, limit: int) -> tuple[int, Sequence[GatewayCall]]:
    due = await late_charge_checks.claim(work.tx, now=work.now, gaps=LATE_CHECK_GAPS[1:], limit=limit)
    if not due:
        return 0, []
    gateways = await gateway_connections.open_gateways(work, {attempt.connection_id for attempt in due})
    invoices = await claims.read(work.tx, [attempt.invoice_id for attempt in due])
    by_id = {invoice.invoice_id: invoice for invoice in invoices}
    calls: list[GatewayCall] = []
    for attempt in due:
        _, gateway = gateways[attempt.connection_id]
        if gateway is None:
            await late_charge_checks.make_earlier(work.tx, attempt, next_check_at=work.now + RETRY_AFTER)
        else:
            call = GatewayCall(
                kind=CallKind.LOOK_UP,
                invoice=by_id[attempt.invoice_id],
                # no known charges: if a restore found any, `outcomes.record` schedules a look-up of all of them
                attempt=replace(attempt, known_charge_ids=()),
                gateway=gateway,
                reserved_at=work.now,
                reserved_at_real=work.deps.clock(),
            )
            calls.append(call)
    return len(due), calls


async def _check(deps: Deps, account: Account, call: GatewayCall) -> None:
    charges = await _find_live_charges(call)
    seconds = await in_transaction(deps, account, _record, call, charges)
    await asyncio.gather(*(second_charges.cancel(call.gateway, second) for second in seconds))


async def _find_live_charges(call: GatewayCall) -> Sequence[Charge] | None:
    """Return the attempt's charges that are not canceled, oldest first; None when the gateway did not answer."""
    invoice_id = call.invoice.invoice_id
    try:
        async with asyncio.timeout(CALL_TIMEOUT_SECONDS):
            charges = await call.gateway.find_charges(invoice_id, call.attempt.number)
    except (GatewayError, TimeoutError) as error:
        log.warning("gateway.late_check_unanswered", invoice_id=str(invoice_id), error=str(error))
        return None
    return [charge for charge in charges if charge.state is not ChargeState.CANCELED]


async def _record(work: Work, call: GatewayCall, charges: Sequence[Charge] | None) -> Sequence[Charge]:
    """If the invoice has no charge yet, issue it with a found one. Return second charges for the caller to cancel."""
    invoice_id, number = call.invoice.invoice_id, call.attempt.number
    if charges is None:
        await late_charge_checks.make_earlier(work.tx, call.attempt, next_check_at=work.now + RETRY_AFTER)
        return []
    before = await attempts.lock_one(work.tx, invoice_id, number)
    seconds = [await outcomes.record(work, call, charge) for charge in charges]
    after = await attempts.lock_one(work.tx, invoice_id, number)
    if charges and after.state is AttemptState.CONFIRMED and before.state is not AttemptState.CONFIRMED:
        # a worker may be repeating the request and so create a second charge: check again later
        await second_charges.plan_checks(work, charges[0].invoice_id, charges[0].attempt)
    return [second for second in seconds if second is not None]
