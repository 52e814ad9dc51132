"""The page of a sandbox account has a button that pays, so that merchants can try the page (D-258)."""

import asyncio

import pytest

from tests.support.pay_pages import Shown, open_page, page_of, press_button, token_of
from tests.support.sandbox_steps import charges, issued_invoice, move, read, row_held, until_waiting
from tests.support.world import World

WAITING = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


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


async def test_a_refused_payment_is_not_called_sent(world: World) -> None:
    """The charge was canceled at the gateway, and the engine does not know it yet. [D-258]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await issued_invoice(world)
    [charge] = await charges(world, invoice)
    await move(world, charge, "cancel")
    pressed = await press_button(world, invoice)
    assert pressed.headers["location"] == f"../{token_of(world, invoice)}?lang=pt-BR"
    assert [each["status"] for each in await charges(world, invoice)] == ["canceled"]


async def test_after_a_part_payment_the_button_pays_the_rest(world: World) -> None:
    """Further clicks pay nothing more, whether the engine knows of the first click or not. [D-258, D-52]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await issued_invoice(world)
    cash = {"method": "cash", "amountCents": 4000}
    await world.made(f"/v1/invoices/{invoice['id']}/payments", cash)
    for _ in range(2):
        pressed = await press_button(world, invoice)
        assert pressed.headers["location"].endswith("&sent=1")
    await world.run()
    await press_button(world, invoice)
    await world.run()
    paid = await read(world, invoice)
    assert (paid["status"], paid["paidCents"]) == ("paid", 9990)


async def test_the_buttons_of_an_account_share_one_database_connection(world: World) -> None:
    """Many clicks delay neither the merchant's own requests nor the pages. [D-258]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await issued_invoice(world)
    [charge] = await charges(world, invoice)
    async with row_held(world, "sandbox_charge", charge_id=charge["chargeId"]):
        pressing = [asyncio.create_task(press_button(world, invoice)) for _ in range(60)]
        await until_waiting(world)
        assert (await page_of(world, invoice)).status == 200
        await world.product()
        assert len(await world.sql(WAITING)) == 1
    assert {each.status_code for each in await asyncio.gather(*pressing)} == {303}
    await world.run()
    assert (await read(world, invoice))["paidCents"] == 9990


async def test_the_button_adds_no_audit_entry(world: World) -> None:
    """A payer is no user of the API. A payment in a live account adds no audit entry either. [D-258, D-63]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await issued_invoice(world)
    before = await world.audit()
    await press_button(world, invoice)
    assert await world.audit() == before


async def test_a_forged_link_has_no_button(world: World) -> None:
    """The language link of the error page leads to the pay page, because a browser cannot open the button's address.
    [D-258]
    """
    pressed = await world._client.post("/pay/x/sandbox-payment?lang=en")
    found = Shown(pressed.status_code, pressed.headers, pressed.text)
    assert (found.status, found.heading) == (404, "Invalid link")
    href = found.parsed.all("a")[-1]["href"]
    assert str(pressed.url.join(str(href))) == "http://fatura.test/pay/x?lang=pt-BR"
    assert found.html.replace(str(href), "?lang=pt-BR") == (await open_page(world, "x")).html
