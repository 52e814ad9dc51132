"""Compare three ledgers after a run: the gateway's records, the merchants' records, and the engine's database.

The journal contains the records of the gateway and of the merchants. The comparison reports missing and duplicate
charges, payments and refunds, wrong amounts, and events that are missing, altered or out of order.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import asyncpg

from fatura.usecases.deps import Deps
from fatura.usecases.operations import checks
from tests.faults.journal import Journal

LIVE = ("open", "paid")
"""States of a charge that is paid or can be paid."""
SHOWN = 20
_ENTRIES = """
SELECT c.invoice_id, 'payment' AS kind, 'pay_' || c.charge_id AS reference, c.amount_cents
FROM charge c WHERE c.paid_at IS NOT NULL
UNION ALL
SELECT c.invoice_id, e.kind, e.reference, e.amount_cents FROM entry e JOIN charge c ON c.charge_id = e.charge_id
"""


@dataclass(slots=True)
class Ledgers:
    """Collects the differences between the ledgers.

    If `at_rest` is true, the engine should have finished all work. Unfinished work is then a problem too, such as an
    uncharged invoice or an undelivered event.
    """

    deps: Deps
    journal: Journal
    at_rest: bool = True
    problems: list[str] = field(default_factory=list[str])

    def _found(self, what: str, offenders: Sequence[object]) -> None:
        if offenders:
            shown = ", ".join(map(str, offenders[:SHOWN]))
            self.problems.append(f"{what}: {len(offenders)} ({shown})")


async def check(
    deps: Deps, url: str, journal: Journal, *, at_rest: bool = True, has_payers: bool = False
) -> list[str]:
    """Return one sentence for each kind of difference between the ledgers, and for each violated invariant.

    If `has_payers` is true, the simulator's payers pay the charges, and the caller compares charges and entries itself.
    """
    opened = await asyncpg.connect(url)
    try:
        return await check_by(opened, deps, journal, at_rest=at_rest, has_payers=has_payers)
    finally:
        await opened.close()


async def check_by(
    connection: Any, deps: Deps, journal: Journal, *, at_rest: bool = True, has_payers: bool = False
) -> list[str]:
    """Do the same as `check` on an open connection."""
    ledgers = Ledgers(deps, journal, at_rest)
    await _check_invariants(ledgers)
    rows = _AllAccounts(connection, await checks.all_accounts(deps))
    if not has_payers:
        await _check_charges(ledgers, rows)
        await _check_entries(ledgers, rows)
    await _check_prices(ledgers, rows)
    await _check_events(ledgers, rows)
    return ledgers.problems


class _AllAccounts:
    """Reads the rows of all accounts, one account after another because of Row Level Security."""

    def __init__(self, connection: Any, accounts: Sequence[UUID]) -> None:
        self._connection = connection
        self._accounts = accounts

    async def fetch(self, query: str) -> Sequence[Any]:
        rows: list[Any] = []
        for account_id in self._accounts:
            await self._connection.execute(f"SET app.account = '{account_id}'")
            rows += await self._connection.fetch(query)
        return rows


async def _check_invariants(ledgers: Ledgers) -> None:
    for account_id in await checks.all_accounts(ledgers.deps):
        for finding in await checks.findings(ledgers.deps, account_id):
            ledgers._found(f"invariant {finding.invariant.name}", finding.offenders)


async def _check_charges(ledgers: Ledgers, connection: Any) -> None:
    invoices: dict[str, Mapping[str, Any]] = {
        str(row["invoice_id"]): row
        for row in await connection.fetch(
            """
            SELECT v.invoice_id, v.account_id, v.connection_id, v.status, v.total_cents, v.gateway_invoice_id,
                v.unexpected_payment_at, c.known_charge_ids <> '{}' AS is_restored, c.stage = 'missing' AS is_missing,
                EXISTS (
                    SELECT FROM payment_entry e WHERE e.invoice_id = v.invoice_id AND e.source = 'manual'
                ) AS is_paid_elsewhere
            FROM invoice v
            LEFT JOIN charge c ON c.invoice_id = v.invoice_id AND c.gateway_invoice_id = v.gateway_invoice_id
            """
        )
    }
    charges: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for charge in ledgers.journal.read("SELECT * FROM charge"):
        charges[charge["invoice_id"]].append(charge)
    live = {
        invoice_id: [each for each in made if each["state"] in LIVE] for invoice_id, made in charges.items()
    }
    earlier_cents = paid_on_earlier_charges(ledgers.journal)
    with_payments = {row["charge_id"] for row in ledgers.journal.read("SELECT charge_id FROM entry")}
    ledgers._found("charged twice", [each for each, made in live.items() if len(made) > 1])
    ledgers._found(
        "charged for an invoice that does not exist", [each for each in charges if each not in invoices]
    )
    wrong: defaultdict[str, list[str]] = defaultdict(list)
    for invoice_id, invoice in invoices.items():
        for what in _charge_errors(
            {**invoice, "earlier_cents": earlier_cents[invoice_id]},
            [
                {**each, "has_payments": each["state"] == "paid" or each["charge_id"] in with_payments}
                for each in live.get(invoice_id, [])
            ],
            at_rest=ledgers.at_rest,
        ):
            wrong[what].append(invoice_id)
    for what, offenders in wrong.items():
        ledgers._found(what, offenders)


def paid_on_earlier_charges(journal: Journal) -> Counter[str]:
    """Return the cents that were paid on the canceled charges of each invoice."""
    rows = journal.read(
        "SELECT c.invoice_id, sum(e.amount_cents) AS cents FROM entry e JOIN charge c ON c.charge_id = e.charge_id "
        "WHERE e.kind = 'payment' AND c.state = 'canceled' GROUP BY c.invoice_id"
    )
    return Counter({row["invoice_id"]: row["cents"] for row in rows})


def _charge_errors(
    invoice: Mapping[str, Any], live: Sequence[Mapping[str, Any]], *, at_rest: bool
) -> Sequence[str]:
    status, total, charge_id = invoice["status"], invoice["total_cents"], invoice["gateway_invoice_id"]
    found = _amount_errors(invoice, live[0]) if live else []
    if status in {"issued", "overdue"} or (status == "paid" and total):
        if not live:
            is_explained = invoice["is_paid_elsewhere"] if status == "paid" else invoice["is_missing"]
            found += [] if is_explained else [f"{status} without a charge"]
        elif live[0]["charge_id"] != charge_id:
            found.append(f"{status} by another charge than the gateway's")
    if status == "paid" and total and live and live[0]["state"] != "paid":
        found.append("paid, but not at the gateway")
    return [*found, *(_unfinished(invoice, live) if at_rest else ())]


def _amount_errors(invoice: Mapping[str, Any], charge: Mapping[str, Any]) -> list[str]:
    found: list[str] = []
    # after a restore, an invoice adopts even a charge whose amount is not the total, if the charge has payments (D-170)
    is_adopted = invoice["is_restored"] and charge["has_payments"]
    if charge["amount_cents"] + invoice["earlier_cents"] != invoice["total_cents"] and not is_adopted:
        found.append("charged another amount than the total")
    if invoice["total_cents"] == 0:
        found.append("charged although the total is zero")
    if any(charge[name] != str(invoice[name]) for name in ("account_id", "connection_id")):
        found.append("charged by another account's gateway")
    if invoice["status"] in {"draft", "awaiting_value"}:
        found.append("charged before it was priced")
    return found


def _unfinished(invoice: Mapping[str, Any], live: Sequence[Mapping[str, Any]]) -> Sequence[str]:
    paid = any(charge["state"] == "paid" for charge in live)
    match invoice["status"]:
        case "ready":
            return ["never charged"]
        case "issued" | "overdue" if paid:
            return ["paid at the gateway, but not in the engine"]
        case "canceled" if paid and invoice["unexpected_payment_at"] is None:
            return ["paid after cancellation without an event"]
        case "canceled" if live and not paid:
            return ["canceled, with a payable charge"]
        case _:
            return []


async def _check_entries(ledgers: Ledgers, connection: Any) -> None:
    """Compare the gateway's payments, refunds and disputes with those that the engine has recorded.

    Also report requests for a refund that the gateway executed twice.
    """
    theirs = Counter(
        (row["invoice_id"], row["kind"], row["reference"], row["amount_cents"])
        for row in ledgers.journal.read(_ENTRIES)
    )
    ours = Counter(
        (str(row["invoice_id"]), row["kind"], row["reference"], row["amount_cents"])
        for row in await connection.fetch(
            "SELECT invoice_id, kind, reference, amount_cents FROM payment_entry WHERE source = 'gateway'"
        )
    )
    ledgers._found("recorded, but not at the gateway", sorted((ours - theirs).elements()))
    if ledgers.at_rest:
        ledgers._found("not recorded, but at the gateway", sorted((theirs - ours).elements()))
    twice = "SELECT refund_id FROM entry WHERE refund_id IS NOT NULL GROUP BY refund_id HAVING count(*) > 1"
    ledgers._found("refunded twice", [row["refund_id"] for row in ledgers.journal.read(twice)])


async def _check_prices(ledgers: Ledgers, connection: Any) -> None:
    answers: defaultdict[str, set[int]] = defaultdict(set)
    for answer in ledgers.journal.read("SELECT request_id, body FROM price_answer WHERE status = 200"):
        answers[answer["request_id"]].add(json.loads(answer["body"])["amount"])
    items = await connection.fetch(
        "SELECT item_id, amount_cents FROM invoice_item WHERE pricing_source = 'endpoint' AND pricing_status = 'priced'"
    )
    invented = [
        row["item_id"] for row in items if row["amount_cents"] not in answers.get(str(row["item_id"]), set())
    ]
    ledgers._found("priced with an amount that the endpoint never answered", invented)
    ledgers._found(
        "price calls not signed", [""] * ledgers.journal.count("price_answer", "NOT coalesce(verified, 1)")
    )


async def _check_events(ledgers: Ledgers, connection: Any) -> None:
    webhooks = {str(row["account_id"]) for row in await connection.fetch("SELECT account_id FROM webhook")}
    stream = {
        (str(row["account_id"]), row["sequence"]): (
            str(row["event_id"]),
            row["type"],
            json.loads(row["data"]),
        )
        for row in await connection.fetch("SELECT account_id, sequence, event_id, type, data FROM event")
        if str(row["account_id"]) in webhooks
    }
    arrived: set[tuple[str, int]] = set()
    bodies: dict[str, str] = {}
    unlike: list[str] = []
    unordered: list[str] = []
    last: dict[str, int] = {}
    for arrival in ledgers.journal.read("SELECT * FROM arrival ORDER BY rowid"):
        key = (arrival["account_id"], arrival["sequence"])
        event = json.loads(arrival["body"])
        if stream.get(key) != (arrival["event_id"], event["type"], event["data"]) or (
            bodies.setdefault(arrival["event_id"], arrival["body"]) != arrival["body"]
        ):
            unlike.append(arrival["event_id"])
        if arrival["status"] == 200 and key not in arrived:
            arrived.add(key)
            ordered_by = arrival["invoice_id"]
            if ordered_by and arrival["sequence"] < last.setdefault(ordered_by, 0):
                unordered.append(arrival["event_id"])
            if ordered_by:
                last[ordered_by] = arrival["sequence"]
    ledgers._found("events that differ from the stream", unlike)
    ledgers._found("events of an invoice that arrived out of order", unordered)
    ledgers._found("events not signed", [""] * ledgers.journal.count("arrival", "NOT coalesce(verified, 1)"))
    if ledgers.at_rest:
        given_up = {
            (str(row["account_id"]), row["sequence"])
            for row in await connection.fetch(
                "SELECT account_id, sequence FROM delivery WHERE given_up_at IS NOT NULL"
            )
        }
        ledgers._found("events that never arrived", sorted(stream.keys() - arrived - given_up))
