"""The gateway shows a missing charge again while the reissued invoice is still `ready` (D-56, D-125)."""

from tests.support.reissue_steps import ask, unpaid_invoice
from tests.support.sandbox_steps import (
    cancel,
    charge_statuses,
    pass_time,
    queue_fault,
    read,
    stored_charges,
)
from tests.support.sweep_steps import NO_SWEEP
from tests.support.world import Json, World


async def forget(world: World) -> Json:
    """Return an issued invoice whose charge the gateway has forgotten."""
    invoice = await unpaid_invoice(world)
    await world.sql(NO_SWEEP)
    await world.sql("CREATE TABLE forgotten_charge AS SELECT * FROM sandbox_charge")
    await world.sql("DELETE FROM sandbox_charge")
    for _ in range(30):
        await pass_time(world, hours=1)
        if [each["stage"] for each in await stored_charges(world)] == ["missing"]:
            return invoice
    raise AssertionError("the charge should be missing within 30 hours")


async def show_again_while_ready(world: World) -> Json:
    """Return the invoice. The gateway refuses the reissue's charge, and then shows the forgotten charge as open."""
    invoice = await forget(world)
    await queue_fault(world, "create_charge", "rejected")
    assert (await ask(world, invoice)).status == 200
    await world.run("issuance")
    assert (await read(world, invoice))["status"] == "ready"
    await world.sql("INSERT INTO sandbox_charge SELECT * FROM forgotten_charge")
    await world.sql("DROP TABLE forgotten_charge")
    await pass_time(world, days=2)
    return invoice


async def test_at_most_one_charge_is_payable(world: World) -> None:
    """[D-56, D-125] The invoice gets a new charge after the old one was shown again."""
    invoice = await show_again_while_ready(world)
    assert (await world.post(f"/v1/invoices/{invoice['id']}/retry-issuance")).status == 200
    await world.run("reconciliation")
    assert sorted((await charge_statuses(world)).values()) == ["canceled", "open"]


async def test_a_canceled_invoice_has_no_payable_charge(world: World) -> None:
    """[D-56, D-125]"""
    invoice = await show_again_while_ready(world)
    assert (await cancel(world, invoice)).status == 200
    await pass_time(world, days=10)
    assert (await charge_statuses(world))[invoice["gatewayInvoiceId"]] == "canceled"
