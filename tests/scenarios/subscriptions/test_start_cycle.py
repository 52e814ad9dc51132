"""A customer who moves to Fatura at a later cycle keeps discounts and commitment (D-58)."""

import pytest

from tests.scenarios.billing.test_catch_up import sleep_until
from tests.support.price_server import PriceServer
from tests.support.world import World, columns, item, rows

DISCOUNTS = ((50, 1, 6), (20, 7, 8))


async def test_the_first_invoice_has_the_start_cycle(world: World):
    """Discounts apply by the cycle's number, so the discounts of earlier cycles are never used.

    Only the first due date may differ from the charge day.
    [D-58, spec 2.4 cycleCount, spec 2.3 discount resolution]
    """
    await world.advance("2035-01-05")
    plan = await world.plan(item(await world.product(1000), *DISCOUNTS))
    moved = await world.enroll(plan, startCycle=7, firstChargeDate="2035-01-20", chargeDay=10)
    assert (moved["cycleCount"], moved["nextDueDate"]) == (6, "2035-01-20")

    await world.advance("2035-04-10")

    assert columns(await world.invoices(moved), "cycle", "dueDate", "totalCents") == rows("""
        cycle | due        | total
        7     | 2035-01-20 | 800
        8     | 2035-03-10 | 800
        9     | 2035-04-10 | 1000
    """)
    assert (await world.get(f"/v1/subscriptions/{moved['id']}")).json["cycleCount"] == 9
    assert await world.broken() == []


async def test_the_preview_is_the_invoice_of_the_start_cycle(world: World):
    """[D-58, spec 4.4 GET /v1/subscriptions/{subscriptionId}/preview 200]"""
    await world.advance("2035-01-05")
    plan = await world.plan(item(await world.product(1000), *DISCOUNTS))
    moved = await world.enroll(plan, startCycle=6)
    preview = (await world.get(f"/v1/subscriptions/{moved['id']}/preview")).json
    await world.run("generation")
    [invoice] = await world.invoices(moved)
    shown = ("cycle", "dueDate", "paymentMethod", "installments")
    assert {name: preview[name] for name in shown} == {name: invoice[name] for name in shown}
    assert (preview["cycle"], preview["fixedTotalCents"], invoice["totalCents"]) == (6, 500, 500)


@pytest.mark.parametrize(("start", "fulfilled"), [(11, False), (12, True), (13, True)])
async def test_the_commitment_counts_from_the_start_cycle(world: World, start: int, *, fulfilled: bool):
    """Only the start cycle has been billed. [D-58, D-23a, spec 4.4 commitment]"""
    moved = await world.enroll(await world.plan(commitmentCycles=12), startCycle=start)
    await world.run("generation")
    canceled = await world.made(f"/v1/subscriptions/{moved['id']}/cancel")
    assert canceled["commitment"] == {"cycles": 12, "completed": start, "fulfilled": fulfilled}


async def test_one_batch_bills_different_start_cycles(world: World):
    """[D-58, D-28]"""
    plan = await world.plan(item(await world.product(1000), *DISCOUNTS))
    for start in (1, 7, 1200, 7):
        await world.enroll(plan, startCycle=start)
    assert await world.run("generation") == 4
    assert sorted(columns(await world.invoices(), "cycle", "totalCents")) == rows("""
        cycle | total
        1     | 500
        1200  | 1000
        7     | 800
        7     | 800
    """)
    assert await world.broken() == []


async def test_missed_cycles_follow_the_start_cycle(world: World):
    """[D-58, D-5]"""
    await world.advance("2035-01-05")
    plan = await world.plan(item(await world.product(1000), *DISCOUNTS))
    moved = await world.enroll(plan, startCycle=6, chargeDay=10)
    await sleep_until(world, "2035-03-12T15:00:00Z")
    await world.advance("2035-03-20")
    assert columns(await world.invoices(moved), "cycle", "dueDate", "totalCents") == rows("""
        cycle | due        | total
        6     | 2035-01-10 | 500
        7     | 2035-02-10 | 800
        8     | 2035-03-10 | 800
    """)
    assert await world.broken() == []


async def test_a_price_call_has_the_start_cycle(world: World, prices: PriceServer):
    """[D-58, D-31, spec 4.7 request]"""
    prices.answers({"amount": 700})
    product = await world.variable_product(
        pricing={"mode": "endpoint", "url": prices.url(), "capCents": 1000}
    )
    await world.enroll(await world.plan(product), startCycle=7)
    await world.run("generation", "pricing")
    [call] = prices.calls
    assert call.json["cycle"] == 7
