"""Unusual answers of the gateway about charges that `fatura restored` has found (D-181)."""

import asyncio
from uuid import UUID

import pytest

from fatura.gateways import port
from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import Charge
from tests.scenarios.restore.test_found_charges import TOTAL, states, two_charges
from tests.support.restore_steps import compare, create_unmatched_charge, lost_invoice_id
from tests.support.sandbox_steps import (
    charges,
    pass_time,
    pay_silently,
    read,
    ready_invoice,
    table_held,
    until_waiting,
)
from tests.support.sweep_steps import second_charge_events
from tests.support.world import World


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> dict[str, Exception]:
    """Return a mapping of charge ids to errors, which is empty at first.

    When the engine reads a charge that is in the mapping, the sandbox gateway raises the charge's error.
    """
    errors: dict[str, Exception] = {}
    get = SandboxGateway.get_charge

    async def get_charge(self: SandboxGateway, charge_id: str) -> Charge:
        if charge_id in errors:
            raise errors[charge_id]
        return await get(self, charge_id)

    monkeypatch.setattr(SandboxGateway, "get_charge", get_charge)
    return errors


async def stop_sweeps(world: World) -> None:
    await world.sql("UPDATE connection_sweep SET next_sweep_at = '2900-01-01'")


async def hide(world: World, *charge_ids: str) -> None:
    """Hide charges at the gateway: delete their rows. `show_again` inserts them again."""
    await world.sql(
        "CREATE TABLE kept AS SELECT * FROM sandbox_charge WHERE charge_id = ANY($1::text[])",
        list(charge_ids),
    )
    await world.sql("DELETE FROM sandbox_charge WHERE charge_id = ANY($1::text[])", list(charge_ids))


async def show_again(world: World) -> None:
    await world.sql("INSERT INTO sandbox_charge SELECT * FROM kept")


async def cancel_paid(world: World, charge_id: str) -> None:
    """Pay and cancel a charge at the gateway without notifying the engine."""
    await pay_silently(world, charge_id)
    await world.sql("UPDATE sandbox_charge SET status = 'canceled' WHERE charge_id = $1", charge_id)


async def test_a_requested_amount_above_the_rest_is_not_adopted(world: World):
    """While the engine requests a charge of the total, `fatura restored` finds a newer paid charge of 90.00. [D-181]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await ready_invoice(world)
    newer = (await create_unmatched_charge(world, UUID(invoice["id"]), 9000, attempt=2)).charge_id
    await pay_silently(world)
    async with table_held(world, "sandbox_charge"):
        sending = asyncio.create_task(world.run("issuance"))
        await until_waiting(world)
        await compare(world)
    await sending
    await world.run()

    shown = await read(world, invoice)
    assert (shown["gatewayInvoiceId"], shown["paidCents"]) == (newer, 9000)
    [other] = await second_charge_events(world)
    assert await states(world) == {newer: "paid", other: "canceled"}


async def test_the_payment_of_a_cycle_that_was_billed_again_is_recorded(world: World):
    """A worker bills the cycle again before the command `fatura restored` runs.

    The found charge therefore names the lost invoice, not the new one. [D-181, D-123]
    """
    await world.set_up_gateway(behaviour="never_pay")
    subscription = await world.enroll(await world.plan())
    old_id = await lost_invoice_id(world, subscription)
    found = (await create_unmatched_charge(world, old_id, TOTAL)).charge_id
    await world.run("generation")
    [invoice] = await world.invoices(subscription)
    assert invoice["id"] != str(old_id)
    await compare(world)
    await world.run()
    assert (await read(world, invoice))["gatewayInvoiceId"] == found

    await pay_silently(world)
    await pass_time(world, days=6)
    shown = await read(world, invoice)
    assert (shown["status"], shown["paidCents"]) == ("paid", TOTAL)
    assert await states(world) == {found: "paid"}


async def test_the_other_charge_of_a_cycle_that_was_billed_again_is_canceled(world: World):
    """[D-181, D-125]"""
    await world.set_up_gateway(behaviour="never_pay")
    subscription = await world.enroll(await world.plan())
    old_id = await lost_invoice_id(world, subscription)
    older, newer = [
        (await create_unmatched_charge(world, old_id, TOTAL, attempt=attempt)).charge_id for attempt in (1, 2)
    ]
    await world.run("generation")
    await compare(world)
    await world.run()

    assert await states(world) == {older: "canceled", newer: "open"}
    assert await second_charge_events(world) == [older]


async def test_a_charge_that_was_seen_again_is_waited_for_again(world: World, refused: dict[str, Exception]):
    """The gateway briefly does not know the newer charge. Hours later, it briefly does not know the older charge.
    The engine requests no other charge. [D-181, D-56]
    """
    invoice, older, newer = await two_charges(world, TOTAL + 1, TOTAL + 2)
    await compare(world)
    await stop_sweeps(world)
    refused[newer] = port.NotFoundError("no such charge")
    await world.run()
    refused.clear()
    await pass_time(world, minutes=10)
    assert (await read(world, invoice))["issueError"]["code"] == "amount_differs"
    await world.made(f"/v1/sandbox/charges/{newer}/cancel")
    await pass_time(world, hours=3)
    refused[older] = port.NotFoundError("no such charge")
    await world.post(f"/v1/invoices/{invoice['id']}/retry-issuance")
    refused.clear()
    await pass_time(world, hours=26)

    assert await states(world) == {older: "open", newer: "canceled"}


async def test_deleted_charges_that_appear_again_are_compared(world: World):
    """A late look-up finds both charges, and the invoice adopts the paid charge. [D-181, D-125]"""
    invoice, older, newer = await two_charges(world)
    await compare(world)
    await stop_sweeps(world)
    await hide(world, older, newer)
    await pass_time(world, hours=2)
    assert (await read(world, invoice))["issueError"]["code"] == "charge_missing"
    await show_again(world)
    await pay_silently(world, older)
    await pass_time(world, hours=26)

    shown = await read(world, invoice)
    assert (shown["gatewayInvoiceId"], shown["paidCents"]) == (older, TOTAL)
    assert await states(world) == {older: "paid", newer: "canceled"}


async def test_a_retry_charges_what_a_canceled_charge_leaves_open(world: World):
    """The canceled charge was paid in part, and another charge is missing. [D-181, D-50]"""
    invoice, older, newer = await two_charges(world, 4000, TOTAL)
    await compare(world)
    await stop_sweeps(world)
    await cancel_paid(world, older)
    await hide(world, newer)
    await pass_time(world, hours=3)
    shown = await read(world, invoice)
    assert (shown["issueError"]["code"], shown["paidCents"]) == ("charge_missing", 4000)

    await world.post(f"/v1/invoices/{invoice['id']}/retry-issuance")
    own = (await read(world, invoice))["gatewayInvoiceId"]
    amounts = {each["chargeId"]: each["amountCents"] for each in await charges(world)}
    assert amounts == {older: 4000, own: TOTAL - 4000}


@pytest.mark.parametrize("is_newer_paid", [False, True])
async def test_a_canceled_charge_pays_the_invoice_while_another_is_missing(
    world: World, *, is_newer_paid: bool
):
    """A canceled charge was paid. The other charge is missing, and is canceled when it appears again. [D-181, D-125]"""
    invoice, *found = await two_charges(world)
    missing, paid = found if is_newer_paid else found[::-1]
    await compare(world)
    await stop_sweeps(world)
    await cancel_paid(world, paid)
    await hide(world, missing)
    await pass_time(world, hours=3)
    shown = await read(world, invoice)
    assert (shown["status"], shown["paidCents"], shown["issueError"]) == ("paid", TOTAL, None)
    assert await second_charge_events(world) == []

    await show_again(world)
    await pass_time(world, hours=26)
    assert await states(world) == {paid: "canceled", missing: "canceled"}
    assert await second_charge_events(world) == [missing]
    assert await world.broken() == []


@pytest.mark.parametrize("is_newer", [False, True])
async def test_a_missing_charge_that_appears_again_after_a_retry_is_canceled(world: World, *, is_newer: bool):
    """The engine cancels the missing charge, because the retry has made a new charge. [D-181, D-113, D-125]"""
    invoice, *found = await two_charges(world)
    await compare(world)
    await stop_sweeps(world)
    await hide(world, found[is_newer])
    await world.sql("DELETE FROM sandbox_charge")
    await pass_time(world, hours=3)
    await world.post(f"/v1/invoices/{invoice['id']}/retry-issuance")
    own = (await read(world, invoice))["gatewayInvoiceId"]
    await show_again(world)
    await pass_time(world, hours=26)

    assert await states(world) == {found[is_newer]: "canceled", own: "open"}
    codes = [each["data"]["error"]["code"] for each in await world.events("invoice.issue_failed")]
    assert codes == ["charge_missing", "second_charge"]


async def test_a_missing_charge_is_reported_once(world: World):
    """The engine continues to look at the other charge, which was paid in part and canceled. [D-181]"""
    invoice, older, newer = await two_charges(world, 4000, TOTAL)
    await compare(world)
    await stop_sweeps(world)
    await cancel_paid(world, older)
    await hide(world, newer)
    await pass_time(world, days=4)

    assert (await read(world, invoice))["issueError"]["code"] == "charge_missing"
    assert len(await world.events("invoice.issue_failed")) == 1


async def test_a_canceled_charge_that_appears_again_changes_nothing_until_it_is_paid(world: World):
    """[D-181, D-50]"""
    invoice, older, newer = await two_charges(world)
    await compare(world)
    await stop_sweeps(world)
    await world.made(f"/v1/sandbox/charges/{older}/cancel")
    await hide(world, older)
    await world.sql("DELETE FROM sandbox_charge WHERE charge_id = $1", newer)
    await pass_time(world, hours=2)
    await show_again(world)
    await pass_time(world, hours=5)
    assert (await read(world, invoice))["issueError"]["code"] == "charge_missing"
    assert len(await world.events("invoice.issue_failed")) == 1

    await cancel_paid(world, older)
    await pass_time(world, hours=20)
    shown = await read(world, invoice)
    assert (shown["status"], shown["gatewayInvoiceId"], shown["paidCents"]) == ("paid", older, TOTAL)


@pytest.mark.parametrize(
    "error", [port.PermanentError("gone", "This charge is archived."), port.InvalidAnswerError("no amount")]
)
async def test_a_charge_that_cannot_be_read_does_not_hide_a_payment(
    world: World, refused: dict[str, Exception], error: port.GatewayError
):
    """[D-181]"""
    invoice, older, newer = await two_charges(world)
    refused[older] = error
    await pay_silently(world, newer)
    await compare(world)
    await stop_sweeps(world)
    await pass_time(world, hours=3)

    shown = await read(world, invoice)
    assert (shown["status"], shown["gatewayInvoiceId"], shown["paidCents"]) == ("paid", newer, TOTAL)


@pytest.mark.parametrize(
    "error", [TimeoutError(), port.TransientError("503"), port.UnknownOutcomeError("500")]
)
async def test_a_charge_about_which_the_gateway_does_not_answer_is_named(
    world: World, refused: dict[str, Exception], error: Exception
):
    """The invoice waits, because the charge may have been paid. [D-181, D-34]"""
    invoice, older, newer = await two_charges(world)
    refused[older] = error
    await compare(world)
    await stop_sweeps(world)
    await pass_time(world, hours=3)
    [emitted] = await world.events("invoice.issue_delayed")
    assert older in emitted["data"]["error"]["detail"]
    assert (await read(world, invoice))["status"] == "ready"

    refused.clear()
    await pass_time(world, hours=2)
    assert await states(world) == {older: "canceled", newer: "open"}


async def test_found_charges_are_read_at_the_same_time(world: World, monkeypatch: pytest.MonkeyPatch):
    """Reading the charges one after the other would exceed the time limit of a call. [D-181]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await ready_invoice(world)
    for attempt in range(1, 6):
        await create_unmatched_charge(world, UUID(invoice["id"]), TOTAL, attempt=attempt)
    await compare(world)
    get = SandboxGateway.get_charge

    async def get_charge(self: SandboxGateway, charge_id: str) -> Charge:
        await asyncio.sleep(0.3)
        return await get(self, charge_id)

    monkeypatch.setattr(SandboxGateway, "get_charge", get_charge)
    monkeypatch.setattr(port, "CALL_TIMEOUT_SECONDS", 1)
    await world.run()
    assert (await read(world, invoice))["status"] == "issued"
