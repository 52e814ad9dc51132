"""A restored database lacks moves of subscriptions, and invoices that other connections charged.

Still, no cycle is charged twice.
"""

import pytest

from fatura.usecases.restore.matching import MatchKind
from tests.support.restore_steps import compare, create_unmatched_charge, lost_invoice_id
from tests.support.sandbox_steps import charges, connection_id, pass_time, pay_silently
from tests.support.sweep_steps import share_provider_account, sweep
from tests.support.world import Json, World


async def subscribe(world: World, connection: str) -> Json:
    return await world.enroll(await world.plan(), gatewayConnectionId=connection)


async def test_a_cycle_billed_on_another_connection_after_the_backup_keeps_this_connection(world: World):
    """The subscription was moved after the backup. [D-123, D-160]"""
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
