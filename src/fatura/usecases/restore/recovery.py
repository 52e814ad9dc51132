"""After a restore from a backup that is older than the gateways: freeze, compare with them, release (D-123)."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from fatura.domain.account import Account
from fatura.gateways.port import CALL_TIMEOUT_SECONDS, Charge, Gateway, GatewayError
from fatura.ids import billed_mark, mark_of
from fatura.observability import log
from fatura.store.charging import connections
from fatura.store.db import LockTimeoutError
from fatura.store.restore import recovery
from fatura.usecases.charging import gateway_connections
from fatura.usecases.deps import Deps
from fatura.usecases.lane_names import LaneName
from fatura.usecases.restore import matching
from fatura.usecases.restore.matching import Found, Verdict
from fatura.usecases.transaction import Work, in_transaction, load_account

MARGIN = timedelta(hours=1)
"""How long before the backup's instant charges are asked for: clocks differ, and a backup takes its time."""
BATCH = 500
"""Charges that are compared in one transaction."""
TRACED_AT_ONCE = 50_000
"""Charges of unknown invoices that are held in memory until their subscriptions are looked for."""
SUBSCRIPTIONS_AT_ONCE = 5_000
NO_SUBSCRIPTION = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Stray:
    """A charge that a person has to look at, and why."""

    connection_id: UUID
    charge: Charge
    why: str


@dataclass(slots=True)
class Swept:
    """What comparing one account found; one with problems was not compared to the end, and stays frozen."""

    account_id: UUID
    counts: Counter[Found] = field(default_factory=Counter[Found])
    strays: list[Stray] = field(default_factory=list[Stray])
    problems: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, slots=True)
class Sweep:
    """One connection's comparison; without `write` nothing is written down."""

    deps: Deps
    account: Account
    connection_id: UUID
    gateway: Gateway
    since: datetime
    write: bool
    swept: Swept

    def note(self, charge: Charge, verdict: Verdict) -> None:
        """Count a verdict, and tell of a stray."""
        self.swept.counts[verdict.found] += 1
        if verdict.found is Found.STRAY:
            self.swept.strays.append(Stray(self.connection_id, charge, verdict.why or ""))
            log.warning(
                "restore.stray",
                charge_id=charge.charge_id,
                invoice_id=str(charge.invoice_id),
                why=verdict.why,
            )


async def freeze(deps: Deps, account_id: UUID) -> None:
    """Let nothing more be charged in an account, and wait for whoever is about to. Raises DatabaseUnavailableError."""
    while True:
        try:
            async with deps.db.transaction(account_id) as tx:
                return await recovery.freeze(tx, since=deps.clock())
        except LockTimeoutError:
            log.warning("restore.waits", account_id=str(account_id), reason="a billing run has not ended yet")


async def sweep(
    deps: Deps, account_id: UUID, *, since: datetime, skipping: Collection[UUID] = (), dry_run: bool = False
) -> Swept:
    """Compare a frozen account with its gateways from the backup's instant (real time) on, and release it.

    Safe to repeat from the start, whenever it ended. `skipping` are connections that a person has compared by hand.
    A `dry_run` writes nothing and releases nothing. Raises DatabaseUnavailableError, LockTimeoutError.
    """
    account, swept = await load_account(deps, account_id), Swept(account_id)
    for connection_id, gateway in await in_transaction(deps, account, _opened):
        if connection_id in skipping:
            continue
        if gateway is None or not gateway.capabilities().lists_charges:
            reason = (
                "its credentials do not open" if gateway is None else "its provider does not list charges"
            )
            swept.problems.append(f"connection {connection_id}: {reason}")
            continue
        since_here = since - MARGIN + account.clock_offset
        of = Sweep(deps, account, connection_id, gateway, since_here, not dry_run, swept)
        try:
            await _compare(of)
        except (GatewayError, TimeoutError) as error:
            swept.problems.append(f"connection {connection_id}: {type(error).__name__}: {error}")
    if not (swept.problems or dry_run):
        await in_transaction(deps, account, _release)
    return swept


async def _opened(work: Work) -> Sequence[tuple[UUID, Gateway | None]]:
    stored = await connections.find_all(work.tx)
    return [(each.connection.connection_id, gateway_connections.opened(work, each)) for each in stored]


async def _release(work: Work) -> None:
    await recovery.release(work.tx)
    work.notify(LaneName.GENERATION, LaneName.ISSUANCE)


async def _compare(of: Sweep) -> None:
    """Compare page by page; those of unknown invoices many at once, since tracing them reads every subscription."""
    batch: list[Charge] = []
    unknown: list[Charge] = []
    async for charge in _listed(of.gateway, of.since):
        batch.append(charge)
        if len(batch) == BATCH:
            unknown += await _match(of, batch)
            batch = []
        if len(unknown) >= TRACED_AT_ONCE:
            await _trace(of, unknown)
            unknown = []
    await _trace(of, [*unknown, *await _match(of, batch)])


async def _listed(gateway: Gateway, since: datetime) -> AsyncIterator[Charge]:
    """Yield the gateway's charges; every page has the time of a call. Raises GatewayError, TimeoutError."""
    charges = aiter(gateway.charges_since(since))
    while True:
        async with asyncio.timeout(CALL_TIMEOUT_SECONDS):
            charge = await anext(charges, None)
        if charge is None:
            return
        yield charge


async def _match(of: Sweep, batch: Sequence[Charge]) -> Sequence[Charge]:
    """Compare charges with the invoices that their references name; return those whose invoice is not here."""

    async def effect(work: Work) -> dict[str, Verdict]:
        ids = [charge.invoice_id for charge in batch]
        await recovery.hold(work.tx, ids)
        invoices = await recovery.known_invoices(work.tx, ids)
        verdicts: dict[str, Verdict] = {}
        for charge in batch:
            invoice = invoices.get(charge.invoice_id)
            if invoice is not None:
                verdict, after = await matching.match(work, charge, invoice, write=of.write)
                verdicts[charge.charge_id] = verdict
                invoices[charge.invoice_id] = after
        return verdicts

    verdicts = await in_transaction(of.deps, of.account, effect)
    for charge in batch:
        if charge.charge_id in verdicts:
            of.note(charge, verdicts[charge.charge_id])
    return [charge for charge in batch if charge.charge_id not in verdicts]


async def _trace(of: Sweep, unknown: Sequence[Charge]) -> None:
    """Find out by the mark in each unknown invoice's id what it billed: the next cycle, most often."""
    wanted: dict[int, list[Charge]] = {}
    for charge in unknown:
        wanted.setdefault(mark_of(charge.invoice_id), []).append(charge)
    passed = of.account.now(of.deps.clock()) - of.since
    cycles = passed // timedelta(days=1) + 2  # one a day at most, whatever was missed (D-5)
    for steps in ((1,), (*range(2, cycles + 1), *range(0, -cycles, -1))):
        after = NO_SUBSCRIPTION
        while wanted and (page := await _subscriptions(of, after)):
            await _keep(of, _traced(page, steps, wanted))
            after = page[-1].subscription_id
    for charges in wanted.values():
        for charge in charges:
            why = "its subscription is not here; it was made after the backup, or another system made the charge"
            of.note(charge, matching.unknown(charge, why=why))


async def _subscriptions(of: Sweep, after: UUID) -> Sequence[recovery.Billed]:
    async def effect(work: Work) -> Sequence[recovery.Billed]:
        return await recovery.billed_by(work.tx, of.connection_id, after=after, limit=SUBSCRIPTIONS_AT_ONCE)

    return await in_transaction(of.deps, of.account, effect)


Traced = tuple[UUID, int, Sequence[Charge]]
"""A subscription, the cycle, and the charges that bill it."""


def _traced(
    page: Sequence[recovery.Billed], steps: Sequence[int], wanted: dict[int, list[Charge]]
) -> Sequence[Traced]:
    """Take from `wanted` the charges of cycles so many steps from the last one billed."""
    return [
        (billed.subscription_id, cycle, charges)
        for billed in page
        for cycle in (billed.cycle_count + step for step in steps)
        if cycle >= 1 and (charges := wanted.pop(billed_mark(billed.subscription_id, cycle), None))
    ]


async def _keep(of: Sweep, traced: Sequence[Traced]) -> None:
    """Write down what was traced, a batch at a time."""
    for start in range(0, len(traced), BATCH):

        async def effect(
            work: Work, some: Sequence[Traced] = traced[start : start + BATCH]
        ) -> Mapping[str, Verdict]:
            return {
                charge.charge_id: await matching.keep(
                    work, charge, subscription_id, cycle=cycle, write=of.write
                )
                for subscription_id, cycle, charges in some
                for charge in charges
            }

        verdicts = await in_transaction(of.deps, of.account, effect)
        for _, _, charges in traced[start : start + BATCH]:
            for charge in charges:
                of.note(charge, verdicts[charge.charge_id])
