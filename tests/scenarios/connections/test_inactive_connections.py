"""Fatura creates no charges at an inactive connection. It still finds, polls and cancels earlier charges."""

from tests.support.sandbox_steps import (
    cancel,
    charges,
    issued_invoice,
    move,
    pass_time,
    patch_connection,
    queue_fault,
    read,
    ready_invoice,
    stored_charges,
)
from tests.support.world import World


async def test_an_unknown_charge_is_found_at_an_inactive_connection(world: World) -> None:
    """The request to create the charge times out. The connection becomes inactive, and then the payer pays the charge.
    [D-55 inactive, D-33]
    """
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await ready_invoice(world)
    await queue_fault(world, "create_charge", "timeout_after")
    await world.run("issuance")
    await patch_connection(world, active=False)
    [charge] = await charges(world)
    await move(world, charge, "pay")

    await pass_time(world, hours=1)

    assert (await read(world, invoice))["status"] == "paid"
    assert len(await charges(world)) == 1
    assert await world.broken() == []


async def test_an_inactive_connection_gets_no_request_again(world: World) -> None:
    """The charge does not exist, so the invoice waits for the connection, and can be canceled. [D-55 inactive, D-34]"""
    invoice = await ready_invoice(world)
    await queue_fault(world, "create_charge", "timeout_before")
    await world.run("issuance")
    await patch_connection(world, active=False)

    await pass_time(world, days=2)

    assert (await read(world, invoice))["status"] == "ready"
    assert await charges(world) == []
    assert len(await world.events("invoice.issue_delayed")) == 1
    assert [each["stage"] for each in await stored_charges(world)] == ["absent"]
    assert (await cancel(world, invoice)).json["status"] == "canceled"
    assert [each["stage"] for each in await stored_charges(world)] == ["failed"]
    assert await world.broken() == []


async def test_the_charge_of_an_inactive_connection_is_polled_and_canceled(world: World) -> None:
    """[D-55 inactive, D-27 charge]"""
    await world.set_up_gateway(behaviour="never_pay")
    paid, canceled = await issued_invoice(world), await issued_invoice(world)
    await patch_connection(world, active=False)
    [charge] = await charges(world, paid)
    await move(world, charge, "pay")
    await world.run("reconciliation")

    assert (await read(world, paid))["status"] == "paid"
    assert (await cancel(world, canceled)).json["status"] == "canceled"
