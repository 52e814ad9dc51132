"""The page of a sandbox account has a button that pays, so that merchants can try the page (D-258)."""

import asyncio

import pytest

from tests.support.pay_pages import open_page, page_of, press_button, token_of
from tests.support.sandbox_steps import charges, issued_invoice, move, read
from tests.support.world import World


@pytest.mark.parametrize("method", ["pix", "boleto", "card"])
async def test_the_button_pays_what_is_open(world: World, method: str) -> None:
    """[D-258]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await issued_invoice(world, defaultPaymentMethod=method)
    pressed = await press_button(world, invoice)
    assert pressed.status_code == 303
    assert pressed.headers["location"] == f"../{token_of(world, invoice)}?lang=pt-BR&sent=1"

    sent = await page_of(world, invoice, "?lang=en&sent=1")
    assert sent.parsed.all("form") == []
    assert "The test payment was sent." in sent.parsed.text
    await world.run()
    assert (await page_of(world, invoice, "?lang=en&sent=1")).heading == "Paid invoice"
    assert (await read(world, invoice))["paidCents"] == 9990
    assert await world.broken() == []


async def test_the_browser_returns_to_the_page(world: World) -> None:
    """[D-258]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await issued_invoice(world)
    form = (await page_of(world, invoice)).parsed.all("form")[0]
    start = f"http://fatura.test/pay/{token_of(world, invoice)}?lang=en"
    pressed = await world._client.post(str(world._client.base_url.join(start).join(str(form["action"]))))
    returned = pressed.url.join(pressed.headers["location"])
    assert str(returned) == f"{start}&sent=1"


async def test_a_double_click_pays_once(world: World) -> None:
    """[D-258]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await issued_invoice(world)
    pressed = await asyncio.gather(*(press_button(world, invoice) for _ in range(5)))
    assert {each.status_code for each in pressed} == {303}
    await world.run()
    assert (await press_button(world, invoice)).status_code == 303
    await world.run()
    paid = await read(world, invoice)
    assert (paid["status"], paid["paidCents"], len(paid["payments"])) == ("paid", 9990, 1)


async def test_a_charge_that_was_canceled_meanwhile_is_not_paid(world: World) -> None:
    """[D-258]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await issued_invoice(world)
    [charge] = await charges(world, invoice)
    await world.made(f"/v1/sandbox/charges/{charge['chargeId']}/pay", {"amountCents": 9990})
    await move(world, charge, "refund")
    assert (await press_button(world, invoice)).status_code == 303
    assert [each["status"] for each in await charges(world, invoice)] == ["refunded"]


async def test_the_button_adds_no_audit_entry(world: World) -> None:
    """A payer is no user of the API, and in a live account a payment adds no entry either. [D-258, D-63]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await issued_invoice(world)
    before = await world.audit()
    await press_button(world, invoice)
    assert await world.audit() == before


async def test_a_forged_link_has_no_button(world: World) -> None:
    """[D-258]"""
    pressed = await world._client.post("/pay/x/sandbox-payment?lang=en")
    shown = await open_page(world, "x")
    assert (pressed.status_code, pressed.text) == (404, shown.html)
