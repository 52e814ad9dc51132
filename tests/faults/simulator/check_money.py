"""Compare the invoices, charges and ledgers of a simulated world with what its gateway and its merchants know."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from fatura.domain.calendar import local_date
from tests.faults import payments
from tests.faults.payments import Entry, MadeRefund
from tests.faults.simulator.actions import Merchant
from tests.faults.simulator.gateway_state import SimCharge
from tests.faults.simulator.side import World

ASKED_WITHIN = timedelta(days=2)
"""Maximum time between two polls of an unpaid charge while no faults occur (D-55)."""
KNOWN_WITHIN = timedelta(hours=12)
"""While no faults occur, the engine must have recorded every entry that is older than this."""
LAST_DAYS = {"boleto": 10}
"""By payment method, the maximum number of days from a charge's due date until its invoice is overdue.

For all other methods, the maximum is two days.
"""
FAILING_SPAN, FAILING_CALLS, CALLS_APART = timedelta(hours=12), 6, timedelta(minutes=30)
"""A connection is reported as failing after FAILING_CALLS refused calls or polls in a row, over at least FAILING_SPAN.

A call less than CALLS_APART after the previous counted call is not counted, because a batch makes many calls together.
"""
SWEPT_WITHIN = timedelta(days=2)
"""While no faults occur, each connection's newest complete sweep must have begun less than this long ago (D-161)."""
SPACING = timedelta(hours=24) - timedelta(minutes=5)
"""Minimum time between the charges of two invoices of one subscription, if both waited at the same time (D-57).

This is five minutes shorter than a day, because the gateway may create a charge minutes after the engine planned it.
"""
_INVOICES = """
SELECT v.invoice_id::text AS invoice_id, v.subscription_id::text AS subscription_id, v.status, v.total_cents,
    v.gateway_invoice_id, v.next_attempt_at, v.created_at
FROM invoice v
"""
_FAILED_CHARGES = "SELECT invoice_id::text AS invoice_id, number FROM charge WHERE stage = 'failed'"
_REPEATED_CHARGES = """
SELECT c.invoice_id::text AS invoice_id, c.number, c.first_sent_at
FROM charge c JOIN gateway_connection g ON g.account_id = c.account_id AND g.connection_id = c.connection_id
WHERE g.settings ->> 'idempotency' IN ('key', 'natural_id')
"""
"""If the outcome of such a charge's request is unknown, the engine repeats the request."""
_KNOWN_CHARGES = "SELECT gateway_invoice_id FROM charge WHERE gateway_invoice_id IS NOT NULL"
_ENTRIES = """
SELECT payment_entry_id::text AS entry_id, invoice_id::text AS invoice_id, gateway_charge_id, kind,
    coalesce(reference, note) AS reference, amount_cents, occurred_at
FROM payment_entry
"""
_REFUNDS = "SELECT reason, invoice_id::text AS invoice_id, stage, amount_cents FROM refund_request"
_EVENTS = """
SELECT invoice_id::text AS invoice_id, type, data::jsonb #>> '{entry,id}' AS entry_id
FROM event WHERE invoice_id IS NOT NULL ORDER BY account_id, sequence
"""
_LATE_SWEEPS = """
SELECT connection_id, swept_to, next_sweep_at, lease_until FROM connection_sweep WHERE swept_to < $1
"""
_CONNECTION_EVENTS = """
SELECT data::jsonb #>> '{connection,connectionId}' AS connection_id, type, created_at
FROM event WHERE type LIKE 'connection.%' ORDER BY account_id, sequence
"""


@dataclass(frozen=True, slots=True)
class Books:
    """What the gateway, the engine and the merchant know about one invoice.

    `made` has the gateway's charges. `true` has the entries that the engine must have recorded. `ours` has the entries
    that the engine has recorded, and `ids` the ids of these entries. `by_hand` has the payments that the merchant
    recorded, and their refunds. `types` has the types of the invoice's events, and `named` the ids of the entries that
    these events name. While the world is not at rest, `types` and `named` are empty.
    """

    invoice: Mapping[str, Any]
    made: list[SimCharge] = field(default_factory=list[SimCharge])
    ours: list[Entry] = field(default_factory=list[Entry])
    ids: dict[Entry, str] = field(default_factory=dict[Entry, str])
    by_hand: list[Entry] = field(default_factory=list[Entry])
    true: list[Entry] = field(default_factory=list[Entry])
    types: list[str] = field(default_factory=list[str])
    named: set[str] = field(default_factory=set[str])

    @property
    def named_charge(self) -> SimCharge | None:
        """Return the gateway's charge whose id the invoice shows, or None if there is none."""
        known = self.invoice["gateway_invoice_id"]
        return next((each for each in self.made if each.charge_id == known), None)


class MoneyChecker:
    def __init__(self, world: World) -> None:
        self._world = world

    async def check(self, *, at_rest: bool) -> None:
        """Report each difference between the engine's records and those of the gateway and the merchants.

        If `at_rest` is true, all work should be finished. Entries that the engine has not recorded, and unfinished
        work, are then reported too.
        """
        self._world.side.gateway.all_as_of(self._world.schedule.now)
        books = await self._books(at_rest=at_rest)
        for each in books.values():
            for problem in self._problems(each, at_rest=at_rest):
                self._world.report_problem(
                    f"invoice {each.invoice['invoice_id']} ({each.invoice['status']}): {problem}"
                )
        await self._check_refunds(books, at_rest=at_rest)
        if at_rest:
            await self._check_spacing(books.values())
            await self._check_connections()
            await self._check_sweeps()

    async def _check_refunds(self, books: Mapping[str, Books], *, at_rest: bool) -> None:
        """Compare the merchants' requests for refunds with the refunds that were made, and with the engine's stages."""
        made = defaultdict[str, list[MadeRefund]](list)
        for each in books.values():
            for charge in each.made:
                for refund in charge.refunds:
                    made[refund.reason].append(
                        MadeRefund(str(charge.invoice_id), refund.amount_cents, str(refund.state))
                    )
            for entry in filter(payments.is_manual_refund, each.ours):
                made[entry.reference].append(MadeRefund(entry.invoice_id, entry.amount_cents, "done"))
        stages = {row["reason"]: row["stage"] for row in await self._world.observer.fetch(_REFUNDS)}
        for asked in self._world.refunds:
            stage, theirs = stages.pop(asked.reason, None), made.pop(asked.reason, [])
            for problem in payments.refund_errors(asked, theirs, stage=stage, complete=at_rest):
                self._world.report_problem(f"{asked.reason} of invoice {asked.invoice_id}: {problem}")
        for reason in (*stages, *made):
            self._world.report_problem(f"a refund that nobody asked for: {reason}")

    async def _check_sweeps(self) -> None:
        """Check that the newest complete sweep of each connection began within SWEPT_WITHIN."""
        since = self._world.schedule.now - SWEPT_WITHIN
        for row in await self._world.observer.fetch(_LATE_SWEEPS, since):
            self._world.report_problem(
                f"at {self._world.schedule.now}, connection {row['connection_id']} was last swept at {row['swept_to']},"
                f" its next sweep is due at {row['next_sweep_at']}, and its lease ends at {row['lease_until']}"
            )

    async def check_shown_sums(self, merchant: Merchant) -> None:
        """Check that the API shows the sums of the ledger.

        The engine may record entries during the request. Each sum must then equal the sum before or after the request.
        """
        before = await self._read_books()
        shown = (await merchant.get("/v1/invoices?pageSize=100"))["data"]
        after = await self._read_books()
        for invoice in shown:
            for name, kind in (("paidCents", "payment"), ("refundedCents", "refund")):
                sums = {
                    payments.sum_of(books[invoice["id"]].ours, kind)
                    for books in (before, after)
                    if invoice["id"] in books
                }
                if invoice[name] not in sums:
                    self._world.report_problem(
                        f"invoice {invoice['id']} shows {name} {invoice[name]}: {sums}"
                    )

    async def _read_books(self) -> dict[str, Books]:
        return await self._world.schedule.io("read the ledgers", lambda: self._books(at_rest=False))

    async def _books(self, *, at_rest: bool) -> dict[str, Books]:
        """Read the books of all invoices, by invoice id. Report entries that the engine lost, changed or invented."""
        world, fetch = self._world, self._world.observer.fetch
        books = {row["invoice_id"]: Books(row) for row in await fetch(_INVOICES)}
        known = {row["gateway_invoice_id"] for row in await fetch(_KNOWN_CHARGES)}
        required, optional = self._true_entries(known, at_rest=at_rest)
        for charge in world.side.gateway.charges.values():
            if str(charge.invoice_id) in books:
                books[str(charge.invoice_id)].made.append(charge)
            else:
                world.report_problem(f"a charge of an invoice that does not exist: {charge.invoice_id}")
        for row in await fetch(_ENTRIES):
            entry = Entry(*list(row.values())[1:])
            books[entry.invoice_id].ours.append(entry)
            books[entry.invoice_id].ids[entry] = row["entry_id"]
        ours = [entry for each in books.values() for entry in each.ours]
        known_to_others = [entry for entry in ours if not payments.is_manual_refund(entry)]
        for problem in payments.differences(known_to_others, required=required, optional=optional):
            world.report_problem(problem)
        for received in world.received:
            books[received.entry.invoice_id].by_hand.append(received.entry)
        # Add manual refunds to `true` without a check: `_check_refunds` compares them with the merchants' requests.
        for entry in filter(payments.is_manual_refund, ours):
            books[entry.invoice_id].by_hand.append(entry)
            books[entry.invoice_id].true.append(entry)
        for entry in required:
            books[entry.invoice_id].true.append(entry)
        for row in await fetch(_EVENTS) if at_rest else ():
            books[row["invoice_id"]].types.append(row["type"])
            books[row["invoice_id"]].named.add(row["entry_id"])
        return books

    def _true_entries(self, known: set[str], *, at_rest: bool) -> tuple[list[Entry], list[Entry]]:
        """Return the entries that the engine must have recorded, and those that it may have recorded.

        Unless `at_rest` is true, the only required entries are payments that the engine acknowledged to merchants.

        The engine cannot know a charge's entries if it does not know the charge's id, or if the gateway has forgotten
        the charge. If the gateway created a charge twice, the engine must know the entries of both charges, because the
        nightly sweep finds the second charge (D-161).
        """
        required, optional = list[Entry](), list[Entry]()
        until = self._world.schedule.now - KNOWN_WITHIN
        for charge in self._world.side.gateway.charges.values():
            is_known = charge.charge_id in known or charge.is_double
            may_know = at_rest and is_known and not charge.is_forgotten
            for entry in charge.ledger():
                (required if may_know and entry.occurred_at <= until else optional).append(entry)
        for received in self._world.received:
            (required if received.is_acknowledged else optional).append(received.entry)
        return required, optional

    def _problems(self, books: Books, *, at_rest: bool) -> Iterator[str]:
        status, total_cents = books.invoice["status"], books.invoice["total_cents"]
        yield from _charge_errors(books)
        recorded = books.ours if status == "paid" else books.true
        wrong = payments.unpaid_or_uncovered(
            recorded, status=status, total_cents=total_cents, complete=at_rest
        )
        if wrong is not None:
            yield wrong
        if at_rest:
            yield from payments.unreported(books.ours, books.ids, status=status, named=books.named)
            yield from self._unfinished(books)

    def _unfinished(self, books: Books) -> Iterator[str]:
        """Yield what the engine has left undone for an invoice, although it had enough time.

        Examples: a charge that should be canceled can still be paid, or no poll has found that a charge was canceled.
        """
        now, status, shown = self._world.schedule.now, books.invoice["status"], books.named_charge
        others = [
            each for each in books.made if each.is_payable and not each.was_forgotten and each is not shown
        ]
        if others and shown is not None:
            yield f"a charge other than the known one can be paid: {[each.charge_id for each in others]}"
        if status == "paid" and shown is not None and shown.is_payable and not shown.was_forgotten:
            yield "paid, but its charge can be paid"
        if status in {"paid", "canceled"}:
            return
        asked = now - ASKED_WITHIN
        if status in {"issued", "overdue"} and shown is not None and shown.was_canceled(until=asked):
            yield "the gateway canceled the charge, but the engine does not know"
        if self._is_running(books):
            return
        if not payments.says_what_to_do(status, books.types):
            yield f"is not final, and no event says what a person must do: {books.types}"

    def _is_running(self, books: Books) -> bool:
        """Return whether the engine still has work for an invoice.

        Work remains if the charge is due to be created within a day, or if the invoice may still become overdue.
        """
        now, invoice, shown = self._world.schedule.now, books.invoice, books.named_charge
        if invoice["status"] == "ready" and not books.made and invoice["next_attempt_at"] is not None:
            return now < invoice["next_attempt_at"] <= now + timedelta(days=1)
        if invoice["status"] != "issued" or shown is None:
            return False
        overdue_on = shown.due_date + timedelta(days=LAST_DAYS.get(shown.method, 2))
        return local_date(now) <= overdue_on

    async def _check_spacing(self, books: Iterable[Books]) -> None:
        """Check that invoices of one subscription that waited together were charged at least SPACING apart (D-57).

        For each invoice, only the first charge that has not failed counts, because later charges belong to reissues. If
        an earlier charge of the invoice failed, a person requested the counted charge, so the invoice did not wait. An
        invoice did not wait either if its request was first sent before the other charge, and then only repeated.
        """
        failed = {
            (row["invoice_id"], row["number"]) for row in await self._world.observer.fetch(_FAILED_CHARGES)
        }
        sent_at = {
            (row["invoice_id"], row["number"]): row["first_sent_at"]
            for row in await self._world.observer.fetch(_REPEATED_CHARGES)
        }
        first: defaultdict[str, list[tuple[datetime, datetime | None, str]]] = defaultdict(list)
        for each in books:
            invoice_id = each.invoice["invoice_id"]
            attempts = {charge.attempt for charge in each.made if (invoice_id, charge.attempt) not in failed}
            if attempts:
                at = min(charge.created_at for charge in each.made if charge.attempt == min(attempts))
                waiting_since = each.invoice["created_at"] if min(attempts) == 1 else None
                first[each.invoice["subscription_id"]].append((at, waiting_since, invoice_id))
        for charged in first.values():
            in_order = sorted(charged, key=lambda line: line[0])
            for (before, _, _), (after, waiting_since, invoice_id) in pairwise(in_order):
                both_waited = waiting_since is not None and before >= waiting_since + timedelta(minutes=5)
                is_repeat = sent_at.get((invoice_id, 1), after) < before
                if both_waited and not is_repeat and after - before < SPACING:
                    self._world.report_problem(
                        f"invoice {invoice_id} was charged {after - before} after another one of its subscription"
                    )

    async def _check_connections(self) -> None:
        """Check that events report a connection as failing after many refused calls, and later as recovered (D-55)."""
        told: defaultdict[str, list[tuple[str, datetime]]] = defaultdict(list)
        for row in await self._world.observer.fetch(_CONNECTION_EVENTS):
            told[row["connection_id"]].append((row["type"], row["created_at"]))
        for connection_id, events in told.items():
            types = [type_ for type_, _ in events]
            if types != ["connection.failing", "connection.recovered"] * (len(types) // 2):
                self._world.report_problem(f"connection {connection_id} was reported as {types}")
        for connection_id, refused in self._world.side.gateway.refusals:
            is_reported = _is_failing_between(told[str(connection_id)], refused[0], refused[-1])
            if _must_be_reported(refused) and not is_reported:
                self._world.report_problem(
                    f"connection {connection_id} failed from {refused[0]} on without an event"
                )


def _is_failing_between(events: Sequence[tuple[str, datetime]], first: datetime, last: datetime) -> bool:
    """Return whether the connection was reported as failing at any time between the first and the last refused call."""
    before = [type_ for type_, at in events if at < first]
    during = [type_ for type_, at in events if first <= at <= last + CALLS_APART]
    return "connection.failing" in (*before[-1:], *during)


def _must_be_reported(refused: Sequence[datetime]) -> bool:
    counted = [refused[0]]
    for at in refused:
        if at - counted[-1] >= CALLS_APART:
            counted.append(at)
    return len(counted) >= FAILING_CALLS and refused[-1] - refused[0] >= FAILING_SPAN


def _charge_errors(books: Books) -> Iterator[str]:
    """Yield what is wrong with the gateway's charges of an invoice.

    An invoice may have a second charge in four cases: a charge was paid after it was closed, the gateway forgot a
    charge, the gateway created a charge twice, or payments were returned. A charge that was created twice can be paid
    twice until the nightly sweep finds the second charge.

    Several charges may also share the total. After a part payment, the next charge is for the rest. If the gateway then
    returns the part payment, another charge is for the returned amount.
    """
    status, total_cents = books.invoice["status"], books.invoice["total_cents"]
    payable = [each for each in books.made if each.is_payable and not (each.was_forgotten or each.is_double)]
    paid = [each for each in books.made if each.state == "paid" and each.is_only_paid]
    was_returned_by_hand = any(payments.is_manual_refund(entry) for entry in books.by_hand)
    charged = [*payable, *paid]
    cents = sum(each.amount_cents for each in charged)
    if len(charged) > 1 and cents > total_cents and not was_returned_by_hand:
        yield f"charged twice: {[each.history for each in charged]}"
    if books.made and status in {"draft", "awaiting_value"}:
        yield "charged before it was priced"
    elif books.made and not total_cents:
        yield "charged although the total is zero"
    else:
        theirs = [entry for each in books.made for entry in each.ledger()]
        for charge in books.made:
            if not payments.may_be_charged(
                charge.amount_cents, total_cents=total_cents, theirs=theirs, by_hand=books.by_hand
            ):
                yield (
                    f"charged {charge.amount_cents} cents of {total_cents}, which was never open: {charge.history}; "
                    f"{[str(each) for each in (*theirs, *books.by_hand)]}"
                )
    if books.invoice["gateway_invoice_id"] is not None and books.named_charge is None:
        yield "its charge is unknown to the gateway"
    if status in {"issued", "overdue"} and books.invoice["gateway_invoice_id"] is None:
        yield "no charge is known"
    if status == "canceled" and payable:
        yield "canceled, but payable"
