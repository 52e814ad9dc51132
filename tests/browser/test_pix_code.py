"""A payer can scan and copy the Pix code of a pay page (D-258)."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from playwright.async_api import Browser

from fatura.api.pay_page.qr import MAX_BYTES
from tests.browser.states import live_invoice, url_of
from tests.support.browser import PHONE, SMALLEST, WIDE, Screen, payer_at, scan
from tests.support.world import World

pytestmark = pytest.mark.browser

MEDIA: Sequence[Mapping[str, Any]] = (
    {"color_scheme": "light"},
    {"color_scheme": "dark"},
    {"color_scheme": "dark", "forced_colors": "active"},
    {"media": "print"},
)


@pytest.mark.parametrize("width", [SMALLEST, PHONE, WIDE])
async def test_the_qr_code_is_the_pix_code(browser: Browser, live: World, width: int) -> None:
    """A program that shares no code with Fatura reads the QR code from the screen and from the paper. [D-258]"""
    invoice = await live_invoice(live)
    code = invoice["payment"]["pixCode"]
    for media in MEDIA:
        async with payer_at(browser, Screen(width=width)) as payer:
            await payer.page.emulate_media(**media)
            await payer.open(invoice["payUrl"])
            assert await payer.page.locator("#pix-code").input_value() == code
            assert await scan(payer) == code


async def test_the_longest_drawn_code_can_be_scanned(browser: Browser, live: World) -> None:
    """[D-258]"""
    url = await url_of(live, await live_invoice(live))
    code = "00020101021226" + "aB3" * 166
    assert len(code) == MAX_BYTES
    await live.sql("UPDATE charge SET pix_code = $1", code)
    async with payer_at(browser, Screen(width=SMALLEST)) as payer:
        await payer.open(url)
        assert await scan(payer) == code


async def test_the_code_is_copied_without_scripts(browser: Browser, live: World) -> None:
    """[D-258]"""
    invoice = await live_invoice(live)
    async with payer_at(browser, Screen(scripts=False)) as payer:
        await payer.open(invoice["payUrl"])
        await payer.page.locator("#pix-code").click()
        await payer.page.keyboard.press("ControlOrMeta+A")
        await payer.page.keyboard.press("ControlOrMeta+C")
        bank = await payer.page.context.new_page()
        await bank.set_content("<textarea></textarea>")
        await bank.locator("textarea").click()
        await bank.keyboard.press("ControlOrMeta+V")
        assert await bank.locator("textarea").input_value() == invoice["payment"]["pixCode"]
