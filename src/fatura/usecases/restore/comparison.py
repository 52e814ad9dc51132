"""Compare an account with its gateways after a restore: freeze billing, match charges, end the freeze (D-123)."""

from collections import Counter
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from fatura.domain.account import Account
from fatura.domain.audit import Actor, Origin
from fatura.domain.audit_actions import ACCOUNT_RESTORE
from fatura.gateways.port import Charge, ChargeState, GatewayError, InvalidAnswerError, NotFoundError
from fatura.ids import billed_mark, mark_of
from fatura.observability import log
from fatura.store.connections import connections
from fatura.store.db import LockTimeoutError
from fatura.store.restore import charge_matching, frozen_accounts, lost_invoices
from fatura.store.restore.charge_matching import BilledCycles
from fatura.store.restore.lost_invoices import LostInvoice
from fatura.usecases.connections import gateway_connections
from fatura.usecases.connections.observed_gateway import ObservedGateway
from fatura.usecases.deps import Deps
from fatura.usecases.payments import gateway_payments, replacement
from fatura.usecases.payments.gateway_payments import ChargeAnswer
from fatura.usecases.restore import matching
from fatura.usecases.restore.matching import ChargeOfCycle, ListedCharge, Match, MatchKind
from fatura.usecases.transaction import LaneName, Work, in_transaction, load_account

MARGIN = timedelta(hours=1)
"""The listing of charges starts this long before the backup, because clocks differ and a backup takes time."""
PAGE = 100
"""Maximum number of charges in a page of the gateway's list."""
BATCH = 500
"""Maximum number of charges that one transaction matches with cycles."""
TRACED_AT_ONCE = 50_000
"""When this number of charges without an invoice has been collected, `_trace` is called."""
SUBSCRIPTIONS_AT_ONCE = 5_000
NO_SUBSCRIPTION = UUID(int=0)


@dataclass(frozen=True, slots=True)
class UnmatchedCharge:
    """A charge that no invoice or cycle can adopt, such as a second charge. A person must handle it."""

    connection_id: UUID
    charge: Charge
    why: str


@dataclass(slots=True)
class RestoreReport:
    """The result of comparing one account.

    `is_frozen` is false if the account could not be frozen. If there are `problems`, the comparison is incomplete, and
    `compare` has not ended the freeze.
    """

    account_id: UUID
    is_frozen: bool = True
    counts: Counter[MatchKind] = field(default_factory=Counter[MatchKind])
    unmatched: list[UnmatchedCharge] = field(default_factory=list[UnmatchedCharge])
    problems: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, slots=True)
class _Comparison:
    """The comparison of one account; `since` is on the account's clock.

    `without_invoice` collects charges whose invoice is missing in the database, by the ids of charge and invoice.
    `_trace` takes these charges, and looks for the cycles that the missing invoices billed. `read` has the ids of the
    connections whose whole list of charges was read since the previous call of `_trace`.
    """

    deps: Deps
    account: Account
    since: datetime
    dry_run: bool
    report: RestoreReport
    without_invoice: dict[tuple[str, UUID], ListedCharge] = field(
        default_factory=dict[tuple[str, UUID], ListedCharge]
    )
    read: set[UUID] = field(default_factory=set[UUID])

    def add(self, charge: Charge, match: Match, *, connection_id: UUID) -> None:
        """Count a match in the report; if the charge is unmatched, add it to the report and log it."""
        self.report.counts[match.kind] += 1
        if match.kind is MatchKind.UNMATCHED:
            self.report.unmatched.append(UnmatchedCharge(connection_id, charge, match.why or ""))
            log.warning(
                "restore.unmatched_charge_found",
                charge_id=charge.charge_id,
                invoice_id=str(charge.invoice_id),
                why=match.why,
            )

    @contextmanager
    def noting_problem(self, gateway: ObservedGateway) -> Generator[None]:
        """If a call to a gateway fails, add a problem to the report instead of raising the error.

        The problem contains no text of the provider, which may name an erased customer (D-229).
        """
        try:
            yield
        except (GatewayError, TimeoutError) as error:
            self.report.problems.append(f"connection {gateway.connection_id}: {gateway.why(error).detail}")


async def freeze(deps: Deps, account_id: UUID) -> None:
    """Stop the account's billing, and wait for its running transactions. Raises DatabaseUnavailableError.

    This does not read the account's clock, so that an account whose clock is wrong can be frozen too.
    """
    while True:
        try:
            async with deps.db.transaction(account_id) as tx:
                await frozen_accounts.freeze(tx, since=deps.clock())
            async with deps.db.transaction(account_id) as tx:
                return await frozen_accounts.wait_for_lanes(tx)
        except LockTimeoutError:
            log.warning(
                "restore.freeze_waited", account_id=str(account_id), reason="a billing run is in progress"
            )


async def record(deps: Deps, account_id: UUID, *, asked_by: Actor) -> None:
    """Add the audit entry of a restore. Raises DatabaseUnavailableError, WrongClockError."""
    await in_transaction(deps, await load_account(deps, account_id), _audit, asked_by)


async def _audit(work: Work, asked_by: Actor) -> None:
    account_id = work.account.account_id
    work.audit_for(Origin(asked_by), ACCOUNT_RESTORE, resource_id=account_id, before={}, after={})


async def compare(
    deps: Deps, account_id: UUID, *, since: datetime, skipping: Collection[UUID] = (), dry_run: bool = False
) -> RestoreReport:
    """Match the charges made at a frozen account's gateways since the backup. If there is no problem, end the freeze.

    `since` is real time. Connections in `skipping` are omitted: a person has compared them. A dry run writes nothing
    and does not end the freeze. Safe to repeat after a crash. Raises DatabaseUnavailableError, LockTimeoutError.
    """
    account, report = await load_account(deps, account_id), RestoreReport(account_id)
    comparison = _Comparison(deps, account, since - MARGIN + account.clock_offset, dry_run, report)
    compared: list[tuple[UUID, ObservedGateway]] = []
    # read before the gateways' lists: if a subscription is canceled later, `_release` does not forget its lost cycles
    never_billed = await in_transaction(deps, account, _never_billed)
    for connection_id, gateway in await in_transaction(deps, account, _open_connections):
        if connection_id in skipping:
            continue
        if gateway is None:
            report.problems.append(f"connection {connection_id}: its credentials cannot be decrypted")
        elif not gateway.capabilities().lists_charges:
            report.problems.append(f"connection {connection_id}: its provider does not list charges")
        else:
            compared.append((connection_id, gateway))
            with comparison.noting_problem(gateway):
                await _compare_connection(comparison, connection_id, gateway)
    await _trace(comparison)
    if not (report.problems or dry_run):
        for connection_id, gateway in compared:
            with comparison.noting_problem(gateway):
                await _record_replaced(comparison, connection_id, gateway)
    finished: list[tuple[UUID, int]] = []
    if not (report.problems or dry_run):
        for connection_id, gateway in compared:
            of_connection = [each for each in never_billed if each.connection_id == connection_id]
            with comparison.noting_problem(gateway):
                finished += await _finished(comparison, gateway, of_connection)
    if not (report.problems or dry_run):
        await in_transaction(deps, account, _release, finished)
    return report


async def _finished(
    comparison: _Comparison, gateway: ObservedGateway, never_billed: Sequence[LostInvoice]
) -> Sequence[tuple[UUID, int]]:
    """Return those cycles of `never_billed` whose lost invoices can be deleted.

    Each charge of such a cycle is reported as unmatched, was canceled without a payment, or is unknown to the gateway.
    Raises GatewayError, TimeoutError.
    """
    reported = {each.charge.charge_id for each in comparison.report.unmatched}
    return [
        each.key
        for each in never_billed
        if all([await _holds_nothing(gateway, id_) for id_ in each.charge_ids if id_ not in reported])
    ]


async def _holds_nothing(gateway: ObservedGateway, charge_id: str) -> bool:
    try:
        charge = await gateway.get_charge(charge_id)
    except NotFoundError:
        return True
    return charge.state is ChargeState.CANCELED and not charge.entries


async def _never_billed(work: Work) -> Sequence[LostInvoice]:
    return await lost_invoices.never_billed(work.tx)


async def _open_connections(work: Work) -> Sequence[tuple[UUID, ObservedGateway | None]]:
    stored = await connections.find_all(work.tx)
    return [(each.connection.connection_id, gateway_connections.open_gateway(work, each)) for each in stored]


async def _release(work: Work, finished: Sequence[tuple[UUID, int]]) -> None:
    """Let the account bill again, and sweep its connections now: the backup may lack payments and refunds (D-161).

    Also delete the lost invoices of the cycles in `finished`, because these cycles will not be billed again.
    """
    await lost_invoices.forget(work.tx, finished)
    await frozen_accounts.release(work.tx, now=work.now)
    await frozen_accounts.restart_sweeps(work.tx, now=work.now)
    work.notify(LaneName.GENERATION, LaneName.ISSUANCE, LaneName.SWEEP)


async def _compare_connection(comparison: _Comparison, connection_id: UUID, gateway: ObservedGateway) -> None:
    """Match a connection's charges page by page. Collect charges without an invoice for `_trace`.

    Each call of `_trace` reads all subscriptions, so one call handles many charges. A charge that two connections list
    is collected once, unless `_trace` is called between the two lists.
    """
    is_complete = True
    async for page in gateway.charge_pages(comparison.since, size=PAGE):
        charges = [_valid(each) for each in page if not isinstance(each, datetime)]
        for charge in await _match_page(comparison, connection_id, gateway, charges):
            key = charge.charge_id, charge.invoice_id
            listed = comparison.without_invoice.setdefault(key, ListedCharge(charge, []))
            listed.connection_ids.append(connection_id)
        if len(comparison.without_invoice) >= TRACED_AT_ONCE:
            await _trace(comparison)
            is_complete = False
    if is_complete:
        comparison.read.add(connection_id)


def _valid(listed: Charge | InvalidAnswerError) -> Charge:
    """Return a listed charge. Raises InvalidAnswerError if it is invalid."""
    if isinstance(listed, InvalidAnswerError):
        raise listed
    return listed


async def _match_page(
    comparison: _Comparison, connection_id: UUID, gateway: ObservedGateway, page: Sequence[Charge]
) -> Sequence[Charge]:
    """Match charges with the invoices that they reference; return the charges whose invoice is missing."""
    matches = await in_transaction(
        comparison.deps,
        comparison.account,
        matching.match_by_invoice,
        page,
        released=await _released(comparison, gateway, page),
        dry_run=comparison.dry_run,
    )
    for charge in page:
        if charge.charge_id in matches:
            comparison.add(charge, matches[charge.charge_id], connection_id=connection_id)
    return [charge for charge in page if charge.charge_id not in matches]


async def _released(
    comparison: _Comparison, gateway: ObservedGateway, batch: Sequence[Charge]
) -> Mapping[str, Charge]:
    """Read the charges that a reissue after the backup may have replaced. Return them by their ids at the gateway.

    Only charges that nobody can pay any more are returned. Raises GatewayError, TimeoutError.
    """
    replaced: dict[str, Charge] = {}
    for charge_id in await in_transaction(
        comparison.deps, comparison.account, matching.find_predecessors, batch
    ):
        with suppress(NotFoundError):
            replaced[charge_id] = await gateway.get_charge(charge_id)
    return {id_: charge for id_, charge in replaced.items() if charge.state in replacement.RELEASED}


async def _record_replaced(comparison: _Comparison, connection_id: UUID, gateway: ObservedGateway) -> None:
    """Record the payments of replaced charges, so that each invoice's next charge is only for the rest (D-67, D-123).

    The backup may lack a payment that arrived after the replaced charge was canceled. If the matching has found the
    next charge of an invoice, the invoice is left out, so call this after the matching. Raises GatewayError,
    TimeoutError.
    """
    deps, account = comparison.deps, comparison.account
    async with deps.db.transaction(account.account_id) as tx:
        replaced = await charge_matching.replaced_charges(tx, connection_id)
    for each in replaced:
        with suppress(NotFoundError):
            charge = (await gateway.get_charge(each.gateway_invoice_id)).of_invoice(each.invoice_id)
            answer = ChargeAnswer(each.invoice_id, connection_id, charge)
            await in_transaction(deps, account, gateway_payments.record, [answer])


async def _trace(comparison: _Comparison) -> None:
    """Match the charges in `comparison.without_invoice` with the cycles that their missing invoices billed.

    The id of an invoice contains a hash of its subscription and cycle (ADR 0012). A charge may belong to a subscription
    of any connection, because the backup lacks later moves (D-160). The account's subscriptions are read up to twice.
    The first pass tries only the next cycle of each subscription, which matches most often. The second pass tries the
    other possible cycles.
    """
    wanted: dict[int, list[ListedCharge]] = {}
    for listed in comparison.without_invoice.values():
        wanted.setdefault(mark_of(listed.charge.invoice_id), []).append(listed)
    comparison.without_invoice.clear()
    passed = comparison.account.now(comparison.deps.clock()) - comparison.since
    cycles = passed // timedelta(days=1) + 2  # a subscription is billed for at most one cycle a day (D-5)
    for steps in ((1,), (*range(2, cycles + 1), *range(0, -cycles, -1))):
        after = NO_SUBSCRIPTION
        while wanted and (page := await _subscriptions(comparison, after)):
            await _match_cycles(comparison, _take_charges_of(page, steps, wanted))
            after = page[-1].subscription_id
    why = "its subscription does not exist: it was created after the backup, or by another system"
    for charges in wanted.values():
        for listed in charges:
            match = matching.without_invoice(listed.charge, why=why)
            comparison.add(listed.charge, match, connection_id=listed.connection_ids[0])
    # a later connection may list a charge that was matched here: the lists read so far prove nothing about this charge
    comparison.read.clear()


async def _subscriptions(comparison: _Comparison, after: UUID) -> Sequence[BilledCycles]:
    async with comparison.deps.db.transaction(comparison.account.account_id) as tx:
        return await charge_matching.billed_cycles(tx, after=after, limit=SUBSCRIPTIONS_AT_ONCE)


def _take_charges_of(
    page: Sequence[BilledCycles], steps: Sequence[int], wanted: dict[int, list[ListedCharge]]
) -> Sequence[ChargeOfCycle]:
    """Remove from `wanted` the charges of each subscription's candidate cycles; return each charge with its cycle.

    The candidate cycles are the latest billed cycle plus each of `steps`; a step may be zero or negative.
    """
    return [
        ChargeOfCycle(billed.subscription_id, listed.connection_of(billed.connection_id), cycle, listed)
        for billed in page
        for cycle in (billed.cycle_count + step for step in steps)
        if cycle >= 1
        for listed in wanted.pop(billed_mark(billed.subscription_id, cycle), ())
    ]


async def _match_cycles(comparison: _Comparison, found: Sequence[ChargeOfCycle]) -> None:
    for start in range(0, len(found), BATCH):
        batch = found[start : start + BATCH]
        matches = await in_transaction(
            comparison.deps,
            comparison.account,
            matching.match_by_cycle,
            batch,
            read=comparison.read,
            dry_run=comparison.dry_run,
        )
        for each in batch:
            charge = each.listed.charge
            comparison.add(charge, matches[charge.charge_id], connection_id=each.connection_id)
