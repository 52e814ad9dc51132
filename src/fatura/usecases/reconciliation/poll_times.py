"""Decide which charges are polled or looked at now, and when charges are polled again (D-55)."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import accumulate, zip_longest
from typing import Protocol, TypeVar
from uuid import UUID

from fatura.domain.charge import InvoiceCharge
from fatura.domain.charging import PollBudget, jitter, next_poll_at, poll_phase
from fatura.store.charging import claims, waiting
from fatura.store.charging.claims import ClaimedInvoice, DuePoll
from fatura.store.connections import poll_budgets
from fatura.store.connections.connections import StoredConnection
from fatura.store.connections.poll_budgets import LockedBudget
from fatura.usecases.transaction import LaneName, Work

LEASE = timedelta(seconds=60)
"""How long a worker leases an invoice to poll its charges, in real time."""
WAIT_AGAIN_AFTER = timedelta(minutes=50)
"""Delay of a poll while the connection fails. A recovery of the connection makes the poll due earlier."""
WAIT_JITTER = timedelta(minutes=10)
_NEVER = datetime.min.replace(tzinfo=UTC)


class _Due(Protocol):
    @property
    def polls_first(self) -> bool: ...


T = TypeVar("T")
D = TypeVar("D", bound=_Due)


def next_poll(work: Work, charge: InvoiceCharge) -> datetime | None:
    """Return when an unpaid charge is polled again, or None when polling ends."""
    phase = poll_phase(charge.invoice_id, work.account.mode)
    return next_poll_at(charge.due_date, charge.payment_method, polled_at=work.now, phase=phase)


async def lease_due(work: Work, *, limit: int) -> Sequence[UUID]:
    """Lease up to `limit` invoices that are due for polling and whose connection may be polled now (D-35).

    The account's connections take turns, so that the backlog of one connection does not delay the polls of another.
    Due invoices of failing connections are leased too, because `allowed` must put them off.
    """
    real_now = work.deps.clock()
    budgets = await poll_budgets.lock_pollable(work.tx, now=work.now, real_now=real_now)
    if not budgets:
        return []
    most = rooms(budgets, limit=limit, real_now=real_now)
    due = await claims.due_polls(work.tx, most, now=work.now, real_now=real_now)
    polled_named = {each.connection_id: each.polled_named for each in budgets}
    queues: list[Sequence[DuePoll]] = []
    for connection_id, room in most.items():
        of_connection = [each for each in due if each.connection_id == connection_id]
        queues.append(_named_in_turn(of_connection, after_named=polled_named[connection_id])[:room])
    chosen = [each.invoice_id for each in in_turn(queues)][:limit]
    return await claims.lease_polls(
        work.tx, chosen, now=work.now, real_now=real_now, lease_until=real_now + LEASE
    )


def rooms(budgets: Sequence[LockedBudget], *, limit: int, real_now: datetime) -> Mapping[UUID, int]:
    """Return how many calls each connection may make now, at most `limit`.

    A connection that is failing, or whose polls are not limited, gets `limit`. Connections that were never polled come
    first. The others follow in the order in which their budgets allow the next poll.
    """
    found: dict[UUID, int] = {}
    for each in sorted(budgets, key=lambda each: each.free_from or _NEVER):
        budget = None if each.is_failing else each.budget
        found[each.connection_id] = limit if budget is None else min(budget.room(real_now=real_now), limit)
    return found


async def look_rooms(work: Work, *, limit: int, late: bool) -> Mapping[UUID, int]:
    """Lock the budgets of the connections that have a due look and may look now.

    Return how many looks each may make, at most `limit`. With `late`, do the same for late look-ups.
    """
    real_now = work.deps.clock()
    budgets = await poll_budgets.lock_lookable(work.tx, now=work.now, real_now=real_now, late=late)
    return rooms(budgets, limit=limit, real_now=real_now)


def connections_in_turn(due: Sequence[tuple[UUID, T]], rooms: Mapping[UUID, int]) -> list[tuple[UUID, T]]:
    """Order pairs of a connection and its work so that the connections take turns, in the order of `rooms`."""
    return in_turn([each for each in due if each[0] == connection_id] for connection_id in rooms)


def in_turn(queues: Iterable[Sequence[T]]) -> list[T]:
    """Return the first item of each queue, then the second item of each queue, and so on."""
    return [each for turn in zip_longest(*queues) for each in turn if each is not None]


def _named_in_turn(due: Sequence[D], *, after_named: bool) -> list[D]:
    """Order due polls alternately: first a poll that a webhook asked for, then a scheduled poll, and so on.

    With `after_named`, begin with a scheduled poll. If polls did not alternate, repeated webhooks about some charges
    could keep all other charges waiting without end (D-190).
    """
    groups = [[each for each in due if each.polls_first], [each for each in due if not each.polls_first]]
    return in_turn(reversed(groups) if after_named else groups)


async def allowed(
    work: Work,
    stored: StoredConnection,
    invoices: Sequence[ClaimedInvoice],
    *,
    calls: Mapping[UUID, int],
) -> Sequence[ClaimedInvoice]:
    """Return the leased invoices whose charges may be polled now, and end the leases of the others (D-55).

    The polls of a failing connection are put off. A poll that the budget does not allow stays due. `calls` has the
    number of charges to read for each invoice. If the budget allows the first call of an invoice, all calls of that
    invoice are made (D-176).
    """
    if stored.health.is_failing:
        at = [work.now + WAIT_AGAIN_AFTER + jitter(each.invoice_id, within=WAIT_JITTER) for each in invoices]
        await claims.reschedule_polls(work.tx, invoices, next_attempts_at=at, were_polled=False)
        await waiting.mark(work.tx, [each.invoice_id for each in invoices])
        return []
    connection_id, real_now = stored.connection.connection_id, work.deps.clock()
    locked = await poll_budgets.lock(work.tx, connection_id, of_looks=False, real_now=real_now)
    budget = locked.budget
    if budget is None:
        return invoices
    invoices = _named_in_turn(invoices, after_named=locked.polled_named)
    first_calls = list(accumulate((calls[each.invoice_id] for each in invoices), initial=0))
    room = budget.room(real_now=real_now)
    made = sum(first < room for first in first_calls[:-1])
    if made:
        free_from = budget.free_after(first_calls[made], real_now=real_now)
        named = invoices[made - 1].polls_first
        await poll_budgets.note_polls(work.tx, connection_id, polls_from=free_from, polled_named=named)
        if first_calls[made] >= room:  # the budget is used up, and further polls may be due
            work.notify(LaneName.RECONCILIATION, after=free_from - real_now)
    if made < len(invoices):
        await claims.release(work.tx, [each.invoice_id for each in invoices[made:]])
    return invoices[:made]


async def take(work: Work, stored: StoredConnection) -> timedelta:
    """Reserve a call in the budget of a connection, and return how long the call must wait (D-55).

    A call that must wait is not reserved: the caller must call `take` again later, or wait and then call `spend`.
    """
    budget = await _budget(work, stored)
    delay = timedelta() if budget is None else budget.delay(real_now=work.deps.clock())
    if not delay:
        await spend(work, stored)
    return delay


async def spend(work: Work, stored: StoredConnection) -> None:
    """Count a call that has waited for the time that `take` returned."""
    budget = await _budget(work, stored)
    if budget is not None:
        free_from = budget.free_after(1, real_now=work.deps.clock())
        await poll_budgets.set_polls_from(work.tx, stored.connection.connection_id, polls_from=free_from)


async def _budget(work: Work, stored: StoredConnection) -> PollBudget | None:
    if stored.polls_per_minute is None:
        return None
    connection_id, real_now = stored.connection.connection_id, work.deps.clock()
    return (await poll_budgets.lock(work.tx, connection_id, of_looks=False, real_now=real_now)).budget


async def take_looks(work: Work, connection_id: UUID, *, wanted: int, late: bool) -> int:
    """Reserve up to `wanted` looks in the budget of a connection, and return how many may be made now.

    With `late`, reserve late look-ups. Looks and late look-ups together use at most half of the budget, so that they
    cannot stop polls (D-162).
    """
    real_now = work.deps.clock()
    budget = (await poll_budgets.lock(work.tx, connection_id, of_looks=True, real_now=real_now)).budget
    if budget is None:
        return wanted
    made = min(wanted, budget.room(real_now=real_now))
    if made:
        await poll_budgets.note_looks(
            work.tx,
            connection_id,
            polls_from=budget.free_after(made, real_now=real_now),
            looks_from=budget.free_after(2 * made, real_now=real_now),
            late=late,
        )
    return made
