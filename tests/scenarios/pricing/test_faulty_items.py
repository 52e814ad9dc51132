"""One item whose price call or warning fails unexpectedly delays no other item of its account (D-186)."""

import pytest

from tests.scenarios.pricing.test_price_faults import expire_leases, reserve
from tests.support.captured_logs import captured_logs
from tests.support.price_server import PriceServer, Reply
from tests.support.price_steps import usage
from tests.support.refused_writes import refuse
from tests.support.sandbox_steps import pass_time
from tests.support.world import Json, World


async def three_drafts(world: World, prices: PriceServer) -> list[Json]:
    """Return three invoices whose first price call is due."""
    plan = await world.plan(await usage(world, prices))
    for _ in range(3):
        await world.enroll(plan)
    await world.run("generation")
    return await world.invoices()


async def test_an_item_whose_call_cannot_be_stored_delays_no_other(world: World, prices: PriceServer) -> None:
    """[D-29, D-186]"""
    failing = (await three_drafts(world, prices))[1]
    await refuse(world, "pricing_attempt", "INSERT", f"NEW.invoice_id = '{failing['id']}'")

    with captured_logs() as logs:
        await world.run("pricing")

    assert logs.getvalue().count("pricing.call_put_off") == 1
    assert [each["id"] for each in await world.invoices() if each["status"] == "draft"] == [failing["id"]]
    assert len(prices.calls) == 2
    await world.sql("DROP TRIGGER refuse ON pricing_attempt")
    await pass_time(world, minutes=11)
    assert "draft" not in {each["status"] for each in await world.invoices()}
    assert len(prices.calls) == 3
    assert await world.broken() == []


async def test_a_warning_that_fails_delays_no_other(world: World, prices: PriceServer) -> None:
    """[D-29, D-186]"""
    prices.answers(Reply(b"out of order", status=500))
    drafts = await three_drafts(world, prices)
    failing = drafts[1]["id"]
    condition = f"OLD.warn_at IS NOT NULL AND NEW.warn_at IS NULL AND NEW.invoice_id = '{failing}'"
    await refuse(world, "price_pull", "UPDATE", condition)

    with captured_logs() as logs:
        await pass_time(world, minutes=20)

    assert logs.getvalue().count("pricing.warning_put_off") == 1
    warned = {each["data"]["invoice"]["id"] for each in await world.events("invoice.pricing_warning")}
    assert warned == {each["id"] for each in drafts} - {failing}
    await world.sql("DROP TRIGGER refuse ON price_pull")
    await pass_time(world, minutes=11)
    assert len(await world.events("invoice.pricing_warning")) == 3
    assert await world.broken() == []


async def change_call(world: World, invoice: Json, change: str) -> None:
    """Change the stored price call of an invoice. PostgreSQL normally refuses this change."""
    await world.sql("ALTER TABLE pricing_attempt ALTER COLUMN url DROP NOT NULL")
    await world.sql("ALTER TABLE pricing_attempt DISABLE TRIGGER pricing_attempt_frozen")
    statement = f"UPDATE pricing_attempt SET {change} WHERE invoice_id = $1::text::uuid"  # noqa: S608 - written here
    await world.sql(statement, invoice["id"])
    await world.sql("ALTER TABLE pricing_attempt ENABLE TRIGGER pricing_attempt_frozen")


@pytest.mark.parametrize("fault", ["unreadable", "unrecordable"])
async def test_a_lost_call_that_cannot_be_recorded_delays_no_other(
    world: World, prices: PriceServer, fault: str
) -> None:
    """The worker died before it made its calls. The call that cannot be recorded does not stop the test clock.
    [D-105, D-186]
    """
    failing = (await three_drafts(world, prices))[1]
    await reserve(world)
    await expire_leases(world)
    if fault == "unreadable":
        await change_call(world, failing, "url = NULL")
    else:
        is_faulty = f"NEW.outcome IS NOT NULL AND NEW.invoice_id = '{failing['id']}'"
        await refuse(world, "pricing_attempt", "UPDATE", is_faulty)

    with captured_logs() as logs:
        await world.run("pricing")

    assert logs.getvalue().count("pricing.lost_call_put_off") == 1
    assert [each["id"] for each in await world.invoices() if each["status"] == "draft"] == [failing["id"]]
    await pass_time(world, minutes=9)
    assert len(prices.calls) == 2
    if fault == "unreadable":
        await change_call(world, failing, "url = ''")
    else:
        await world.sql("DROP TRIGGER refuse ON pricing_attempt")
    await expire_leases(world)
    await pass_time(world, minutes=20)
    assert "draft" not in {each["status"] for each in await world.invoices()}
    assert len(prices.calls) == 3
    assert await world.broken() == []
