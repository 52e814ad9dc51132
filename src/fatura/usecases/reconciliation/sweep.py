"""Compare the stored charges of a connection with the provider's list of charges, every night (D-161).

A sweep first compares each listed charge with the stored charge. Then it finds the stored charges that the list lacks.
A run of a sweep reads the list page by page, and stores its progress after each page. If the process dies, or after
RUN_SECONDS, the next run continues from the stored progress. A sweep does not correct a difference itself. It schedules
work that reads the charge from the provider again: a poll or late look-up of a stored charge, or
`unmatched_charges.look` for an unmatched charge.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

from fatura.domain.account import Account
from fatura.domain.charge import PAYABLE, ChargeStage, may_move
from fatura.domain.charging import jitter
from fatura.domain.sweeping import MARGIN, PAID_LISTED_AGAIN_AFTER, WINDOW, next_sweep_at
from fatura.gateways.port import CALL_TIMEOUT_SECONDS, Charge, GatewayError
from fatura.ids import least_id
from fatura.observability import log
from fatura.store.charging import charge_polling, connection_sweeps, listed_charges
from fatura.store.charging import unmatched_charges as stored_unmatched
from fatura.store.charging.connection_sweeps import ClaimedSweep
from fatura.store.charging.listed_charges import OwnCharge
from fatura.store.connections.connections import StoredConnection
from fatura.store.restore import frozen_accounts, lost_invoices
from fatura.usecases.connections import connection_health, credential_expiry, gateway_connections
from fatura.usecases.connections.observed_gateway import Listed, ObservedGateway
from fatura.usecases.deps import Deps
from fatura.usecases.one_by_one import each_alone_if_one_fails
from fatura.usecases.operations import call_counts
from fatura.usecases.payments import gateway_payments
from fatura.usecases.reconciliation import poll_times, scheduled_looks
from fatura.usecases.transaction import LaneName, Work, in_transaction

PAGE = 100
"""Number of listed charges that one transaction compares. A page counts as one poll in the budget (D-55)."""
CHECKED_AT_ONCE = 2000
"""Number of stored charges that one transaction checks."""
RUN_SECONDS = 20
"""How long a run works on a sweep before it lets the account's other sweeps run."""
LEASE = timedelta(seconds=60)
"""How long a run leases a sweep. Each page renews the lease."""
LONGEST_PAUSE = timedelta(seconds=5)
"""Longest wait of a run for its next page. If the budget requires a longer wait, a later run continues the sweep."""
RETRY_AFTER = timedelta(minutes=10)
"""Delay before a sweep continues if the provider did not answer."""
WAIT_AFTER, WAIT_JITTER = timedelta(minutes=50), timedelta(minutes=10)
"""Minimum delay, and maximum extra delay, of a sweep whose connection is failing or whose account is being restored."""
assert timedelta(seconds=CALL_TIMEOUT_SECONDS) + LONGEST_PAUSE < LEASE


@dataclass(frozen=True, slots=True)
class _Claim:
    """A leased sweep with its opened connection. `delay` is how long the first page must wait."""

    sweep: ClaimedSweep
    stored: StoredConnection
    gateway: ObservedGateway
    delay: timedelta


@dataclass(frozen=True, slots=True)
class _Step:
    """The progress that one transaction stored, and its findings. `delay` is how long the next page must wait."""

    sweep: ClaimedSweep
    findings: Counter[str]
    delay: timedelta = timedelta()
    is_last: bool = False


@dataclass(slots=True)
class _Run:
    """One run of a sweep; `sweep` is the progress that the most recent transaction stored."""

    deps: Deps
    account: Account
    stored: StoredConnection
    gateway: ObservedGateway
    sweep: ClaimedSweep
    ends_at: float
    findings: Counter[str] = field(default_factory=Counter[str])

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self.ends_at

    def take(self, step: _Step) -> None:
        """Use the progress that a transaction stored, and add its findings to those of the run."""
        self.sweep = step.sweep
        self.findings += step.findings


async def sweep(deps: Deps, account: Account) -> int:
    """Run the account's sweep that has been due longest. Return 0 if none is due."""
    is_due, claim = await in_transaction(deps, account, _claim)
    if claim is None:
        return int(is_due)
    run = _Run(deps, account, claim.stored, claim.gateway, claim.sweep, time.monotonic() + RUN_SECONDS)
    try:
        # wait here, because polls could use up the budget again before a later run
        await asyncio.sleep(claim.delay.total_seconds())
        if await _read_list(run, delay=claim.delay):
            await _look_for_own(run)
    except Exception as error:  # noqa: BLE001 - a defect must not repeat the sweep without a pause
        is_defect = not isinstance(error, (GatewayError, TimeoutError))
        of = str(claim.sweep.connection_id)
        log.warning("sweep.unanswered", connection_id=of, error=error, exc_info=is_defect)
        await in_transaction(deps, account, _release, run.sweep, after=RETRY_AFTER)
    finally:
        _report(run)
        await connection_health.record(deps, account, [run.gateway])
    return 1


def _report(run: _Run) -> None:
    found = +run.findings
    call_counts.count_findings(found)
    if found:
        log.warning("sweep.found", connection_id=str(run.sweep.connection_id), **found)


async def _claim(work: Work) -> tuple[bool, _Claim | None]:
    """Lease the sweep that has been due longest, and begin it.

    Return whether a sweep was due. Also return the claim, or None if the sweep was put off. A sweep is put off if its
    connection is failing, cannot be opened or has no list, if the budget requires a wait longer than LONGEST_PAUSE, or
    if the account is frozen. An inactive connection is swept too (D-55, D-123).
    """
    real_now = work.deps.clock()
    claimed = await connection_sweeps.claim(
        work.tx, now=work.now, real_now=real_now, lease_until=real_now + LEASE
    )
    if claimed is None:
        return False, None
    connection_id = claimed.connection_id
    opened = (await gateway_connections.open_for_calls(work, {connection_id}))[connection_id]
    await credential_expiry.tell(work, opened.stored)
    gateway = opened.gateway
    if gateway is None or opened.stored.health.is_failing or not await frozen_accounts.may_record(work.tx):
        wait = WAIT_AFTER + jitter(connection_id, within=WAIT_JITTER)
        await _release(work, claimed, after=wait)
        return True, None
    if not gateway.capabilities().lists_charges:
        at = next_sweep_at(connection_id, now=work.now)
        await connection_sweeps.release(work.tx, claimed, next_sweep_at=at)
        return True, None
    delay = await poll_times.take(work, opened.stored)
    if delay > LONGEST_PAUSE:
        await _release(work, claimed, after=delay)
        return True, None
    listed_to = claimed.listed_to or claimed.swept_to - WINDOW
    begun = await _advance(work, claimed, started_at=claimed.started_at or work.now, listed_to=listed_to)
    assert begun is not None, "the row is locked"
    return True, _Claim(begun, opened.stored, gateway, delay)


async def _advance(
    work: Work,
    of: ClaimedSweep,
    *,
    started_at: datetime | None = None,
    listed_to: datetime | None = None,
    checked_to: UUID | None = None,
) -> ClaimedSweep | None:
    """Store the progress of a sweep. Return None if this worker's lease expired and another worker leased the sweep."""
    started_at, listed_to = started_at or of.started_at, listed_to or of.listed_to
    assert started_at is not None, "the sweep has begun"
    assert listed_to is not None, "the sweep has begun"
    return await connection_sweeps.advance(
        work.tx,
        of,
        lease_until=work.deps.clock() + LEASE,
        started_at=started_at,
        listed_to=listed_to,
        checked_to=checked_to or of.checked_to,
    )


async def _release(work: Work, of: ClaimedSweep, *, after: timedelta = timedelta()) -> None:
    await connection_sweeps.release(work.tx, of, next_sweep_at=work.now + after)


async def _read_list(run: _Run, *, delay: timedelta) -> bool:
    """Compare the pages of the provider's list from `listed_to` on. Return whether the end of the list was reached.

    `delay` is how long the first page has waited for the budget. A page that waited is counted in the budget after it
    was read. The next run begins with the charges created at `listed_to`, which may be many. So a run ends only after
    it has advanced `listed_to`: otherwise, no run could get past these charges.
    """
    began_at = run.sweep.listed_to
    assert began_at is not None, "the sweep has begun"
    if run.sweep.checked_to is not None:
        return True
    async with aclosing(run.gateway.charge_pages(began_at, size=PAGE)) as pages:
        async for page in pages:
            if delay:
                await in_transaction(run.deps, run.account, poll_times.spend, run.stored)
            step = await in_transaction(run.deps, run.account, _compare, run.sweep, run.stored, page)
            if step is None:
                return _lost_lease(run)
            run.take(step)
            has_advanced = run.sweep.listed_to != began_at
            if has_advanced and (run.is_over or step.delay > LONGEST_PAUSE):
                await in_transaction(run.deps, run.account, _release, run.sweep, after=step.delay)
                return False
            delay = step.delay
            await asyncio.sleep(delay.total_seconds())
    first = least_id(run.sweep.swept_to - WINDOW)
    begun = await in_transaction(run.deps, run.account, _advance, run.sweep, checked_to=first)
    if begun is None:
        return _lost_lease(run)
    run.sweep = begun
    return True


def _lost_lease(run: _Run) -> bool:
    """Log that another worker has leased the sweep, because this worker's lease expired. Return False."""
    log.warning("sweep.lease_lost", connection_id=str(run.sweep.connection_id))
    return False


async def _compare(
    work: Work, of: ClaimedSweep, stored: StoredConnection, page: Sequence[Listed]
) -> _Step | None:
    """Compare a page of the list with the stored charges, and store the progress. Return None if the lease was lost."""
    charges = await _with_current_ids(work, [each for each in page if isinstance(each, Charge)])
    empty_to = [each for each in page if isinstance(each, datetime)]
    instants = [of.listed_to, *empty_to, *(each.created_at for each in charges)]
    sweep = await _advance(work, of, listed_to=max(each for each in instants if each is not None))
    if sweep is None:
        return None
    compare = partial(_compare_charges, sweep=sweep)
    compared = await each_alone_if_one_fails(work, charges, compare, put_off=_log_skipped)
    findings = sum(compared, Counter[str]())
    findings["invalid"] = len(page) - len(charges) - len(empty_to)
    return _Step(sweep, findings, await poll_times.take(work, stored))


async def _log_skipped(_work: Work, charge: Charge | str) -> None:
    """Log the gateway's id of a charge that this sweep cannot handle. The next sweep tries the charge again."""
    log.exception("sweep.charge_skipped", charge_id=charge if isinstance(charge, str) else charge.charge_id)


async def _compare_charges(
    work: Work, charges: Sequence[Charge], *, sweep: ClaimedSweep
) -> Sequence[Counter[str]]:
    """Compare listed charges with the stored ones, schedule the work that follows, and mark the charges as listed."""
    connection_id = sweep.connection_id
    own = {
        each.gateway_invoice_id: each
        for each in await listed_charges.find(
            work.tx, [each.invoice_id for each in charges], [each.charge_id for each in charges]
        )
    }
    new_entries = await gateway_payments.unrecorded(work, connection_id, charges)
    pairs = [
        (own[each.charge_id], each)
        for each in charges
        if each.charge_id in own and own[each.charge_id].connection_id == connection_id
    ]
    of_known = await _act_on_known(work, connection_id, pairs, new_entries)
    unmatched = [each for each in charges if each.charge_id not in own]
    of_unmatched = await _act_on_unmatched(work, connection_id, unmatched, new_entries)
    to_mark = [each.charge_id for each, _ in pairs if _is_to_mark(each, sweep)]
    if to_mark:
        await listed_charges.mark(work.tx, to_mark, listed_at=work.now)
    return [of_known, of_unmatched]


async def _with_current_ids(work: Work, charges: Sequence[Charge]) -> Sequence[Charge]:
    """Return the charges with the current ids of their invoices. The provider may have ids from before a restore."""
    current = await lost_invoices.current_ids(
        work.tx, [(each.charge_id, each.invoice_id) for each in charges]
    )
    return [
        replace(each, invoice_id=current.get((each.charge_id, each.invoice_id), each.invoice_id))
        for each in charges
    ]


async def _act_on_known(
    work: Work, connection_id: UUID, pairs: Sequence[tuple[OwnCharge, Charge]], new_entries: set[str]
) -> Counter[str]:
    """Schedule polls of stored charges if the list shows another state or entries that are not recorded.

    If the invoice is `ready`, a reissue has replaced the charge, and polls do not read it. If the list shows new
    entries of such a charge, schedule a late look-up, which records them.
    """
    differing = [listed for own, listed in pairs if _differs(own, listed)]
    lacking = [listed for _, listed in pairs if listed.charge_id in new_entries]
    due = {each.charge_id for each in [*differing, *lacking]}
    if due:
        await _poll(work, sorted(due), connection_id=connection_id)
    charges = [(connection_id, each.charge_id) for each in lacking]
    if await charge_polling.make_earlier_due(work.tx, charges, now=work.now):
        work.notify(LaneName.RECONCILIATION)
    return Counter(state_differs=len(differing), entry_missing=len(lacking))


def _differs(own: OwnCharge, listed: Charge) -> bool:
    """Return whether the list shows a new state that can be recorded, or shows an ended charge as payable."""
    state = ChargeStage(listed.state)
    if state is own.stage:
        return False
    return may_move(own.stage, state) or (state in PAYABLE and own.stage is not ChargeStage.PAID)


async def _act_on_unmatched(
    work: Work, connection_id: UUID, unmatched: Sequence[Charge], new_entries: set[str]
) -> Counter[str]:
    """Schedule a look (D-162) for each unmatched charge that is payable or has new entries.

    Leave out charges without an invoice of this connection, unless `fatura restored` reported them for it (D-123).
    """
    connections = await listed_charges.connections(work.tx, [each.invoice_id for each in unmatched])
    reported = await stored_unmatched.reported(work.tx, connection_id, [each.charge_id for each in unmatched])
    seconds = [
        each
        for each in unmatched
        if (connections.get(each.invoice_id) == connection_id or each.charge_id in reported)
        and (each.is_payable or each.charge_id in new_entries)
    ]
    if seconds:
        await scheduled_looks.schedule(work, connection_id, [each.charge_id for each in seconds])
    without_invoice = sum(each.invoice_id not in connections for each in unmatched)
    return Counter(unmatched=len(seconds), without_invoice=without_invoice)


def _listed_from(sweep: ClaimedSweep) -> tuple[datetime, datetime]:
    """Return two instants, for unpaid and for paid charges. A charge counts as listed if it was listed since then."""
    assert sweep.started_at is not None, "the sweep has begun"
    return sweep.started_at, sweep.started_at - PAID_LISTED_AGAIN_AFTER


def _is_to_mark(own: OwnCharge, sweep: ClaimedSweep) -> bool:
    unpaid_from, paid_from = _listed_from(sweep)
    listed_from = paid_from if own.stage is ChargeStage.PAID else unpaid_from
    return own.listed_at is None or own.listed_at < listed_from


async def _look_for_own(run: _Run) -> None:
    """Schedule polls of the stored charges that the list lacks (D-56), and end the sweep."""
    while True:
        step = await in_transaction(run.deps, run.account, _check, run.sweep)
        if step is None:
            _lost_lease(run)
            return
        run.take(step)
        if step.is_last:
            break
        if run.is_over:
            await in_transaction(run.deps, run.account, _release, run.sweep)
            return
    log.info("sweep.completed", connection_id=str(run.sweep.connection_id))


async def _check(work: Work, of: ClaimedSweep) -> _Step | None:
    """Check the next stored charges, schedule polls of those that the list lacks, and store the progress."""
    assert of.checked_to is not None, "the list was read"
    unpaid_from, paid_from = _listed_from(of)
    checked = await listed_charges.check(
        work.tx,
        of.connection_id,
        after=of.checked_to,
        since=of.swept_to - WINDOW + MARGIN,
        until=unpaid_from - MARGIN,
        unpaid_listed_from=unpaid_from,
        paid_listed_from=paid_from,
        limit=CHECKED_AT_ONCE,
    )
    sweep = await _advance(work, of, checked_to=checked[-1].charge_id if checked else None)
    if sweep is None:
        return None
    missing = [each for each in checked if each.is_missing]
    for each in missing:
        charge_id, invoice_id = each.gateway_invoice_id, str(each.invoice_id)
        log.warning("sweep.charge_not_listed", charge_id=charge_id, invoice_id=invoice_id)
    ids = [each.gateway_invoice_id for each in missing if each.gateway_invoice_id is not None]
    poll = partial(_poll, connection_id=of.connection_id)
    await each_alone_if_one_fails(work, ids, poll, put_off=_log_skipped)
    if is_last := len(checked) < CHECKED_AT_ONCE:
        at = next_sweep_at(of.connection_id, now=work.now)
        await connection_sweeps.complete(work.tx, sweep, next_sweep_at=at)
    return _Step(sweep, Counter(not_listed=len(ids)), is_last=is_last)


async def _poll(work: Work, charge_ids: Sequence[str], *, connection_id: UUID) -> Sequence[str]:
    """Make stored charges of a connection due for polling, and return their ids at the gateway."""
    charges, real_now = [(connection_id, each) for each in charge_ids], work.deps.clock()
    await charge_polling.make_named_due(work.tx, charges, now=work.now, real_now=real_now, polls_first=False)
    work.notify(LaneName.RECONCILIATION)
    return charge_ids
