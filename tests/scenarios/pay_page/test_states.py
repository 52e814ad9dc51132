"""The pay page shows an invoice from its issuance to its receipt, and a link opens its own invoice only (D-258)."""

import pytest

from fatura.domain.credentials import Mode
from fatura.usecases.accounts import suspension
from tests.support.erasure_steps import CUSTOMER, erase, former_customer
from tests.support.expect import UNKNOWN_ID, problem
from tests.support.operator import OPERATOR
from tests.support.pay_pages import Shown, open_page, page_of, press_button, token_of
from tests.support.sandbox_steps import charges, issued_invoice, move, read, ready_invoice
from tests.support.world import Json, Merchant, World, open_world

INSTRUCTIONS = "Send us the receipt <b>if</b> you pay on a Sunday."
PIX_KEY = {
    "pixKey": "pix@example.com",
    "merchantName": "Academia Sol",
    "merchantCity": "Sao Paulo",
    "instructions": INSTRUCTIONS,
}
BASE = "https://billing.example.com"


async def is_absent(merchant: Merchant, token: str) -> bool:
    """Return whether a link opens the page that is shown for unknown links."""
    shown, unknown = await open_page(merchant, token), await open_page(merchant, "x")
    assert (shown.status, shown.html) != (200, unknown.html)
    return (shown.status, shown.html) == (404, unknown.html)


async def expect(merchant: Merchant, invoice: Json, heading: str) -> Shown:
    shown = await page_of(merchant, invoice)
    assert (shown.status, shown.heading) == (200, heading)
    return shown


async def test_the_page_follows_the_invoice(world: World) -> None:
    """[D-258]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await ready_invoice(world)
    shown = await expect(world, invoice, "Invoice being prepared")
    assert "R$99.90" in shown.parsed.texts
    assert shown.parsed.all("form") == shown.parsed.all("textarea") == []

    await world.run("issuance")
    shown = await expect(world, invoice, "Invoice to pay")
    assert shown.parsed.by_tag["textarea"] == [(await read(world, invoice))["payment"]["pixCode"]]
    assert "Due date: 23 November 2033" in shown.parsed.texts

    await world.advance(days=5)
    shown = await expect(world, invoice, "Overdue invoice")
    [charge] = await charges(world, invoice)
    await move(world, charge, "pay")
    await world.run()
    shown = await expect(world, invoice, "Paid invoice")
    assert shown.parsed.all("textarea") == shown.parsed.all("form") == []
    assert invoice["id"] in shown.parsed.text


async def test_a_boleto_and_a_card_have_pages_too(world: World) -> None:
    """[D-258]"""
    await world.set_up_gateway(behaviour="never_pay")
    boleto = await page_of(world, await issued_invoice(world, defaultPaymentMethod="boleto"))
    [digits] = boleto.parsed.by_tag["textarea"]
    assert len(digits) == 54

    terms = {"defaultPaymentMethod": "card", "maxInstallments": 3}
    card = await page_of(world, await issued_invoice(world, **terms))
    assert "in 3 installments" in card.parsed.text


async def test_a_live_account_shows_the_code_of_its_pix_key(world: World) -> None:
    """[D-258, D-256]"""
    live = await world.another(Mode.LIVE)
    await live.made(
        "/v1/integration/gateways", {"provider": "pix_key", "credentials": {}, "settings": PIX_KEY}
    )
    await live.enroll(await live.plan())
    await world.run()
    [invoice] = await live.invoices()
    shown = await expect(live, invoice, "Invoice to pay")
    assert shown.parsed.by_tag["textarea"] == [(await read(live, invoice))["payment"]["pixCode"]]
    assert INSTRUCTIONS in shown.parsed.texts
    assert len(shown.parsed.all("svg")) == 1
    assert shown.parsed.all("form") == []
    assert "Test environment" not in shown.html

    pressed = await press_button(live, invoice)
    assert pressed.status_code == 404
    assert (await read(live, invoice))["status"] == "issued"


async def test_a_part_payment_lowers_what_is_open(world: World) -> None:
    """[D-258, D-52]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await issued_invoice(world)
    path = f"/v1/invoices/{invoice['id']}/payments"
    await world.made(path, {"method": "cash", "amountCents": 4000})
    page = (await expect(world, invoice, "Invoice to pay")).parsed
    texts = page.texts
    assert texts[texts.index("Already paid") + 1] == "R$40.00"
    assert texts[texts.index("Still to pay") + 1] == texts[texts.index("Amount to pay") + 1] == "R$59.90"
    assert page.all("textarea") == []
    assert "Please ask Test for a new charge of what is still to pay." in page.text

    await world.made(path, {"method": "transfer"})
    receipt = (await expect(world, invoice, "Paid invoice")).parsed.texts
    assert [each for each in receipt if each.startswith("R$")] == ["R$99.90", "R$99.90", "R$40.00", "R$59.90"]


async def test_an_expired_charge_cannot_be_paid_here(world: World) -> None:
    """[D-258]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await issued_invoice(world)
    await world.sql("UPDATE charge SET stage = 'expired', closed_at = now()")
    shown = await expect(world, invoice, "Invoice to pay")
    assert "At the moment, you cannot pay here. Please ask Test." in shown.parsed.texts
    assert shown.parsed.all("form") == []


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE charge SET pay_expires_at = now() - interval '9000 days'",
        "UPDATE account SET recovering_since = now()",
    ],
)
async def test_no_code_is_shown_that_should_not_be_paid(world: World, change: str) -> None:
    """The code has expired. Or the account is being restored, so the code may be paid already. [D-258, D-123]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await issued_invoice(world)
    await world.sql(change)
    shown = await expect(world, invoice, "Invoice to pay")
    assert "At the moment, you cannot pay here. Please ask Test." in shown.parsed.texts
    assert shown.parsed.all("textarea") == shown.parsed.all("form") == []


async def test_a_long_pix_code_has_no_qr_code(world: World) -> None:
    """[D-258]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await issued_invoice(world)
    await world.sql("UPDATE charge SET pix_code = repeat('aB', 1300)")
    shown = await expect(world, invoice, "Invoice to pay")
    assert shown.parsed.by_tag["textarea"] == ["aB" * 1300]
    assert shown.parsed.all("svg") == []


async def test_a_canceled_invoice_shows_no_code(world: World) -> None:
    """[D-258]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await issued_invoice(world)
    await world.made(f"/v1/invoices/{invoice['id']}/cancel")
    shown = await expect(world, invoice, "Canceled invoice")
    assert "R$" not in shown.html
    assert shown.parsed.all("textarea") == shown.parsed.all("svg") == []


async def test_an_invoice_without_a_value_has_no_page(world: World) -> None:
    """[D-258]"""
    await world.enroll(await world.plan(await world.variable_product()))
    await world.run("generation")
    [draft] = await world.invoices()
    assert draft["status"] == "draft"
    assert await is_absent(world, token_of(world, draft))
    await world.run("pricing")
    assert (await read(world, draft))["status"] == "awaiting_value"
    assert await is_absent(world, token_of(world, draft))


async def test_a_free_invoice_is_paid(world: World) -> None:
    """[D-258]"""
    invoice = await ready_invoice(world, items=[{"productId": (await world.product(0))["id"]}])
    shown = await expect(world, invoice, "Paid invoice")
    assert "R$0.00" in shown.parsed.texts


async def test_a_rotation_replaces_the_link(world: World) -> None:
    """The stored answer to the request is encrypted. [D-258, D-14]"""
    invoice = await issued_invoice(world)
    path = f"/v1/invoices/{invoice['id']}/pay-link/rotate"
    answers = [await world.post(path, key="k") for _ in range(2)]
    assert [each.status for each in answers] == [200, 200]
    assert answers[0].json == answers[1].json
    assert answers[0].json["id"] == invoice["id"]
    stored = await world.sql("SELECT answer FROM idempotency_key WHERE answer IS NOT NULL")
    assert stored
    assert not [row for row in stored if invoice["id"].encode() in row["answer"]]

    assert await is_absent(world, token_of(world, invoice))
    assert (await page_of(world, invoice, version=1)).heading == "Invoice to pay"
    assert await is_absent(world, token_of(world, invoice, version=2))
    [entry] = await world.audit("invoice.rotate_pay_link")
    assert (entry["resource"]["id"], entry["after"]) == (invoice["id"], {"payUrl": "[redacted]"})
    assert problem(await world.post(path.replace(invoice["id"], UNKNOWN_ID)))[:2] == (404, "engine.not_found")
    assert await world.broken() == []


async def test_an_erased_customer_is_not_shown(world: World) -> None:
    """[D-258, D-226]"""
    customer = await former_customer(world)
    [invoice] = await world.invoices()
    before = await page_of(world, invoice)
    assert (await erase(world, customer["id"])).status in {200, 202}
    await world.run()
    after = await expect(world, invoice, "Paid invoice")
    for shown in (before, after):
        assert not [each for each in CUSTOMER.values() if each in shown.html]
    assert "[erased]" not in after.html


async def test_an_erased_description_is_not_shown(world: World) -> None:
    """A merchant may have written the customer's name into the description of an item. [D-258, D-226]"""
    await world.set_up_gateway(behaviour="never_pay")
    plan = await world.plan(await world.variable_product())
    subscription = await world.enroll(plan, customer=CUSTOMER)
    await world.run("generation", "pricing")
    [invoice] = await world.invoices()
    item_id = (await read(world, invoice))["items"][0]["id"]
    value = {"amount": 1200, "description": "Session of Ana Souza"}
    await world.made(f"/v1/invoices/{invoice['id']}/items/{item_id}/value", value)
    await world.run()
    assert "Session of Ana Souza" in (await page_of(world, invoice)).parsed.texts

    await press_button(world, invoice)
    await world.run()
    await world.made(f"/v1/subscriptions/{subscription['id']}/cancel")
    assert (await erase(world, subscription["customer"]["id"])).status in {200, 202}
    await world.run()
    assert "Ana Souza" not in (await expect(world, invoice, "Paid invoice")).html


async def test_a_suspended_account_has_no_pages(world: World) -> None:
    """[D-258, D-242]"""
    invoice = await issued_invoice(world)
    await suspension.suspend(world.deps, world.account_id, asked_by=OPERATOR)
    assert await is_absent(world, token_of(world, invoice))
    assert (await press_button(world, invoice)).status_code == 404

    await suspension.resume(world.deps, world.account_id, asked_by=OPERATOR)
    await expect(world, invoice, "Invoice to pay")


async def test_the_ids_of_another_account_open_nothing(world: World) -> None:
    """[D-258]"""
    other = await world.another()
    invoice = await issued_invoice(world)
    assert await is_absent(other, token_of(other, invoice))
    assert (await other.post(f"/v1/invoices/{invoice['id']}/pay-link/rotate")).status == 404
    await expect(world, invoice, "Invoice to pay")


async def test_an_invoice_shows_the_url_of_its_page(database_url: str) -> None:
    """Events do not contain the URL. Events are kept, so they would still contain the old link after a rotation.
    [D-258, D-49]
    """
    async with open_world(database_url, FATURA_PUBLIC_URL=f"{BASE}/") as world:
        invoice = await issued_invoice(world)
        url = f"{BASE}/pay/{token_of(world, invoice)}"
        assert invoice["payUrl"] == invoice["payment"]["payUrl"] == url
        rotated = await world.made(f"/v1/invoices/{invoice['id']}/pay-link/rotate")
        url = f"{BASE}/pay/{token_of(world, invoice, version=1)}"
        assert rotated["payUrl"] == rotated["payment"]["payUrl"] == url
        assert "payUrl" not in str(await world.events())
        assert "payUrl" not in str(await world.invoices())


@pytest.mark.parametrize("state", ["ready", "paid", "expired", "canceled"])
async def test_an_invoice_without_a_payable_charge_shows_its_url(database_url: str, state: str) -> None:
    """[D-258]"""
    async with open_world(database_url, FATURA_PUBLIC_URL=BASE) as world:
        await world.set_up_gateway(behaviour="never_pay")
        invoice = await (ready_invoice if state == "ready" else issued_invoice)(world)
        match state:
            case "paid":
                await press_button(world, invoice)
                await world.run()
            case "canceled":
                await world.made(f"/v1/invoices/{invoice['id']}/cancel")
            case "expired":
                await world.sql("UPDATE charge SET stage = 'expired', closed_at = now()")
            case _:
                pass
        rotated = await world.made(f"/v1/invoices/{invoice['id']}/pay-link/rotate")
        assert rotated["payment"] is None
        assert rotated["payUrl"] == f"{BASE}/pay/{token_of(world, invoice, version=1)}"
        assert (await page_of(world, invoice, version=1)).status == 200
