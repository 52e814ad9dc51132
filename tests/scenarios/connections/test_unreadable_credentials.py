"""The credentials of a connection cannot be decrypted, for example because the key ring lacks a key (D-55)."""

import pytest

from tests.support.reissue_steps import unpaid_invoice
from tests.support.sandbox_steps import (
    cancel,
    connection_id,
    pass_time,
    patch_connection,
    pay_silently,
    queue_fault,
    read,
)
from tests.support.world import World


@pytest.mark.parametrize("work", ["polls", "late look-ups", "looks", "refunds"])
async def test_the_connection_counts_as_failing(world: World, work: str) -> None:
    """In each case, the engine uses the connection only for `work`. [D-55 failing, D-55 events]"""
    await world.sql("UPDATE connection_sweep SET next_sweep_at = '2900-01-01'")
    invoice = await unpaid_invoice(world)
    connection = await connection_id(world)
    if work == "refunds":
        await pay_silently(world)
        await pass_time(world, days=2)
        await queue_fault(world, "refund_charge", "rate_limited")
        assert (await world.post(f"/v1/invoices/{invoice['id']}/refunds", {})).status == 202
    elif work != "polls":
        assert (await cancel(world, invoice)).status == 200
        await world.sql("DELETE FROM late_charge_check WHERE $1 = 'looks'", work)
    if work == "looks":
        await world.sql(
            """
            INSERT INTO unmatched_charge (account_id, connection_id, gateway_charge_id, found_at, next_look_at)
            SELECT account_id, connection_id, 'sbx_1', created_at, created_at FROM gateway_connection
            """
        )
    await world.sql("UPDATE gateway_connection SET credentials_sealed = '\\x00'::bytea")
    if work == "polls":
        await world.sql("UPDATE invoice SET next_attempt_at = created_at")
    await pass_time(world, hours=3)
    [failing] = await world.events("connection.failing")
    assert failing["data"]["connection"]["connectionId"] == connection
    assert failing["data"]["error"]["code"] == "credentials_unreadable"
    assert "send them again" in failing["data"]["error"]["detail"]


async def test_new_credentials_continue_the_polls(world: World) -> None:
    """[D-55 recovery]"""
    invoice = await unpaid_invoice(world)
    await world.sql("UPDATE gateway_connection SET credentials_sealed = '\\x00'::bytea")
    await pay_silently(world)
    await world.sql("UPDATE invoice SET next_attempt_at = created_at")
    await pass_time(world, hours=3)
    assert len(await world.events("connection.failing")) == 1
    await patch_connection(world, credentials={})
    await pass_time(world, minutes=1)
    assert len(await world.events("connection.recovered")) == 1
    assert (await read(world, invoice))["status"] == "paid"
