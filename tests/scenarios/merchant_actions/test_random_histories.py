"""Random requests and polls of an invoice. The engine applies the newest request that was not refused (D-171)."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from random import Random
from uuid import UUID

import pytest

from tests.support.changing_charges import AT_GATEWAY
from tests.support.request_histories import Attempt, History
from tests.support.sandbox_steps import charges, connection_id, issued_invoice, read
from tests.support.world import Json, World

TOTAL_CENTS = 9990
FOUND_FAULTS = (611, 619, 626, 678, 736, 741, 861, 880, 904, 973)
"""Seeds of histories that each revealed a different fault of the engine."""


@dataclass(frozen=True, slots=True)
class End:
    """The state at the end of a history.

    `charge_ids` are the engine's ids of the invoice's charges. `at_gateway` are the invoice's charges at the gateway.
    `references` are the references of the ledger entries at the gateway.
    """

    history: History
    invoice: Json
    at_gateway: Sequence[Json]
    references: Sequence[str]
    charge_ids: frozenset[UUID]
    next_poll_at: datetime | None

    def is_done(self, key: str) -> bool:
        match self.history.actions[key]:
            case "cancel":
                return self.invoice["status"] == "canceled"
            case "reissue":
                made = self.history.world.deps.tagger.request_id("reissue", UUID(self.invoice["id"]), key=key)
                return made in self.charge_ids
            case _:
                return key in [each["reference"] for each in self.invoice["payments"]]

    def was_refused(self, attempt: Attempt) -> bool:
        """Return whether the gateway refused the attempt, and no poll had applied the request before."""
        answer = self.history.answers.get(attempt.key)
        return attempt.outcome == "refused" and (answer is None or answer.status != 200)


async def read_end(history: History) -> End:
    world, invoice_id = history.world, UUID(history.invoice["id"])
    entries = "SELECT jsonb_array_elements(entries) ->> 'reference' AS found FROM sandbox_charge WHERE invoice_id = $1"
    stored = await world.sql("SELECT charge_id FROM charge WHERE invoice_id = $1", invoice_id)
    [due] = await world.sql("SELECT next_attempt_at FROM invoice WHERE invoice_id = $1", invoice_id)
    return End(
        history,
        await read(world, history.invoice),
        await charges(world, history.invoice),
        [row["found"] for row in await world.sql(entries, invoice_id)],
        frozenset(row["charge_id"] for row in stored),
        due["next_attempt_at"],
    )


def wrong_charges(end: End) -> Iterator[str]:
    changed, status = end.history.charges, end.invoice["status"]
    payable = [
        each
        for each in end.at_gateway
        if each["status"] in {"open", "refused"} and each["chargeId"] not in changed.expired
    ]
    if len(payable) > (status in {"issued", "overdue"}):
        yield f"{len(payable)} payable charges of a {status} invoice"
    if status == "issued" and not payable:
        yield "no payable charge of an issued invoice"
    newest = end.invoice["charges"][-1]["gatewayInvoiceId"]
    is_asked = any(
        answer is not None and answer.status == 200 and end.history.actions[key] == "cancel"
        for key, answer in end.history.answers.items()
    ) or any(
        each.action == "cancel" and each.charge_id == newest and not end.was_refused(each)
        for each in end.history.attempts
    )
    if status == "canceled" and not is_asked and newest not in changed.canceled:
        yield "canceled, but nobody asked for it"


def wrong_payments(end: End) -> Iterator[str]:
    entries, status = end.invoice["payments"], end.invoice["status"]
    recorded = [each["reference"] for each in entries]
    if sorted(end.references) != sorted(each for each in recorded if each.startswith(AT_GATEWAY)):
        yield f"the gateway has {end.references}, recorded are {recorded}"
    paid = sum(each["amountCents"] for each in entries if each["kind"] == "payment")
    returned = sum(each["amountCents"] for each in entries if each["kind"] == "refund")
    if status == "paid" and paid < TOTAL_CENTS:
        yield f"paid with {paid} cents"
    if status in {"issued", "overdue"} and paid - returned >= TOTAL_CENTS:
        yield f"{status} with {paid - returned} cents"
    if paid and end.next_poll_at is None:
        yield f"{status} with {paid} cents, but no poll follows"
    for key in end.history.actions:
        if recorded.count(key) > 1:
            yield f"{key} was recorded twice"


def wrong_answers(end: End) -> Iterator[str]:
    """For each key, yield an error text if the newest answer is a 5xx, or contradicts what Fatura did."""
    for key, answer in end.history.answers.items():
        if answer is None:
            continue
        if answer.status >= 500:
            yield f"{key} got {answer.status}"
        if answer.status == 200 and not end.is_done(key):
            yield f"{key} got 200, but was not done"
        may_follow = any(each.key == key and each.outcome != "refused" for each in end.history.attempts)
        # Cancellations are not checked: a refused one looks done if another one has canceled the invoice.
        is_cancellation = end.history.actions[key] == "cancel"
        if answer.status != 200 and end.is_done(key) and not (may_follow or is_cancellation):
            yield f"{key} was refused, but was done"


def wrong_decisions(end: End) -> Iterator[str]:
    """For each canceled charge, yield an error text if Fatura did not do what the newest request asked.

    Requests that the gateway refused do not count. Skip charges that the gateway once showed as expired: for these,
    Fatura ignores stored requests to cancel the invoice. Skip charges that the gateway once did not find: Fatura may
    then carry out a request without waiting until the charge is canceled.
    """
    changed = end.history.charges
    for charge_id in [each["chargeId"] for each in end.at_gateway if each["status"] == "canceled"]:
        kept = [
            each for each in end.history.attempts if each.charge_id == charge_id and not end.was_refused(each)
        ]
        if kept and charge_id not in changed.expired | changed.forgotten and not end.is_done(kept[-1].key):
            yield f"{kept[-1].key} was not done, but its charge was canceled"


async def check(world: World, seeds: Iterable[int]) -> None:
    """Check the history of each seed. No nightly sweep runs, so polls and late look-ups must find everything."""
    await world.set_up_gateway(behaviour="never_pay")
    await world.sql("UPDATE connection_sweep SET next_sweep_at = '2900-01-01'")
    here = await connection_id(world)
    elsewhere = (await world.connect(issuesCharges=False))["connectionId"]
    failed: list[str] = []
    for seed in seeds:
        invoice = await issued_invoice(world)
        # so that no other invoice is generated
        await world.post(f"/v1/subscriptions/{invoice['subscriptionId']}/cancel")
        random = Random(seed)  # noqa: S311 - the seed repeats the history
        history = History(world, invoice, random, connections=(here, elsewhere))
        await history.run()
        end = await read_end(history)
        await history.charges.close_expired()
        wrong = [
            *wrong_charges(end),
            *wrong_payments(end),
            *wrong_answers(end),
            *wrong_decisions(end),
            *await world.broken(),
        ]
        if wrong:
            failed.append("\n".join([f"seed {seed}: {wrong}", *history.log]))
    assert not failed, "\n\n".join(failed)


@pytest.mark.faults
async def test_the_newest_request_decides(world: World) -> None:
    """[D-171, D-27, D-51, D-52, D-55 paid charges, D-125]"""
    await check(world, FOUND_FAULTS)


@pytest.mark.faults
@pytest.mark.parametrize("first", range(0, 400, 40))
async def test_the_newest_request_decides_in_long_series(world: World, first: int) -> None:
    """[D-171, D-27, D-51, D-52, D-55 paid charges, D-125]"""
    await check(world, range(first, first + 40))
