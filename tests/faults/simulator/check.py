"""The daily check of a simulated world: the invariants of `fatura check`, and the three ledgers."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from fatura.store.db import Tx
from fatura.store.invariants import INVARIANTS, offenders
from tests.faults.simulator.gateway_state import SimCharge
from tests.faults.simulator.side import World

ASKED_WITHIN = timedelta(days=8)
"""Maximum time between polls. An old open charge is polled once a week (D-35)."""
_SHOWN = 3
_MONEY = """
SELECT i.item_id FROM invoice_item i
WHERE i.pricing_source = 'table' AND i.amount_cents <>
    (i.months * i.monthly_price_cents * (100 - coalesce(i.discount_percent, 0)) + 50) / 100
"""
_INVOICES = """
SELECT v.invoice_id, v.status, v.total_cents, v.gateway_invoice_id, v.next_attempt_at, a.state AS attempt
FROM invoice v LEFT JOIN LATERAL (
    SELECT c.state FROM charge_attempt c WHERE c.account_id = v.account_id AND c.invoice_id = v.invoice_id
    ORDER BY c.attempt DESC LIMIT 1
) a ON true
"""
_PRICED = """
SELECT item_id, amount_cents, pricing_status FROM invoice_item
WHERE pricing_source = 'endpoint' AND pricing_status <> 'pending'
"""
_EVENTS = """
SELECT account_id::text AS account_id, sequence, event_id::text AS event_id, type FROM event WHERE sequence > $1
"""


class Checker:
    """Checks one world repeatedly. Each arrived event is compared only once."""

    def __init__(self, world: World, account_ids: Sequence[str]) -> None:
        self._world = world
        self._accounts = account_ids
        self._seen_arrivals = 0
        self._stream: dict[tuple[str, int], str] = {}
        self._bodies: dict[str, str] = {}
        self._arrived: set[tuple[str, int]] = set()
        self._last: dict[str, int] = {}

    async def check(self, *, at_rest: bool = False) -> None:
        """Report every violation. With `at_rest`, also report unfinished work."""
        await self._invariants(at_rest=at_rest)
        await self._charges(at_rest=at_rest)
        await self._prices()
        await self._events(at_rest=at_rest)

    async def _fetch(self, sql: str, *values: object) -> Sequence[Mapping[str, Any]]:
        return await self._world.observer.fetch(sql, *values)

    async def _invariants(self, *, at_rest: bool) -> None:
        """Check all invariants. Late work is checked only at rest, because outages last for days."""
        world = self._world
        for account_id in self._accounts:
            tx = Tx(world.observer, UUID(account_id))
            for each in INVARIANTS:
                if each.needs == "real_now" and not at_rest:
                    continue
                now, ring = world.schedule.now, world.processes[0].deps.vault.key_ids
                for offender in await offenders(tx, each, limit=_SHOWN, real_now=now, key_ids=ring):
                    world.report_problem(f"{each.name} is violated by {offender}")
        for row in await self._fetch(_MONEY):
            world.report_problem(f"item {row['item_id']} has an amount that differs from its terms")

    async def _charges(self, *, at_rest: bool) -> None:
        gateway, now = self._world.side.gateway, self._world.schedule.now
        gateway.all_as_of(now)
        made: defaultdict[str, list[SimCharge]] = defaultdict(list)
        for charge in gateway.charges.values():
            made[str(charge.invoice_id)].append(charge)
        invoices = {str(row["invoice_id"]): row for row in await self._fetch(_INVOICES)}
        for invoice_id in made.keys() - invoices.keys():
            self._world.report_problem(f"a charge of an invoice that does not exist: {invoice_id}")
        for invoice_id, invoice in invoices.items():
            asked = now - ASKED_WITHIN if at_rest else None
            for wrong in _errors(invoice, made.get(invoice_id, []), asked=asked):
                self._world.report_problem(f"invoice {invoice_id} ({invoice['status']}): {wrong}")

    async def _prices(self) -> None:
        answers: defaultdict[str, set[str]] = defaultdict(set)
        journal = self._world.merchants.journal
        for row in journal.read("SELECT request_id, body FROM price_answer WHERE status = 200"):
            answers[row["request_id"]].add(row["body"])
        for row in await self._fetch(_PRICED):
            given = answers.get(str(row["item_id"]), set())
            skipped = row["pricing_status"] == "skipped"
            wanted = '{"skip": true}' if skipped else f'{{"amount": {row["amount_cents"]}}}'
            if wanted not in given:
                self._world.report_problem(
                    f"item {row['item_id']} has an amount that its endpoint never answered"
                )
        if journal.count("price_answer", "NOT verified"):
            self._world.report_problem("a price call whose signature does not verify")

    async def _events(self, *, at_rest: bool) -> None:
        newest = min(
            max((s for a, s in self._stream if a == account), default=0) for account in self._accounts
        )
        for row in await self._fetch(_EVENTS, newest):
            self._stream[row["account_id"], row["sequence"]] = row["event_id"]
        query = "SELECT rowid AS number, * FROM arrival WHERE rowid > ? ORDER BY rowid"
        for arrival in self._world.merchants.journal.read(query, self._seen_arrivals):
            self._seen_arrivals = arrival["number"]
            self._arrival(arrival)
        if at_rest:
            rows = await self._fetch(
                "SELECT account_id::text AS account_id, sequence FROM delivery WHERE next_attempt_at IS NULL"
                " AND delivered_at IS NOT NULL"
            )
            for row in rows:
                if (row["account_id"], row["sequence"]) not in self._arrived:
                    self._world.report_problem(
                        f"event {row['sequence']} is marked delivered but did not arrive"
                    )
            late = await self._fetch("SELECT sequence FROM delivery WHERE next_attempt_at IS NOT NULL")
            if late:
                self._world.report_problem(f"{len(late)} events are still to be delivered")

    def _arrival(self, arrival: Mapping[str, Any]) -> None:
        key = arrival["account_id"], arrival["sequence"]
        event_id, world = arrival["event_id"], self._world
        if self._stream.get(key) != event_id:
            world.report_problem(f"an event arrived that the stream does not have: {key} {event_id}")
        if self._bodies.setdefault(event_id, arrival["body"]) != arrival["body"]:
            world.report_problem(f"event {event_id} arrived with two bodies")
        if not arrival["verified"]:
            world.report_problem(f"event {event_id} arrived with a signature that does not verify")
        if arrival["status"] == 200 and key not in self._arrived:
            self._arrived.add(key)
            of = arrival["invoice_id"]
            if of and arrival["sequence"] < self._last.get(of, 0):
                world.report_problem(f"events of invoice {of} arrived out of order")
            self._last[of] = arrival["sequence"]


def _errors(invoice: Mapping[str, Any], made: Sequence[SimCharge], *, asked: datetime | None) -> list[str]:
    status, total, known = invoice["status"], invoice["total_cents"], invoice["gateway_invoice_id"]
    live = [each for each in made if each.state in {"open", "paid"}]
    named = [each for each in made if each.charge_id == known]
    found: list[str] = []
    if len(live) > 1:
        found.append(f"charged twice: {[each.charge_id for each in live]}")
    if any(each.amount_cents != total for each in made):
        found.append("charged another amount than the total")
    if live and status in {"draft", "awaiting_value"}:
        found.append("charged before it was priced")
    if live and total == 0:
        found.append("charged although the total is zero")
    if known is not None and not named:
        found.append("its charge is unknown to the gateway")
    if status in {"issued", "overdue"} and known is None:
        found.append("no charge is known")
    if status == "paid" and total and (not named or named[0].state != "paid"):
        found.append("paid, but not at the gateway")
    if status == "canceled" and any(each.state == "open" for each in live):
        found.append("canceled, but payable")
    if asked is not None:
        found += _unfinished(status, named, live, asked=asked)
    return found


def _unfinished(
    status: str, named: Sequence[SimCharge], live: Sequence[SimCharge], *, asked: datetime
) -> list[str]:
    """Return the unfinished work of an invoice. The engine must know what payers did before `asked`."""
    found: list[str] = []
    if status in {"draft", "awaiting_value", "ready"}:
        found.append("is not final")
    if status in {"issued", "overdue"} and named and named[0].state in {"paid", "canceled"}:
        if named[0].next_state_at > asked:
            return found
        found.append(f"the gateway says {named[0].state}, but the engine does not know")
    if live and named and live[0] is not named[0]:
        found.append("a charge other than the known one is live")
    return found
