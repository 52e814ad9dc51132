"""Decide which charges are polled now, and when charges are polled again (D-55)."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import accumulate, zip_longest
from uuid import UUID

from fatura.domain.charge import InvoiceCharge
from fatura.domain.charging import PollBudget, jitter, next_poll_at, poll_phase
from fatura.store.charging import claims, waiting
from fatura.store.charging.claims import ClaimedInvoice
from fatura.store.connections import connection_health as stored_health
from fatura.store.connections.connections import StoredConnection
from fatura.usecases.transaction import Work

WAIT_AGAIN_AFTER = timedelta(minutes=50)
"""Delay of a poll while the connection fails. A recovery of the connection makes the poll due earlier."""
WAIT_JITTER = timedelta(minutes=10)


def next_poll(work: Work, charge: InvoiceCharge) -> datetime | None:
    """Return when an unpaid charge is polled again, or None when polling ends."""
    phase = poll_phase(charge.invoice_id, work.account.mode)
    return next_poll_at(charge.due_date, charge.payment_method, polled_at=work.now, phase=phase)


async def allowed(
    work: Work,
    stored: StoredConnection,
    invoices: Sequence[ClaimedInvoice],
    *,
    calls: Mapping[UUID, int],
) -> Sequence[ClaimedInvoice]:
    """Return the invoices whose charges may be polled now, and put the other invoices off (D-55).

    A failing connection is not polled. Other connections are polled as fast as their budget allows. The invoices whose
    charges a webhook named and the others take turns, each group in the order of `invoices` (D-35).
    `calls` has the number of charges to read for each invoice. If the budget allows the first call of an invoice, all
    calls of that invoice are made (D-176).
    """
    if stored.health.is_failing:
        at = [work.now + WAIT_AGAIN_AFTER + jitter(each.invoice_id, within=WAIT_JITTER) for each in invoices]
        await claims.reschedule_polls(work.tx, invoices, next_attempts_at=at, polled_at=None)
        await waiting.mark(work.tx, [each.invoice_id for each in invoices])
        return []
    budget = await _budget(work, stored)
    if budget is None:
        return invoices
    real_now = work.deps.clock()
    invoices = await _in_turn(work, stored, invoices)
    first_calls = list(accumulate((calls[each.invoice_id] for each in invoices), initial=0))
    of_calls = budget.delays(first_calls[-1], real_now=real_now)
    delays = [of_calls[first] for first in first_calls[:-1]]
    later = [(each, delay) for each, delay in zip(invoices, delays, strict=True) if delay]
    now = invoices[: len(invoices) - len(later)]
    connection_id = stored.connection.connection_id
    if now:
        free_from = budget.free_after(first_calls[len(now)], real_now=real_now)
        await stored_health.set_polls_from(work.tx, connection_id, polls_from=free_from)
        await stored_health.set_polled_named(work.tx, connection_id, polled_named=now[-1].polls_first)
    if later:
        at = [work.now + delay for _, delay in later]
        await claims.reschedule_polls(
            work.tx, [each for each, _ in later], next_attempts_at=at, polled_at=None
        )
    return now


async def _in_turn(
    work: Work, stored: StoredConnection, invoices: Sequence[ClaimedInvoice]
) -> Sequence[ClaimedInvoice]:
    """Return the invoices that a webhook named and the others in turn, after the connection's newest poll.

    Without turns, repeated webhooks about some charges could keep the others waiting without end (D-190).
    """
    groups = [
        [each for each in invoices if each.polls_first],
        [each for each in invoices if not each.polls_first],
    ]
    if await stored_health.polled_named(work.tx, stored.connection.connection_id):
        groups.reverse()
    return [each for turn in zip_longest(*groups) for each in turn if each is not None]


async def take(
    work: Work, stored: StoredConnection, calls: int, *, are_looks: bool = False
) -> Sequence[timedelta]:
    """Reserve calls in the budget of a connection, and return how long each call must wait (D-55).

    Only calls that need not wait are reserved. For the others, the caller must call `take` again later, or wait
    and then call `spend`. Looks use at most half of the budget, so that they cannot stop polls (D-162).
    """
    budget = await _budget(work, stored, of_looks=are_looks)
    if budget is None:
        return [timedelta()] * calls
    real_now = work.deps.clock()
    delays = budget.delays(calls, real_now=real_now)
    made = delays.count(timedelta())
    if made:
        await stored_health.set_polls_from(
            work.tx,
            stored.connection.connection_id,
            polls_from=budget.free_after(made, real_now=real_now),
            looks_from=budget.free_after(2 * made, real_now=real_now) if are_looks else None,
        )
    return delays


async def spend(work: Work, stored: StoredConnection) -> None:
    """Count a call that has waited for as long as `take` said."""
    budget = await _budget(work, stored)
    if budget is not None:
        free_from = budget.free_after(1, real_now=work.deps.clock())
        await stored_health.set_polls_from(work.tx, stored.connection.connection_id, polls_from=free_from)


async def _budget(work: Work, stored: StoredConnection, *, of_looks: bool = False) -> PollBudget | None:
    """Lock and return the connection's budget of polls or looks, or None if it has no limit."""
    if stored.polls_per_second is None:
        return None
    free_from = await stored_health.lock_polls_from(
        work.tx, stored.connection.connection_id, of_looks=of_looks
    )
    return PollBudget(stored.polls_per_second, free_from or work.deps.clock())
