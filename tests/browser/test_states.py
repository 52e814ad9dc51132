"""Each state of the pay page can be read on phones, on wide screens and on paper (D-258)."""

import pytest
from playwright.async_api import Browser

from tests.browser.states import STATES, Accounts
from tests.support.browser import PHONE, SCREENS, SMALLEST, Screen, check_page, payer_at
from tests.support.world import World

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("state", STATES)
async def test_each_state_can_be_read(browser: Browser, shop: World, live: World, state: str) -> None:
    """[D-258]"""
    url = await STATES[state](Accounts(shop, live))
    for screen in SCREENS:
        async with payer_at(browser, screen) as payer:
            await payer.open(url)
            await check_page(payer)
            await payer.shoot(f"{state}-{screen.name}")


@pytest.mark.parametrize("state", ["payable", "card", "boleto", "paid", "sandbox"])
async def test_each_state_can_be_printed(browser: Browser, shop: World, live: World, state: str) -> None:
    """A dark screen does not make the paper dark, and the paper has the whole code, but no buttons. [D-258]"""
    url = await STATES[state](Accounts(shop, live))
    async with payer_at(browser, Screen(width=PHONE, scheme="dark")) as payer:
        await payer.open(url)
        await payer.page.emulate_media(media="print", color_scheme="dark")
        await check_page(payer)
        for ground in ("body", "header", "section"):
            color = "each => getComputedStyle(each).backgroundColor"
            assert await payer.page.locator(ground).first.evaluate(color) == "rgb(255, 255, 255)"
        for field in await payer.page.locator("textarea").all():
            assert await field.evaluate("each => each.scrollHeight <= each.clientHeight")
        for absent in ("footer", "button"):
            assert await payer.page.locator(absent).locator("visible=true").count() == 0
        await payer.shoot(f"{state}-print")


async def test_errors_can_be_read(browser: Browser, shop: World) -> None:
    """[D-258]"""
    url = str(shop._client.base_url.join("/pay/x"))
    for screen in SCREENS:
        async with payer_at(browser, screen) as payer:
            await payer.open(url, status=404)
            payer.messages.clear()  # the browser itself reports the status
            await check_page(payer)
            await payer.shoot(f"not_found-{screen.name}")


async def test_the_smallest_screen_shows_everything(browser: Browser, shop: World, live: World) -> None:
    """A payer may also have enlarged the page to 400 percent. [D-258]"""
    url = await STATES["payable"](Accounts(shop, live))
    async with payer_at(browser, Screen(width=SMALLEST)) as payer:
        await payer.open(url)
        await check_page(payer)
        await payer.shoot("payable-smallest")
