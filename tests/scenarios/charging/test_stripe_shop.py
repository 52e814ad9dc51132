"""The engine bills with Stripe over HTTP, while requests and answers are lost (D-33, D-263)."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from fatura.gateways.adapters.stripe.adapter import StripeGateway
from fatura.gateways.http import ProviderCalls, ProviderClient
from tests.doubles.stripe.book import Account
from tests.doubles.stripe.server import StripeDouble, open_double
from tests.support.provider_shop import (
    Losses,
    Shop,
    assert_all_paid,
    bill_once,
    bill_through_losses,
    opened_shop,
)
from tests.support.stripe_shop import SECRET, charges_of, connection, provider, webhook
from tests.support.world import NOW, World


class ClockedStripe(StripeGateway):
    """An adapter whose simulated Stripe follows the test clock, and so forgets idempotency keys after a day of it."""

    double: StripeDouble

    def _calls(self) -> ProviderCalls:
        self.double.now = max(self.double.now, self._config.now)
        return super()._calls()


@pytest.fixture
async def shop(world: World) -> AsyncGenerator[tuple[Shop, Account]]:
    client = ProviderClient(is_exempt=True)
    async with open_double(NOW) as double:
        ClockedStripe.double = double
        key = double.open_account()
        stripe = provider(client, double.url, ClockedStripe)
        async with opened_shop(world, double, "stripe", stripe, connection(key)) as opened:
            yield opened, double.accounts[key]
        await client.close()


async def hook(shop: Shop, invoice: Any, *, secret: str = SECRET, age: int = 0) -> int:
    """Send the webhook about an invoice of Stripe, and return the status of the answer."""
    now = int(ClockedStripe.double.now.timestamp())
    return await shop.hook(webhook(invoice, secret=secret, at=now - age))


@pytest.mark.faults
async def test_lost_answers_leave_one_charge_for_each_invoice(shop: tuple[Shop, Account]) -> None:
    """Workers also die in the middle of calls. Then all payers pay, and the ledger has every cent. [D-33, D-263]"""
    opened, account = shop
    losses = Losses(11, lambda method, path: method == "POST" and path.endswith("/finalize"))
    invoices = await bill_through_losses(opened, losses, least_cents=50)
    assert len(account.invoices) == len(invoices), "no draft is left"
    for invoice in invoices:
        [charge] = charges_of(account, invoice)
        assert (charge["amount_due"], charge["status"]) == (invoice["totalCents"], "open")
        account.pay(charge["id"])
        assert await hook(opened, charge) == 200
    await opened.world.run()
    received = [
        each["amount_paid"] for each in account.of("invoice_payment").values() if each["status"] == "paid"
    ]
    await assert_all_paid(opened.world, sum(received))


async def test_a_webhook_lets_the_engine_read_the_charge(shop: tuple[Shop, Account]) -> None:
    """A forged or old webhook does nothing; a replayed one is harmless. [D-35 webhook, D-263]"""
    opened, account = shop
    world = opened.world
    invoice = await bill_once(opened, secret=SECRET)
    [charge] = charges_of(account, invoice)
    shown = (await world.get(f"/v1/invoices/{invoice['id']}")).json["payment"]
    assert shown["url"] == charge["hosted_invoice_url"]

    assert await hook(opened, {**charge, "status": "paid"}) == 200
    await world.run()
    assert [each["status"] for each in await world.invoices()] == ["issued"]
    account.pay(charge["id"])
    assert await hook(opened, charge, secret="whsec_" + 40 * "x") == 404
    assert await hook(opened, charge, age=301) == 404
    for _ in range(2):
        assert await hook(opened, charge) == 200
    await world.run()
    [paid] = await world.invoices()
    assert (paid["status"], paid["paidCents"]) == ("paid", 9990)
    assert await world.broken() == []


async def test_products_are_mirrored(shop: tuple[Shop, Account]) -> None:
    """[spec 2.2 mirroring, D-263]"""
    opened, account = shop
    product = await opened.world.product(9990)
    await opened.world.run()
    [mirrored] = account.of("product").values()
    assert (mirrored["id"], mirrored["name"]) == (product["id"], product["name"])


async def test_refunds_and_voided_charges_are_recorded(shop: tuple[Shop, Account]) -> None:
    """[D-27, D-53, D-263]"""
    opened, account = shop
    world = opened.world
    plan_id = await world.plan(await world.product(9990))
    await opened.bill(1, plan_id)
    await opened.bill(2, plan_id)
    await world.run()
    voided, paid = await world.invoices()
    for invoice, act in ((voided, account.void), (paid, account.pay)):
        [charge] = charges_of(account, invoice)
        act(charge["id"])
        assert await hook(opened, charge) == 200
    await world.run()
    statuses = {each["id"]: each["status"] for each in await world.invoices()}
    assert statuses[paid["id"]] == "paid"
    assert statuses[voided["id"]] not in {"issued", "paid"}
    answer = await world.post(f"/v1/invoices/{paid['id']}/refunds", {"amountCents": 990})
    assert (answer.status, answer.json["refundedCents"]) == (200, 990)
    [refund] = account.of("refund").values()
    assert refund["amount"] == 990
    assert await world.broken() == []
