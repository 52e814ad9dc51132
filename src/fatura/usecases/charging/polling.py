"""Ask the gateway after open charges, and report what it says (D-26, D-35)."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from uuid import UUID

from fatura.domain.account import Account
from fatura.domain.charging import is_past_due, next_poll_at
from fatura.domain.invoice_states import Fact, InvoiceStatus
from fatura.gateways.port import CALL_TIMEOUT_SECONDS, Charge, ChargeState, Gateway, GatewayError
from fatura.observability import log
from fatura.store.charging import charges, connections
from fatura.store.charging.charges import ClaimedInvoice
from fatura.usecases.billing import invoice_moves
from fatura.usecases.billing.invoice_moves import Report
from fatura.usecases.charging import gateway_connections
from fatura.usecases.deps import Deps
from fatura.usecases.transaction import Work, in_transaction

STATES = (InvoiceStatus.ISSUED, InvoiceStatus.OVERDUE, InvoiceStatus.PAID, InvoiceStatus.CANCELED)
"""States whose charge may be asked after; the last two only when something woke them."""
LEASE = timedelta(seconds=60)
UNANSWERED_RETRY = timedelta(minutes=10)
"""When a gateway that did not answer is asked again."""

CLOSED = frozenset({ChargeState.PAID, ChargeState.CANCELED})
"""What no later answer takes back; a payment can still be given back or disputed."""

FACT_OF_STATE = {
    ChargeState.PAID: Fact.PAYMENT_CONFIRMED,
    ChargeState.REFUSED: Fact.PAYMENT_MISSED,
    ChargeState.EXPIRED: Fact.PAYMENT_MISSED,
    ChargeState.CANCELED: Fact.CHARGE_CANCELED,
}


@dataclass(frozen=True, slots=True)
class Answer:
    """What the gateway said of one invoice's charge, or how asking failed."""

    claimed: ClaimedInvoice
    charge: Charge | None
    asked_on: date


async def reconcile(deps: Deps, account: Account, *, limit: int) -> int:
    """Ask after up to `limit` due charges, all at once, and record the answers in sets; return how many were asked."""

    async def reserve(work: Work) -> Sequence[tuple[ClaimedInvoice, Gateway | None, date]]:
        ids = await _claim(work, limit=limit)
        if not ids:
            return []
        stored = {each.connection.connection_id: each for each in await connections.find_all(work.tx)}
        return [
            (claimed, gateway_connections.opened(work, stored[claimed.connection_id]), work.today)
            for claimed in await charges.claimed(work.tx, ids)
        ]

    jobs = await in_transaction(deps, account, reserve)
    if not jobs:
        return 0
    charged = await asyncio.gather(*(_ask(claimed, gateway) for claimed, gateway, _ in jobs))
    answers = [
        Answer(claimed, charge, asked_on=today)
        for (claimed, _, today), charge in zip(jobs, charged, strict=True)
    ]

    async def record(work: Work) -> None:
        await _record(work, answers)

    await in_transaction(deps, account, record)
    return len(answers)


async def _claim(work: Work, *, limit: int) -> list[UUID]:
    """Lease due charges state by state, so that each claim reads its index in order."""
    real_now = work.deps.clock()
    ids: list[UUID] = []
    for state in STATES:
        ids += await charges.claim(
            work.tx,
            state,
            now=work.now,
            real_now=real_now,
            lease_until=real_now + LEASE,
            limit=limit - len(ids),
        )
    return ids


async def _ask(claimed: ClaimedInvoice, gateway: Gateway | None) -> Charge | None:
    assert claimed.gateway_invoice_id is not None, "only a charge with an id is asked after"
    if gateway is None:
        return None
    try:
        async with asyncio.timeout(CALL_TIMEOUT_SECONDS):
            return await gateway.get_charge(claimed.gateway_invoice_id)
    except (GatewayError, TimeoutError) as error:
        log.warning("gateway.unanswered", invoice_id=str(claimed.invoice_id), error=str(error))
    except Exception:  # noqa: BLE001 - one charge's failure stops no other; it is asked after again
        log.exception("reconciliation.failed", invoice_id=str(claimed.invoice_id))
    return None


async def _record(work: Work, answers: Sequence[Answer]) -> None:
    """Report payments first, then what qualifies them; the rest is put off to its next poll.

    An answer from before a wake may be stale (a webhook, a deed in the sandbox): its charge is asked after again. That
    it is paid or canceled counts all the same: else webhooks without end would put a payment off without end.
    """
    woken = await charges.reschedule_polls(
        work.tx,
        [answer.claimed.invoice_id for answer in answers],
        claimed_for=[answer.claimed.next_attempt_at for answer in answers],
        next_attempts_at=[_next_poll_at(work, answer) for answer in answers],
    )
    poll_at = dict.fromkeys(woken, work.now)
    answers = [each for each in answers if each.claimed.invoice_id not in woken or _is_closed(each)]
    facts = [replace(each, poll_at=poll_at.get(each.invoice_id)) for each in map(_fact, answers) if each]
    await invoice_moves.report(work, facts)
    afterwards = [pair for answer in answers for pair in _afterwards(answer)]
    for fact in (Fact.REFUNDED, Fact.DISPUTED):
        told = [replace(each, poll_at=poll_at.get(each.invoice_id)) for of, each in afterwards if of is fact]
        await invoice_moves.report(work, told)


def _is_closed(answer: Answer) -> bool:
    return answer.charge is not None and answer.charge.state in CLOSED


def _next_poll_at(work: Work, answer: Answer) -> datetime | None:
    claimed, charge = answer.claimed, answer.charge
    if charge is None:
        return work.now + UNANSWERED_RETRY
    if charge.state in CLOSED:
        return None
    assert claimed.charge_due_date is not None, "an issued charge has a due date"
    return next_poll_at(claimed.charge_due_date, asked_at=work.now)


def _fact(answer: Answer) -> Report | None:
    """Return what the answer says of the charge's payment, or nothing."""
    claimed, charge = answer.claimed, answer.charge
    if charge is None:
        return None
    fact = FACT_OF_STATE.get(charge.state)
    if fact is None:
        assert claimed.charge_due_date is not None, "an issued charge has a due date"
        if not is_past_due(claimed.charge_due_date, claimed.payment_method, today=answer.asked_on):
            return None
        fact = Fact.PAYMENT_MISSED
    return Report(claimed.invoice_id, fact, charge_due_date=claimed.charge_due_date, paid_at=charge.paid_at)


def _afterwards(answer: Answer) -> list[tuple[Fact, Report]]:
    """Return what happened to the payment since: it counts only once it was confirmed (D-27)."""
    charge = answer.charge
    if charge is None:
        return []
    told = [(charge.refunded, Fact.REFUNDED), (charge.disputed, Fact.DISPUTED)]
    return [(fact, Report(answer.claimed.invoice_id, fact)) for happened, fact in told if happened]
