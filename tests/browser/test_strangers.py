"""Neither hostile texts nor injected HTML change what a pay page does (D-258)."""

import pytest
from playwright.async_api import Browser, Route

from fatura.domain.offer import MAX_ITEMS
from tests.browser.states import live_invoice, url_of
from tests.support.browser import PHONE, SMALLEST, WIDE, Screen, check_page, payer_at
from tests.support.pay_pages import in_base64, png
from tests.support.sandbox_steps import issued_invoice, read
from tests.support.world import Json, World

pytestmark = pytest.mark.browser

ELSEWHERE = "http://elsewhere.example"
INJECTED = f"""
<script>document.title = 'changed'</script>
<script src="{ELSEWHERE}/x.js"></script>
<img src="x" onerror="document.title = 'changed'"><img src="{ELSEWHERE}/x.png">
<link rel="stylesheet" href="{ELSEWHERE}/x.css"><style>h1 {{ display: none }}</style>
<p id="styled" style="display: none">x</p><iframe src="{ELSEWHERE}/"></iframe><base href="{ELSEWHERE}/">
<object data="{ELSEWHERE}/x"></object><form id="stolen" action="{ELSEWHERE}/" method="post"></form>
<a id="script" href="javascript:document.title = 'changed'">x</a>
"""
TEXTS = {
    "html": "</title></style></textarea><script>document.title = 'changed'</script><img src=x onerror=x>&amp;",
    "long": "W" * 120,
    "arabic": "نادي اللياقة (شهري) - 100!",
    "hebrew": "מועדון כושר, חודשי: 12/2026",
    "emoji": "👩‍👩‍👧‍👦🏋🏽‍♀️" * 9,
    "stacked": "Z" + "\u0335\u0321\u0322" * 39,
    "spaces": "a" + "\u00a0" * 118 + "b",
}


@pytest.mark.parametrize("kind", TEXTS)
async def test_a_hostile_text_is_only_a_text(browser: Browser, shop: World, kind: str) -> None:
    """[D-258]"""
    text = TEXTS[kind][:120]
    logo = in_base64(png(1024, 8))
    assert (await shop.put("/v1/integration/pay-page", {"name": text, "logo": logo})).status == 200
    invoice = await variable_invoice(shop, text, cents=99_999_999_999)
    for width in (SMALLEST, PHONE, WIDE):
        async with payer_at(browser, Screen(width=width)) as payer:
            await payer.open(invoice["payUrl"])
            await check_page(payer)
            assert text in await payer.page.title()
            assert await payer.page.locator("header p").text_content() == text
            assert await payer.page.locator("tbody th").text_content() == text + 2 * text
            await payer.shoot(f"hostile-{kind}-{width}")


async def test_many_items_and_one_cent_fit(browser: Browser, shop: World) -> None:
    """[D-258]"""
    products = [await shop.product(cents=1, name=f"Item {number}") for number in range(MAX_ITEMS)]
    subscription = await shop.enroll(await shop.plan(*products))
    await shop.run()
    [invoice] = await shop.invoices(subscription)
    async with payer_at(browser, Screen(language="en")) as payer:
        await payer.open(await url_of(shop, invoice))
        await check_page(payer)
        assert await payer.page.locator("tbody tr").count() == MAX_ITEMS
        assert "R$0.01" in await payer.page.locator("tbody tr").first.inner_text()
        await payer.shoot("many-items")


async def test_injected_html_does_nothing(browser: Browser, live: World) -> None:
    """A fault in the escaping of texts would neither run a script nor send data to another host. [D-258]"""
    invoice = await live_invoice(live)

    async def inject(route: Route) -> None:
        answer = await route.fetch()
        html = (await answer.text()).replace("<main>", f"{INJECTED}<main>")
        await route.fulfill(response=answer, body=html)

    async with payer_at(browser, Screen()) as payer:
        await payer.page.route(invoice["payUrl"], inject)
        await payer.open(invoice["payUrl"])
        await payer.page.locator("#script").click()
        await payer.page.locator("#stolen").evaluate("form => form.submit()")
        await payer.page.wait_for_timeout(500)
        assert await payer.page.locator("title").inner_text() == "Fatura a pagar: Academia Sol"
        assert await payer.page.locator("h1").is_visible()
        assert await payer.page.locator("#styled").is_visible()
        assert payer.page.url == invoice["payUrl"]
        assert len([each for each in payer.messages if "Content Security Policy" in each]) >= 10


async def test_no_other_page_can_frame_the_page(browser: Browser, shop: World) -> None:
    """[D-258]"""
    url = (await issued_invoice(shop))["payUrl"]
    async with payer_at(browser, Screen()) as payer:
        await payer.page.set_content(f'<iframe src="{url}"></iframe>')
        await payer.page.wait_for_timeout(500)
        [frame] = payer.page.frames[1:]
        assert await frame.locator("main").count() == 0
        assert any("frame-ancestors" in each for each in payer.messages)


async def test_a_payer_without_scripts_pays_with_the_button(browser: Browser, shop: World) -> None:
    """[D-258]"""
    invoice = await issued_invoice(shop)
    async with payer_at(browser, Screen(scripts=False, language="en")) as payer:
        await payer.open(invoice["payUrl"])
        await payer.page.locator("button").click()
        await payer.page.get_by_role("status").wait_for()
        await shop.run()
        await payer.page.get_by_role("link", name="Open the page again").click()
        await payer.page.get_by_role("heading", name="Paid invoice").wait_for()
        assert payer.messages == []
    assert (await read(shop, invoice))["status"] == "paid"


async def variable_invoice(shop: World, text: str, *, cents: int) -> Json:
    """Issue an invoice with one item that has `text` as its name, and more of it as its description."""
    product = await shop.variable_product(name=text, cap_cents=cents)
    subscription = await shop.enroll(await shop.plan(product))
    await shop.run("generation", "pricing")
    [draft] = await shop.invoices(subscription)
    [item] = (await read(shop, draft))["items"]
    value = {"amount": cents, "description": 2 * text}
    await shop.made(f"/v1/invoices/{draft['id']}/items/{item['id']}/value", value)
    await shop.run()
    return await read(shop, draft)
