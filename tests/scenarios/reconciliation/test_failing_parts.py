"""An unexpected error in one part of reconciliation, such as polls, does not stop the other parts."""

from tests.support.refused_writes import refuse
from tests.support.sandbox_steps import charges, issued_invoice, pay_silently, read
from tests.support.sweep_steps import double_silently, second_charge_events
from tests.support.world import World

REFUSE_LEASES = (
    """
    CREATE FUNCTION refuse_lease() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF NEW.lease_until IS NOT NULL THEN RAISE EXCEPTION 'refused'; END IF;
        RETURN NEW;
    END $$
    """,
    "CREATE TRIGGER refuse_lease BEFORE UPDATE ON invoice FOR EACH ROW EXECUTE FUNCTION refuse_lease()",
)
DUE_LOOK = """
    INSERT INTO unmatched_charge (account_id, connection_id, gateway_charge_id, found_at, next_look_at)
    SELECT v.account_id, v.connection_id, $1, v.created_at, v.created_at FROM invoice v
"""


async def test_polls_that_cannot_be_claimed_do_not_stop_looks_at_unmatched_charges(world: World) -> None:
    """[D-35 polling, D-162]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await issued_invoice(world)
    second = await double_silently(world, invoice)
    await world.sql(DUE_LOOK, second)
    await world.sql("UPDATE invoice SET next_attempt_at = created_at")
    for statement in REFUSE_LEASES:
        await world.sql(statement)

    await world.run("reconciliation")

    assert await second_charge_events(world) == [second]
    states = {each["chargeId"]: each["status"] for each in await charges(world)}
    assert states == {invoice["gatewayInvoiceId"]: "open", second: "canceled"}

    await world.sql("DROP TRIGGER refuse_lease ON invoice")
    await world.run("reconciliation")
    assert (await read(world, invoice))["status"] == "issued"
    assert await world.broken() == []


async def test_looks_that_cannot_be_claimed_do_not_stop_polls(world: World) -> None:
    """[D-35 polling, D-162]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await issued_invoice(world)
    await world.sql(DUE_LOOK, await double_silently(world, invoice))
    await pay_silently(world, invoice["gatewayInvoiceId"])
    await world.sql("UPDATE invoice SET next_attempt_at = created_at")
    await refuse(world, "unmatched_charge", "UPDATE", "true")

    await world.run("reconciliation")

    assert (await read(world, invoice))["status"] == "paid"
    assert await world.broken() == []
