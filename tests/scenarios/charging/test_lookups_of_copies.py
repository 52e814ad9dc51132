"""An issuance look-up finds several charges of one attempt, and the invoice adopts the best of them (D-181).

A charge is *invalid* while the gateway's answers about it are invalid, for example `paid` without a payment.
"""

from collections.abc import Sequence
from uuid import UUID

import pytest

from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import Charge
from tests.scenarios.reconciliation.test_scheduled_looks import looked_at, notify
from tests.support.sandbox_steps import (
    charge_statuses,
    end_leases,
    pass_time,
    pay_silently,
    queue_fault,
    read,
)
from tests.support.sweep_steps import (
    NO_SWEEP,
    during_the_look_up,
    hide_payment,
    second_charge_events,
    show_expired,
    show_payment,
    two_charges,
)
from tests.support.webhook_steps import SECRET
from tests.support.world import World


async def _issue(world: World) -> None:
    """Make the invoice due again, even if a worker has claimed it, and run the lane `issuance`."""
    await end_leases(world)
    await world.sql("UPDATE invoice SET next_attempt_at = created_at")
    await world.run("issuance")


@pytest.mark.parametrize("state", ["open", "paid"])
async def test_a_canceled_charge_does_not_hide_a_newer_one(world: World, state: str) -> None:
    """Before the look-up, a person cancels one of two charges. The invoice adopts the other charge. [D-181]"""
    invoice, canceled, other = await two_charges(world)
    await world.post(f"/v1/sandbox/charges/{canceled}/cancel")
    if state == "paid":
        await world.post(f"/v1/sandbox/charges/{other}/pay")

    await pass_time(world, days=1)

    found = await read(world, invoice)
    assert (found["status"], found["gatewayInvoiceId"]) == ("issued" if state == "open" else "paid", other)
    assert await charge_statuses(world) == {canceled: "canceled", other: state}
    assert await second_charge_events(world) == []
    assert await world.broken() == []


async def test_the_charge_with_the_right_amount_is_adopted(world: World) -> None:
    """The older charge has another amount than the invoice. [D-181]"""
    invoice, older, newer = await two_charges(world)
    await world.sql("UPDATE sandbox_charge SET amount_cents = 5000 WHERE charge_id = $1", older)

    await pass_time(world, days=1)

    found = await read(world, invoice)
    assert (found["status"], found["gatewayInvoiceId"]) == ("issued", newer)
    assert await charge_statuses(world) == {older: "canceled", newer: "open"}
    assert len(await second_charge_events(world)) == 1
    assert await world.broken() == []


@pytest.mark.parametrize(("state", "cents"), [("open", 4000), ("paid", 9900)])
async def test_a_second_charge_with_a_payment_is_reported(world: World, state: str, cents: int) -> None:
    """The payer paid both charges before the look-up. No webhook reports the payments. [D-181]"""
    invoice, older, newer = await two_charges(world)
    await world.sql(
        """
        UPDATE sandbox_charge SET status = $1, entries = jsonb_build_array(jsonb_build_object('kind', 'payment',
            'reference', charge_id, 'amount_cents', $2::int, 'occurred_at', created_at))
        """,
        state,
        cents,
    )

    await pass_time(world, days=1)

    found = await read(world, invoice)
    assert (found["gatewayInvoiceId"], found["paidCents"]) == (older, 2 * cents)
    assert await second_charge_events(world) == [newer]
    assert await world.broken() == []


async def test_an_expired_charge_with_a_payment_is_no_second_charge(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The payer paid a part of the expired charge. Another charge is open and has a wrong amount, so a look-up parks
    the attempt. [D-181, D-170]
    """
    invoice, wrong, part_paid = await two_charges(world)
    await world.sql("UPDATE sandbox_charge SET amount_cents = 5000 WHERE charge_id = $1", wrong)
    await show_payment(world, part_paid, cents=4000)
    show_expired(monkeypatch, part_paid)

    await pass_time(world, days=3)

    found = await read(world, invoice)
    assert (found["gatewayInvoiceId"], found["paidCents"]) == (part_paid, 4000)
    errors = [each["data"]["error"] for each in await world.events("invoice.issue_failed")]
    assert [(each["code"], each["gatewayInvoiceId"]) for each in errors] == [
        ("amount_differs", wrong),
        ("second_charge", wrong),
    ]
    assert await charge_statuses(world) == {wrong: "canceled", part_paid: "open"}
    assert await world.broken() == []


async def test_a_charge_that_is_listed_twice_is_no_second_charge(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The payer pays the only charge. The gateway lists this charge twice. [D-181]"""
    invoice, only, other = await two_charges(world)
    await world.sql("DELETE FROM sandbox_charge WHERE charge_id = $1", other)
    await pay_silently(world)
    find = SandboxGateway.find_charges

    async def find_twice(self: SandboxGateway, invoice_id: UUID, attempt: int) -> Sequence[Charge]:
        return [*await find(self, invoice_id, attempt), *await find(self, invoice_id, attempt)]

    monkeypatch.setattr(SandboxGateway, "find_charges", find_twice)
    await pass_time(world, hours=1)

    found = await read(world, invoice)
    assert (found["status"], found["gatewayInvoiceId"], found["paidCents"]) == ("paid", only, 9990)
    assert await second_charge_events(world) == []
    assert await world.broken() == []


async def test_a_webhook_during_a_look_up_hides_no_better_charge(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look-up finds a paid charge and an open charge. Meanwhile, a webhook names the open charge. [D-181, D-162]"""
    invoice, paid, other = await two_charges(world, webhookSecret=SECRET)
    await pay_silently(world, paid)

    async def name_the_other() -> None:
        await notify(world, other)
        await looked_at(world)

    during_the_look_up(monkeypatch, name_the_other)
    await _issue(world)
    await pass_time(world, hours=1)

    found = await read(world, invoice)
    assert (found["status"], found["gatewayInvoiceId"], found["paidCents"]) == ("paid", paid, 9990)
    assert await charge_statuses(world) == {paid: "paid", other: "canceled"}
    assert await second_charge_events(world) == [other]
    assert await world.broken() == []


async def test_a_late_answer_does_not_report_the_invoices_own_charge(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The payer paid both charges. While one worker waits for a look-up, another worker lets the invoice adopt a
    charge. [D-181]
    """
    invoice, older, newer = await two_charges(world, webhookSecret=SECRET)
    await pay_silently(world)

    async def adopt_the_newer() -> None:
        await notify(world, newer)
        await looked_at(world)
        await queue_fault(world, "list_charges", "unknown")
        await _issue(world)

    during_the_look_up(monkeypatch, adopt_the_newer)
    await _issue(world)
    await pass_time(world, hours=1)

    found = await read(world, invoice)
    assert (found["gatewayInvoiceId"], found["paidCents"]) == (newer, 2 * 9990)
    assert await second_charge_events(world) == [older]
    assert await world.broken() == []


@pytest.mark.parametrize("moment", ["during", "after"])
async def test_a_webhook_hides_no_invalid_charge(
    world: World, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """A look-up finds an open charge and an invalid charge. A webhook names the open charge. [D-181, D-162]"""
    invoice, valid, hidden = await two_charges(world, webhookSecret=SECRET)
    await hide_payment(world, hidden)
    await world.sql(NO_SWEEP)

    async def name_the_valid_one() -> None:
        await notify(world, valid)
        await looked_at(world)

    if moment == "during":
        during_the_look_up(monkeypatch, name_the_valid_one)
    await _issue(world)
    if moment == "after":
        await name_the_valid_one()
    await pass_time(world, minutes=20)
    assert (await read(world, invoice))["status"] == "ready"
    await show_payment(world, hidden)
    await pass_time(world, hours=1)

    found = await read(world, invoice)
    assert (found["status"], found["gatewayInvoiceId"], found["paidCents"]) == ("paid", hidden, 9990)
    assert await charge_statuses(world) == {valid: "canceled", hidden: "paid"}
    assert await world.broken() == []


@pytest.mark.parametrize("state", ["open", "paid"])
async def test_a_charge_that_a_webhook_names_does_not_end_the_search(world: World, state: str) -> None:
    """Before the look-up, a webhook names one of two charges. The payer has paid the other charge. [D-181, D-162]"""
    invoice, named, other = await two_charges(world, webhookSecret=SECRET)
    await pay_silently(world, other)
    if state == "paid":
        await pay_silently(world, named)
    await notify(world, named)
    await looked_at(world)
    await pass_time(world, hours=1)

    found = await read(world, invoice)
    adopted, cents = (other, 9990) if state == "open" else (named, 2 * 9990)
    assert (found["gatewayInvoiceId"], found["paidCents"]) == (adopted, cents)
    assert await second_charge_events(world) == [named if state == "open" else other]
    assert await world.broken() == []


async def test_a_named_charge_is_adopted_although_no_listed_charge_is_valid(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gateway lists only the invalid charge, and a webhook names the other charge.

    The invoice waits an hour, and then adopts the other charge. [D-181, D-162]
    """
    invoice, named, hidden = await two_charges(world, webhookSecret=SECRET)
    await hide_payment(world, hidden)
    await world.sql(NO_SWEEP)
    find = SandboxGateway.find_charges

    async def find_charges(self: SandboxGateway, invoice_id: UUID, attempt: int) -> Sequence[Charge]:
        return [each for each in await find(self, invoice_id, attempt) if each.charge_id == hidden]

    monkeypatch.setattr(SandboxGateway, "find_charges", find_charges)
    await notify(world, named)
    await looked_at(world)
    await pass_time(world, minutes=50)
    assert (await read(world, invoice))["status"] == "ready"
    await pass_time(world, hours=2)

    found = await read(world, invoice)
    assert (found["status"], found["gatewayInvoiceId"]) == ("issued", named)
