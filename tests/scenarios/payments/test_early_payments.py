"""A charge of an invoice is paid before the engine knows the invoice's total, for example after a restore."""

from tests.support.sandbox_steps import read, ready_invoice
from tests.support.sweep_steps import DOUBLE_ID, sweep
from tests.support.world import Json, World

PAID_CHARGE = """
    INSERT INTO sandbox_charge (account_id, charge_id, connection_id, invoice_id, attempt, amount_cents, currency,
        payment_method, due_date, status, entries, is_double, created_at)
    SELECT account_id, $2, connection_id, invoice_id, 1, 9990, currency, payment_method, due_date, 'paid',
        jsonb_build_array(jsonb_build_object('kind', 'payment', 'reference', 'early', 'amount_cents', 9990,
            'occurred_at', created_at)), true, created_at
    FROM invoice WHERE invoice_id = $1
"""


async def test_an_invoice_that_was_paid_before_its_values_is_not_charged(world: World) -> None:
    """[D-50, D-150]"""
    waiting = await paid_early(world)

    await enter_value(world, waiting, 9990)
    other = await ready_invoice(world)
    await world.run("issuance")

    paid = await read(world, waiting)
    assert (paid["status"], paid["paidCents"], paid["charges"]) == ("paid", 9990, [])
    assert (await read(world, other))["status"] == "issued"
    assert len(await world.events("invoice.paid")) == 1
    assert await world.events("invoice.overpaid") == []
    assert await world.broken() == []


async def test_values_below_an_early_payment_make_the_invoice_overpaid(world: World) -> None:
    """[D-50]"""
    waiting = await paid_early(world)

    await enter_value(world, waiting, 7000)
    await world.run("issuance")

    paid = await read(world, waiting)
    assert (paid["status"], paid["totalCents"], paid["paidCents"]) == ("paid", 7000, 9990)
    [event] = await world.events("invoice.overpaid")
    assert event["data"]["entry"]["amountCents"] == 9990
    assert await world.broken() == []


async def paid_early(world: World) -> Json:
    """Return an invoice that awaits a value, and whose charge of 9990 cents was paid."""
    await world.set_up_gateway(behaviour="never_pay")
    subscription = await world.enroll(await world.plan(await world.variable_product()))
    await world.run()
    [waiting] = await world.invoices(subscription)
    assert waiting["status"] == "awaiting_value"
    await world.sql(PAID_CHARGE, waiting["id"], DOUBLE_ID)
    await sweep(world)
    return await read(world, waiting)


async def enter_value(world: World, invoice: Json, cents: int) -> None:
    item_id = invoice["items"][0]["id"]
    await world.made(f"/v1/invoices/{invoice['id']}/items/{item_id}/value", {"amount": cents})
