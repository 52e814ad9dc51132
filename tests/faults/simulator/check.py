"""The daily check of a simulated world.

It checks the invariants of `fatura check`, and compares what gateways and merchants know with the database.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from fatura.store.db import Tx
from fatura.store.invariants import INVARIANTS, offenders
from tests.faults.simulator.actions import Merchant
from tests.faults.simulator.check_money import MoneyChecker
from tests.faults.simulator.side import World

_SHOWN = 3
_CHECKED_DAILY = frozenset({"deliveries_are_found"})
"""Invariants that need the current time, and are still checked daily because late work does not violate them."""
_MONEY = """
SELECT i.item_id FROM invoice_item i
WHERE i.pricing_source = 'table' AND i.amount_cents <>
    (i.months * i.monthly_price_cents * (100 - coalesce(i.discount_percent, 0)) + 50) / 100
"""
_PRICED = """
SELECT item_id, amount_cents, pricing_status FROM invoice_item
WHERE pricing_source = 'endpoint' AND pricing_status <> 'pending'
"""
_EVENTS = """
SELECT account_id::text AS account_id, sequence, event_id::text AS event_id, type FROM event WHERE sequence > $1
"""


class Checker:
    """Checks one simulated world repeatedly.

    Each check compares only events that have arrived since the previous check.
    """

    def __init__(self, world: World, account_ids: Sequence[str]) -> None:
        self._world = world
        self._money = MoneyChecker(world)
        self._accounts = account_ids
        self._seen_arrivals = 0
        self._stream: dict[tuple[str, int], str] = {}
        self._bodies: dict[str, str] = {}
        self._arrived: set[tuple[str, int]] = set()
        self._last: dict[str, int] = {}

    async def check(self, *, at_rest: bool = False) -> None:
        """Report every violation.

        If `at_rest` is true, all work should be finished, and unfinished work is reported too.
        """
        await self._invariants(at_rest=at_rest)
        await self._money.check(at_rest=at_rest)
        await self._prices()
        await self._events(at_rest=at_rest)

    async def check_shown_sums(self, merchant: Merchant) -> None:
        await self._money.check_shown_sums(merchant)

    async def _fetch(self, sql: str, *values: object) -> Sequence[Mapping[str, Any]]:
        return await self._world.observer.fetch(sql, *values)

    async def _invariants(self, *, at_rest: bool) -> None:
        """Check all invariants, and that the amount of each item follows from the item's terms.

        Outages delay work for days, so invariants about late work are checked only `at_rest`.
        """
        world = self._world
        for account_id in self._accounts:
            tx = Tx(world.observer, UUID(account_id))
            for each in INVARIANTS:
                if each.needs == "real_now" and not (at_rest or each.name in _CHECKED_DAILY):
                    continue
                now, ring = world.schedule.now, world.processes[0].deps.vault.key_ids
                for offender in await offenders(tx, each, limit=_SHOWN, real_now=now, key_ids=ring):
                    world.report_problem(f"{each.name} is violated by {offender}")
        for row in await self._fetch(_MONEY):
            world.report_problem(f"item {row['item_id']} has an amount that differs from its terms")

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
        out_of_order: list[tuple[str, int]] = []
        for arrival in self._world.merchants.journal.read(query, self._seen_arrivals):
            self._seen_arrivals = arrival["number"]
            if not self._arrival(arrival):
                out_of_order.append((arrival["account_id"], arrival["sequence"]))
        if out_of_order:
            await self._check_sent_again(out_of_order)
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

    async def _check_sent_again(self, out_of_order: Sequence[tuple[str, int]]) -> None:
        """Report events that arrived out of order, except redelivered events, which have no order (D-39)."""
        unordered = "SELECT account_id::text AS account_id, sequence FROM delivery WHERE ordered_by IS NULL"
        sent_again = {(row["account_id"], row["sequence"]) for row in await self._fetch(unordered)}
        for account_id, sequence in set(out_of_order) - sent_again:
            self._world.report_problem(f"event {sequence} of account {account_id} arrived out of order")

    def _arrival(self, arrival: Mapping[str, Any]) -> bool:
        """Check one received event. Return False if a later event of the invoice had already arrived."""
        key = arrival["account_id"], arrival["sequence"]
        event_id, world = arrival["event_id"], self._world
        if self._stream.get(key) != event_id:
            world.report_problem(f"an event arrived that the stream does not have: {key} {event_id}")
        if self._bodies.setdefault(event_id, arrival["body"]) != arrival["body"]:
            world.report_problem(f"event {event_id} arrived with two bodies")
        if not arrival["verified"]:
            world.report_problem(f"event {event_id} arrived with a signature that does not verify")
        if arrival["status"] != 200 or key in self._arrived:
            return True
        self._arrived.add(key)
        of, last = arrival["invoice_id"], self._last.get(arrival["invoice_id"], 0)
        self._last[of] = max(arrival["sequence"], last)
        return not of or arrival["sequence"] >= last
