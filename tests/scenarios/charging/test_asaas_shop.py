"""The engine bills with Asaas over HTTP, while requests and answers are lost (D-33, D-261)."""

from collections.abc import AsyncGenerator

import pytest

from tests.doubles.asaas.book import Account
from tests.support.asaas_shop import TOKEN, charges_of, hook, open_asaas_shop
from tests.support.provider_shop import Losses, Shop, assert_all_paid, bill_through_losses
from tests.support.world import World


@pytest.fixture
async def shop(world: World) -> AsyncGenerator[tuple[Shop, Account]]:
    async with open_asaas_shop(world) as opened:
        yield opened


@pytest.mark.faults
async def test_lost_answers_leave_one_charge_for_each_invoice(shop: tuple[Shop, Account]) -> None:
    """Workers also die in the middle of calls. Then all payers pay, and the ledger has every cent. [D-33, D-261]"""
    opened, account = shop
    losses = Losses(7, lambda method, path: (method, path) == ("POST", "/payments"))
    for invoice in await bill_through_losses(opened, losses, least_cents=500):
        [charge] = charges_of(account, invoice)
        assert (charge["value"] * 100, charge["status"]) == (invoice["totalCents"], "PENDING")
        account.pay(charge["id"])
        assert await hook(opened, charge) == 200
    await opened.world.run()
    received = [each["value"] * 100 for each in account.payments.values() if each["status"] == "RECEIVED"]
    await assert_all_paid(opened.world, int(sum(received)))


async def test_a_webhook_lets_the_engine_read_the_charge(shop: tuple[Shop, Account]) -> None:
    """A forged webhook changes nothing, because the engine reads the state from Asaas. [D-35 webhook, D-261]"""
    opened, account = shop
    world = opened.world
    assert TOKEN not in str((await world.get("/v1/integration")).json)
    await opened.bill(1, await world.plan(await world.product(9990)))
    await world.run()
    [invoice] = await world.invoices()
    [charge] = charges_of(account, invoice)
    shown = (await world.get(f"/v1/invoices/{invoice['id']}")).json["payment"]
    assert (shown["url"], shown["pixCode"][:6]) == (charge["invoiceUrl"], "000201")

    assert await hook(opened, {**charge, "status": "RECEIVED"}) == 200
    await world.run()
    assert [each["status"] for each in await world.invoices()] == ["issued"]
    account.pay(charge["id"])
    assert await hook(opened, charge, token=TOKEN[1:] + "x") == 404
    assert await hook(opened, charge) == 200
    await world.run()
    [paid] = await world.invoices()
    assert (paid["status"], paid["paidCents"]) == ("paid", 9990)
