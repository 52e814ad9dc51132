"""A restored database lacks moves of subscriptions to other connections, and invoices that were charged there.

Still, no cycle is charged twice.
"""

from uuid import UUID

import pytest

from fatura.usecases.restore import comparison
from fatura.usecases.restore.matching import MatchKind
from tests.support.restore_steps import compare, create_unmatched_charge, lost_invoice_id
from tests.support.sandbox_steps import charges, connection_id, pass_time, pay_silently, queue_fault, read
from tests.support.sweep_steps import second_charge_events, share_provider_account, sweep
from tests.support.world import Json, World

TOTAL = 9990


async def subscribe(world: World, connection: str) -> Json:
    return await world.enroll(await world.plan(), gatewayConnectionId=connection)


async def test_a_cycle_billed_on_another_connection_after_the_backup_keeps_this_connection(world: World):
    """In the backup, the subscription has its old connection, because it was moved after the backup. [D-123, D-160]"""
    await world.set_up_gateway(behaviour="never_pay")
    second = (await world.connect(behaviour="never_pay"))["connectionId"]
    subscription = await subscribe(world, await connection_id(world))
    lost = await lost_invoice_id(world, subscription)
    charge = await create_unmatched_charge(world, lost, 9990, connection=second)

    report = await compare(world)
    assert (report.counts, report.unmatched, report.problems) == ({MatchKind.LOST: 1}, [], [])
    await world.run()

    [invoice] = await world.invoices(subscription)
    assert (invoice["id"], invoice["gatewayInvoiceId"]) == (str(lost), charge.charge_id)
    assert [(each["chargeId"], each["connectionId"]) for each in await charges(world)] == [
        (charge.charge_id, second)
    ]
    await pay_silently(world)
    await pass_time(world, days=1)
    await sweep(world)
    [invoice] = await world.invoices(subscription)
    assert (invoice["status"], invoice["paidCents"]) == ("paid", 9990)
    assert await world.events("invoice.issue_failed") == []
    assert await world.broken() == []


async def test_a_charge_that_two_connections_list_is_matched_once(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    """The connections belong to one account at the provider. [D-123, D-162]"""
    await world.set_up_gateway(behaviour="never_pay")
    second = await share_provider_account(world, monkeypatch)
    subscription = await subscribe(world, second)
    lost = await lost_invoice_id(world, subscription)
    charge = await create_unmatched_charge(world, lost, 9990)

    assert (await compare(world)).counts == {MatchKind.LOST: 1}
    assert (await compare(world)).counts == {MatchKind.LOST: 1}
    await world.run()

    [invoice] = await world.invoices(subscription)
    assert invoice["gatewayInvoiceId"] == charge.charge_id
    [stored] = await world.sql("SELECT connection_id FROM invoice")
    assert str(stored["connection_id"]) == second
    assert await world.broken() == []


async def test_a_charge_of_a_cycle_that_was_billed_again_elsewhere_is_reported(world: World):
    """After the restore, the cycle is billed before the lost connection is created again. [D-123]"""
    await world.set_up_gateway(behaviour="never_pay")
    subscription = await subscribe(world, await connection_id(world))
    lost = await lost_invoice_id(world, subscription)
    await world.run()
    second = (await world.connect(behaviour="never_pay"))["connectionId"]
    charge = await create_unmatched_charge(world, lost, 9990, connection=second)

    report = await compare(world)

    assert report.counts == {MatchKind.KNOWN: 1, MatchKind.UNMATCHED: 1}
    [unmatched] = report.unmatched
    assert (str(unmatched.connection_id), unmatched.charge.charge_id) == (second, charge.charge_id)
    assert unmatched.why.startswith("its cycle was billed again")
    [emitted] = await world.events("invoice.issue_failed")
    assert emitted["data"]["error"]["gatewayInvoiceId"] == charge.charge_id
    assert (await compare(world)).counts == report.counts
    assert len(await world.events("invoice.issue_failed")) == 1


async def billed_elsewhere(world: World, *, is_charged: bool = True) -> tuple[Json, str, str]:
    """Bill the cycle of a lost invoice that was charged on another connection, and create that connection again.

    With `is_charged`, charge the new invoice.

    Return the new invoice, the gateway's id of the lost invoice's charge, and the id of that charge's connection.
    """
    await world.set_up_gateway(behaviour="never_pay")
    subscription = await subscribe(world, await connection_id(world))
    lost = await lost_invoice_id(world, subscription)
    await world.run(*(() if is_charged else ("generation",)))
    second = (await world.connect(behaviour="never_pay"))["connectionId"]
    charge = await create_unmatched_charge(world, lost, TOTAL, connection=second)
    [invoice] = await world.invoices(subscription)
    return invoice, charge.charge_id, second


async def cancel_silently(world: World, charge_id: str) -> None:
    await world.sql("UPDATE sandbox_charge SET status = 'canceled' WHERE charge_id = $1", charge_id)


@pytest.mark.parametrize("found_by", ["look", "sweep"])
async def test_a_later_payment_of_a_charge_on_another_connection_is_recorded(world: World, found_by: str):
    """The payer pays the charge before the engine can cancel it, or after the cancellation. [D-123, D-50, D-125]"""
    invoice, charge, second = await billed_elsewhere(world)
    await queue_fault(world, "cancel_charge", "rejected")
    await world.sql("UPDATE sandbox_fault SET connection_id = $1::text::uuid", second)
    await compare(world)
    await world.run("reconciliation")
    if found_by == "look":
        await pay_silently(world, charge)
        await pass_time(world, minutes=11)
    else:
        await pass_time(world, days=2)
        await pay_silently(world, charge)
        await cancel_silently(world, charge)
        await sweep(world)
    await world.run()

    shown = await read(world, invoice)
    assert (shown["status"], shown["paidCents"]) == ("paid", TOTAL)
    assert [each["reference"] for each in shown["payments"]] == [f"payment_{charge}"]
    assert await second_charge_events(world) == [charge] + ([charge] if found_by == "look" else [])
    states = {each["chargeId"]: each["status"] for each in await charges(world)}
    assert states[invoice["gatewayInvoiceId"]] == "canceled"
    assert await world.broken() == []


@pytest.mark.parametrize("is_canceled", [False, True])
async def test_a_payment_on_another_connection_is_recorded_before_the_invoice_is_charged(
    world: World, *, is_canceled: bool
):
    """The payer paid the charge of the lost invoice. A charge of the new invoice would ask for the same money again.
    [D-123, D-50]
    """
    invoice, charge, _ = await billed_elsewhere(world, is_charged=False)
    await pay_silently(world, charge)
    if is_canceled:
        await cancel_silently(world, charge)
    await compare(world)
    await compare(world)
    await world.run()

    shown = await read(world, invoice)
    assert (shown["status"], shown["paidCents"]) == ("paid", TOTAL)
    assert [each["chargeId"] for each in await charges(world)] == [charge]
    assert await second_charge_events(world) == ([] if is_canceled else [charge])
    assert await world.broken() == []


async def test_a_later_payment_of_a_canceled_charge_on_another_connection_is_recorded(world: World):
    """[D-123, D-50]"""
    invoice, charge, _ = await billed_elsewhere(world)
    await cancel_silently(world, charge)
    await compare(world)
    await pay_silently(world, charge)
    await cancel_silently(world, charge)
    await sweep(world)

    shown = await read(world, invoice)
    assert (shown["status"], shown["paidCents"]) == ("paid", TOTAL)


async def test_a_payment_on_another_connection_can_be_refunded(world: World):
    """[D-123, D-53]"""
    invoice, charge, _ = await billed_elsewhere(world)
    await pay_silently(world, charge)
    await compare(world)
    answer = await world.post(f"/v1/invoices/{invoice['id']}/refunds", {"reason": "Paid twice"})
    assert (answer.status, answer.json["refundedCents"]) == (200, TOTAL)
    assert await world.broken() == []


async def test_a_charge_is_only_reported_if_the_connection_of_its_invoice_was_skipped(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    """Two connections list the charge. The first comparison skips the connection of the invoice.

    The charge's payment is recorded once. [D-123, D-162]
    """
    await world.set_up_gateway(behaviour="never_pay")
    first = await connection_id(world)
    await share_provider_account(world, monkeypatch)
    subscription = await subscribe(world, first)
    lost = await lost_invoice_id(world, subscription)
    await world.run()
    charge = (await create_unmatched_charge(world, lost, TOTAL)).charge_id
    await comparison.freeze(world.deps, world.account_id)
    since = world.deps.clock()
    await comparison.compare(world.deps, world.account_id, since=since, skipping=[UUID(first)])
    assert await second_charge_events(world) == [charge]
    await compare(world)
    await pay_silently(world, charge)
    await sweep(world)

    [invoice] = await world.invoices(subscription)
    assert (invoice["status"], invoice["paidCents"]) == ("paid", TOTAL)
    assert await world.broken() == []


@pytest.mark.parametrize("is_issued", [False, True])
async def test_a_payment_is_recorded_once_if_many_invoices_are_lost(
    world: World, monkeypatch: pytest.MonkeyPatch, *, is_issued: bool
):
    """Two connections list the charge. The comparison finds the charge's cycle before it reads the second list.

    [D-123, D-50]
    """
    monkeypatch.setattr(comparison, "TRACED_AT_ONCE", 1)
    await world.set_up_gateway(behaviour="never_pay")
    first = await connection_id(world)
    await share_provider_account(world, monkeypatch)
    subscription = await subscribe(world, first)
    lost = await lost_invoice_id(world, subscription)
    await world.run(*(() if is_issued else ("generation",)))
    charge = (await create_unmatched_charge(world, lost, TOTAL)).charge_id
    await pay_silently(world, charge)
    await compare(world)
    await world.run()

    [invoice] = await world.invoices(subscription)
    shown = await read(world, invoice)
    assert (shown["status"], shown["paidCents"]) == ("paid", TOTAL)
    assert [each["reference"] for each in shown["payments"]] == [f"payment_{charge}"]
    assert await second_charge_events(world) == ([charge] if is_issued else [])
    assert await world.broken() == []
