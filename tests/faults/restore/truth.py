"""Check the database and the charges after a restore, with records of the database that the backup replaced."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import asyncpg

from tests.faults import ledgers
from tests.faults.ledgers import LIVE
from tests.faults.restore.gateway import cancel_charge
from tests.faults.restore.story import BEGIN, Story
from tests.support.world import Merchant

Cycle = tuple[str, int]
"""A subscription's id and the number of one of its cycles. Each cycle may be charged only once."""


@dataclass(slots=True)
class Truth:
    """Counts of all trials, and records of the current trial.

    `billed` maps each invoice id of the lost database to the invoice's cycle. `charges` has the charges that were
    created since the backup. `paid_before` has the cents that were paid on canceled charges, by invoice id. `reported`
    has the ids of the charges that `fatura restored` reported as unmatched.
    """

    restores: int = 0
    newer: int = 0
    of_known_invoices: int = 0
    of_lost_invoices: int = 0
    of_reissues: int = 0
    of_rests: int = 0
    of_moves: int = 0
    unmatched: int = 0
    parked: int = 0
    paid_otherwise: int = 0
    kills: int = 0
    twice: int = 0
    lost: int = 0
    problems: list[str] = field(default_factory=list[str])
    since: datetime = BEGIN
    billed: dict[str, Cycle] = field(default_factory=dict[str, Cycle])
    charges: Sequence[Mapping[str, Any]] = ()
    paid_before: Counter[str] = field(default_factory=Counter[str])
    reported: set[str] = field(default_factory=set[str])

    async def record_lost_database(self, story: Story, *, since: datetime) -> None:
        """Record the charges since the backup, the cycle of each invoice, and the payments on canceled charges.

        Call this before the restore, because the restore discards the database.
        """
        self.since = since
        self.charges = story.charges(since)
        self.paid_before = ledgers.paid_on_earlier_charges(story.journal)
        self.billed = {str(row["invoice_id"]): _cycle(row) for row in await _invoices(story)}
        self.restores += 1
        self.newer += len(self.charges)


async def judge(story: Story, merchant: Merchant, truth: Truth) -> None:
    """Compare the charges with the database, resolve invoices that wait for a person, and compare the ledgers."""
    invoices = await _invoices(story)
    at = f"story {story.seed}, restore {story.restores}"
    newer = {
        charge["charge_id"]
        for charge in truth.charges
        if truth.billed[charge["invoice_id"]][0] not in story.subscriptions
    }
    _check_unmatched(story, truth, newer, at=at)
    _check_matched(truth, invoices, newer, at=at)
    _check_once(story, truth, invoices, at=at)
    await _resolve(story, merchant, truth, invoices)
    found = await ledgers.check(merchant.deps, story.url, story.journal)
    truth.problems += [f"{at}: {problem}" for problem in found]


def _check_unmatched(story: Story, truth: Truth, newer: set[str], *, at: str) -> None:
    """Check that `fatura restored` reported exactly the open and paid charges of lost subscriptions.

    A subscription is lost if it was created after the backup. After the check, delete the charges of lost subscriptions
    from the journal.
    """
    live = {each["charge_id"] for each in truth.charges if each["state"] in LIVE}
    truth.unmatched += len(newer & live)
    if truth.reported != newer & live:
        truth.problems.append(
            f"{at}: reported {sorted(truth.reported)}, unmatched charges are {sorted(newer & live)}"
        )
    for charge_id in newer:
        story.journal.change("DELETE FROM charge WHERE charge_id = ?", charge_id)


def _check_matched(truth: Truth, invoices: Sequence[Mapping[str, Any]], newer: set[str], *, at: str) -> None:
    """For each open or paid charge, check that the restored invoice of the charge's cycle has this charge.

    If the invoice's total differs from the charge's amount, the invoice may instead wait for a person (stage `parked`).
    """
    restored = {_cycle(row): row for row in invoices}
    for charge in truth.charges:
        if charge["charge_id"] in newer or charge["state"] not in LIVE:
            continue
        row = restored.get(truth.billed[charge["invoice_id"]])
        paid_before = truth.paid_before[charge["invoice_id"]]
        should_cents = charge["amount_cents"] + paid_before
        if row is None or str(row["invoice_id"]) != charge["invoice_id"]:
            truth.lost += 1
            truth.problems.append(
                f"{at}: {charge['charge_id']} does not have its invoice {charge['invoice_id']} back"
            )
        elif row["gateway_invoice_id"] == charge["charge_id"]:
            truth.paid_otherwise += row["total_cents"] != should_cents
            truth.of_rests += paid_before > 0
            truth.of_moves += (
                row["created_at"] > truth.since and str(row["home_id"]) != charge["connection_id"]
            )
            truth.of_reissues += charge["attempt"] > 1
            is_in_backup = row["created_at"] <= truth.since
            truth.of_known_invoices += is_in_backup
            truth.of_lost_invoices += not is_in_backup
        elif row["stage"] == "parked" and row["total_cents"] != should_cents:
            truth.parked += 1
        else:
            truth.lost += 1
            truth.problems.append(f"{at}: {charge['charge_id']} is not on its invoice, which is {dict(row)}")


def _check_once(story: Story, truth: Truth, invoices: Sequence[Mapping[str, Any]], *, at: str) -> None:
    """Check that no cycle has two open or paid charges, or a new charge after its charge was canceled.

    A reissue is an exception: it replaces a canceled charge by a new one.
    """
    newest = Counter[str]()
    for charge in truth.charges:
        newest[charge["invoice_id"]] = max(newest[charge["invoice_id"]], charge["attempt"])
    billed = truth.billed | {str(row["invoice_id"]): _cycle(row) for row in invoices}
    live = Counter[Cycle | None]()
    canceled: defaultdict[Cycle | None, str] = defaultdict(str)
    for charge in story.journal.read("SELECT * FROM charge"):
        cycle = billed.get(charge["invoice_id"])
        live[cycle] += charge["state"] in LIVE
        is_newer = charge["charge_id"] in {each["charge_id"] for each in truth.charges}
        is_last = charge["attempt"] == newest[charge["invoice_id"]]
        if charge["state"] == "canceled" and is_newer and is_last:
            canceled[cycle] = charge["charge_id"]
    twice = [cycle for cycle, count in live.items() if count > 1]
    again = [charge_id for cycle, charge_id in canceled.items() if live[cycle]]
    truth.twice += len(twice) + len(again)
    truth.problems += [f"{at}: charged twice: {cycle}" for cycle in twice]
    truth.problems += [f"{at}: charged again after {charge_id} was canceled" for charge_id in again]


async def _resolve(
    story: Story, merchant: Merchant, truth: Truth, invoices: Sequence[Mapping[str, Any]]
) -> None:
    """Resolve invoices that wait for a person: cancel their charges at the gateway, then retry issuance.

    If an invoice adopted a charge that was paid with less than the total, record a manual payment of the rest.
    """
    paid = {
        each["charge_id"]: each["amount_cents"]
        for each in story.journal.read("SELECT * FROM charge WHERE state = 'paid'")
    }
    for row in invoices:
        is_open = row["status"] in {"issued", "overdue"}
        if is_open and paid.get(row["gateway_invoice_id"], row["total_cents"]) < row["total_cents"]:
            answer = await merchant.post(f"/v1/invoices/{row['invoice_id']}/payments", {"method": "cash"})
            if answer.status != 200:
                truth.problems.append(f"story {story.seed}: a manual payment got {answer.body!r}")
        if row["stage"] == "parked":
            for charge_id in row["known_charge_ids"]:
                cancel_charge(story.journal, charge_id)
            answer = await merchant.post(f"/v1/invoices/{row['invoice_id']}/retry-issuance")
            if answer.status != 200:
                truth.problems.append(f"story {story.seed}: retry-issuance answered {answer.body!r}")
    await story.work(merchant.deps)


def _cycle(row: Mapping[str, Any]) -> Cycle:
    return str(row["subscription_id"]), row["cycle"]


async def _invoices(story: Story) -> Sequence[Mapping[str, Any]]:
    """Return all invoices, each with its newest charge."""
    connection = await asyncpg.connect(story.url)
    try:
        assert story.opened is not None
        await connection.execute(f"SET app.account = '{story.opened.account_id}'")
        rows = await connection.fetch(
            """
            SELECT DISTINCT ON (v.invoice_id) v.invoice_id, v.subscription_id, v.cycle, v.status, v.total_cents,
                v.gateway_invoice_id, v.created_at, c.stage, c.known_charge_ids, s.connection_id AS home_id
            FROM invoice v JOIN subscription s ON s.subscription_id = v.subscription_id
            LEFT JOIN charge c ON c.invoice_id = v.invoice_id
            ORDER BY v.invoice_id, c.number DESC
            """
        )
        return [dict(row) for row in rows]
    finally:
        await connection.close()
