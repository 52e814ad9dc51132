"""The engine bills with Mercado Pago over HTTP, while requests and answers are lost (D-33, D-265)."""

from collections.abc import AsyncGenerator
from datetime import timedelta

import pytest

from fatura.gateways.http import ProviderClient
from tests.contract.mercado_pago_provider import signed
from tests.doubles.mercado_pago.book import Account
from tests.doubles.mercado_pago.server import MercadoPagoDouble, open_double
from tests.doubles.server import Loss
from tests.support.mercado_pago_shop import SECRET, connection, links_of, provider
from tests.support.provider_shop import (
    Losses,
    Shop,
    after,
    assert_all_paid,
    bill_once,
    bill_through_losses,
    opened_shop,
)
from tests.support.sandbox_steps import now
from tests.support.world import NOW, World


@pytest.fixture
async def shop(world: World) -> AsyncGenerator[tuple[Shop, Account]]:
    client = ProviderClient(is_exempt=True)
    async with open_double(lambda: NOW) as double:
        token = double.open_account()
        mercado_pago = provider(client, double.url)
        async with opened_shop(world, double, "mercado_pago", mercado_pago, connection(token)) as opened:
            yield opened, double.accounts[token]
        await client.close()


async def hook(shop: Shop, *, secret: str = SECRET) -> int:
    """Send a webhook about some payment, signed now. Return the status of the answer."""
    at = (await now(shop.world)).timestamp()
    return await shop.hook(signed(7, secret=secret, at=at))


@pytest.mark.faults
async def test_lost_answers_leave_one_charge_for_each_invoice(shop: tuple[Shop, Account]) -> None:
    """Workers also die in the middle of calls. Then all payers pay, and the ledger has every cent. [D-33, D-265]"""
    opened, account = shop
    losses = Losses(265, lambda method, path: (method, path) == ("POST", "/checkout/preferences"))
    cents = 0
    for invoice in await bill_through_losses(opened, losses, least_cents=1):
        [link] = links_of(account, invoice)
        assert (link["items"][0]["unit_price"] * 100, link["id"]) == (
            invoice["totalCents"],
            invoice["gatewayInvoiceId"],
        )
        cents += int(account.attempt(link["id"])["transaction_amount"] * 100)
    assert await hook(opened) == 200
    await opened.world.run()
    await assert_all_paid(opened.world, cents)


async def test_a_payer_who_pays_twice_is_reported(shop: tuple[Shop, Account]) -> None:
    """A refused card makes the invoice overdue. A forged webhook changes nothing. [D-265, D-35 webhook, D-50]"""
    opened, account = shop
    world = opened.world
    invoice = await bill_once(opened, secret=SECRET)
    [link] = links_of(account, invoice)
    shown = (await world.get(f"/v1/invoices/{invoice['id']}")).json["payment"]
    assert shown["url"] == link["init_point"]

    account.attempt(link["id"], "rejected")
    assert await hook(opened, secret=40 * "x") == 404
    await world.run()
    assert [each["status"] for each in await world.invoices()] == ["issued"]
    assert await hook(opened) == 200
    await world.run()
    assert [each["status"] for each in await world.invoices()] == ["overdue"]
    for _ in range(2):
        account.attempt(link["id"])
    await world.sql("UPDATE poll_round SET began_at = began_at - interval '2 minutes'")
    assert await hook(opened) == 200
    await world.run()
    [paid] = await world.invoices()
    assert (paid["status"], paid["paidCents"]) == ("paid", 19_980)
    assert len(await world.events("invoice.overpaid")) == 1
    assert await world.broken() == []


async def test_a_second_link_is_ended(shop: tuple[Shop, Account]) -> None:
    """Mercado Pago lists the first link late, so the engine made another one. No payer got the first link.

    [D-33, D-125, D-265]
    """
    opened, account = shop
    world = opened.world
    await opened.bill(1, await world.plan(await world.product(9990)))
    await world.run("generation")
    opened.double.fail_next("POST", "/checkout/preferences", Loss.ANSWER)
    await world.run("issuance")
    [first] = account.preferences
    account.unlisted.add(first)
    await world.advance(after(minutes=10))
    [invoice] = await world.invoices()
    assert invoice["status"] == "issued"
    assert len(links_of(account, invoice)) == 2
    assert invoice["gatewayInvoiceId"] != first
    account.unlisted.clear()
    await world.advance(after(hours=30))
    ended, payable = [
        account.preference(each)["expiration_date_to"] for each in (first, invoice["gatewayInvoiceId"])
    ]
    assert ended < payable
    account.attempt(invoice["gatewayInvoiceId"])
    assert await hook(opened) == 200
    await world.run()
    [paid] = await world.invoices()
    assert (paid["status"], paid["paidCents"]) == ("paid", 9990)
    assert await world.broken() == []


async def test_a_refund_whose_answer_was_lost_is_made_once(shop: tuple[Shop, Account]) -> None:
    """[D-265, D-53 lost answer]"""
    opened, account = shop
    world = opened.world
    await opened.bill(1, await world.plan(await world.product(9990)))
    await world.run()
    [invoice] = await world.invoices()
    payment = account.attempt(invoice["gatewayInvoiceId"])
    assert await hook(opened) == 200
    await world.run()
    opened.double.fail_next("POST", "/v1/payments/[0-9]+/refunds", Loss.ANSWER)
    asked = await world.post(f"/v1/invoices/{invoice['id']}/refunds", {"amountCents": 4000})
    assert asked.status == 202, asked.body
    await world.advance(after(minutes=10))
    [refunded] = await world.invoices()
    assert (refunded["refundedCents"], len(payment["refunds"])) == (4000, 1)
    assert await world.broken() == []


async def test_a_canceled_invoice_has_no_working_link(shop: tuple[Shop, Account]) -> None:
    """[D-265, D-27 charge]"""
    opened, account = shop
    world = opened.world
    await opened.bill(1, await world.plan(await world.product(9990)))
    await world.run()
    [invoice] = await world.invoices()
    pix = account.attempt(invoice["gatewayInvoiceId"], "pending")
    canceled = await world.post(f"/v1/invoices/{invoice['id']}/cancel", {})
    assert (canceled.status, canceled.json["status"]) == (200, "canceled")
    assert pix["status"] == "cancelled"
    ended = account.preference(invoice["gatewayInvoiceId"])["expiration_date_to"]
    assert ended <= (await now(world) + timedelta(minutes=1)).isoformat()


async def test_a_connection_keeps_its_account(shop: tuple[Shop, Account]) -> None:
    """A new token of the same account is accepted. [D-59, D-265]"""
    opened, account = shop
    world, double = opened.world, opened.double
    path = f"/v1/integration/gateways/{opened.connection_id}"
    assert isinstance(double, MercadoPagoDouble)
    other, renewed = double.open_account(), f"TEST-{40 * 'n'}"
    double.accounts[renewed] = account
    refused = await world.patch(path, {"credentials": {"accessToken": other}})
    assert (refused.status, refused.type) == (409, "engine.gateway_account_changed")
    assert (await world.patch(path, {"credentials": {"accessToken": renewed}})).status == 200
    wrong = await world.patch(path, {"credentials": {"accessToken": f"TEST-{40 * 'x'}"}})
    assert (wrong.status, wrong.type) == (400, "engine.invalid_request")
    assert b"xxxx" not in wrong.body
