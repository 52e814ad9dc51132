"""A restored database lacks the payments and refunds since the backup. The engine records them soon (D-123)."""

import pytest

from tests.support.refund_steps import paid_invoice, refund, refunded_at_gateway
from tests.support.restore_steps import compare
from tests.support.sandbox_steps import (
    issued_invoice,
    now,
    pass_time,
    pay_silently,
    queue_fault,
    read,
    refund_silently,
    stored_charges,
)
from tests.support.sweep_steps import stored_sweep
from tests.support.world import World

TOTAL = 9990
REFUNDED = 4000


async def refund_part_silently(world: World) -> None:
    await refund_silently(world)
    await world.sql("UPDATE sandbox_charge SET status = 'paid'")
    await world.sql(
        "UPDATE sandbox_charge SET entries = jsonb_set(entries, '{1,amount_cents}', to_jsonb($1::int))",
        REFUNDED,
    )


async def test_a_payment_after_the_backup_is_recorded_at_once(world: World):
    """[D-123, D-50]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await issued_invoice(world)
    await pay_silently(world)
    assert (await compare(world)).problems == []
    await world.run("sweep", "reconciliation")

    shown = await read(world, invoice)
    assert (shown["status"], shown["paidCents"]) == ("paid", TOTAL)
    assert await world.broken() == []


async def test_a_refund_after_the_backup_is_recorded_at_once(world: World):
    """[D-123, D-50]"""
    invoice = await paid_invoice(world)
    await refund_silently(world)
    await compare(world)
    await world.run("sweep", "reconciliation")
    assert (await read(world, invoice))["refundedCents"] == TOTAL


async def test_a_sweep_that_the_backup_interrupted_begins_again(world: World):
    """Before the backup, the sweep had already passed the charge. [D-123, D-161]"""
    invoice = await paid_invoice(world)
    await refund_silently(world)
    await world.sql(
        "UPDATE connection_sweep SET started_at = $1, listed_to = $1, checked_to = $2, lease_until = now() + '1 hour'",
        await now(world),
        (await stored_charges(world))[0]["charge_id"],
    )
    await compare(world)
    await world.run("sweep", "reconciliation")

    assert (await read(world, invoice))["refundedCents"] == TOTAL
    assert (await stored_sweep(world))["started_at"] is None


@pytest.mark.parametrize("is_partial", [False, True])
async def test_money_that_was_returned_after_the_backup_is_not_refunded_again(
    world: World, *, is_partial: bool
):
    """Fatura reads the charge before it sends the refund, without waiting for a sweep or a poll. [D-123, D-53]"""
    invoice = await paid_invoice(world)
    await (refund_part_silently if is_partial else refund_silently)(world)
    await compare(world)

    answer = await refund(world, invoice)
    assert (answer.status, answer.json["meta"]["code"]) == (422, "not_left")
    returned = REFUNDED if is_partial else TOTAL
    assert (await read(world, invoice))["refundedCents"] == returned
    if is_partial:
        assert (await refund(world, invoice)).status == 200
    assert sum(await refunded_at_gateway(world)) == (await read(world, invoice))["refundedCents"] == TOTAL
    assert await world.broken() == []


async def test_a_refund_of_a_charge_that_was_polled_after_a_restore_is_sent_at_once(world: World):
    """[D-123, D-53]"""
    invoice = await paid_invoice(world)
    await compare(world)
    await pass_time(world, days=2)
    await queue_fault(world, "get_charge", "server_error")
    assert (await refund(world, invoice)).status == 200


async def test_a_refund_waits_until_the_charge_was_read_after_a_restore(world: World):
    """[D-123, D-53]"""
    invoice = await paid_invoice(world)
    await compare(world)
    await queue_fault(world, "get_charge", "server_error")
    assert (await refund(world, invoice)).status == 202
    assert await refunded_at_gateway(world) == []
    await pass_time(world, minutes=10)
    assert await refunded_at_gateway(world) == [TOTAL]
