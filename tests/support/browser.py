"""Read pay pages with a real browser, and check what a payer sees there."""

import io
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import zxingcpp
from axe_playwright_python.async_playwright import Axe  # pyright: ignore[reportMissingTypeStubs] - has no types
from PIL import Image
from playwright.async_api import Browser, Page, Response

PHONE, SMALLEST, WIDE = 390, 320, 1280
"""Widths in CSS pixels: of a common phone, the least that WCAG 2.2 asks for (1.4.10), and of a desktop's screen."""
LEAST_TARGET = 24
"""Least width and height of what a payer taps, in CSS pixels (WCAG 2.2, 2.5.8)."""
AXE_OPTIONS = {"resultTypes": ["violations"], "rules": {"target-size": {"enabled": True}}}
"""All rules of axe, with those that it leaves out by default but WCAG 2.2 AA needs."""
SHOTS = Path(__file__).parents[2] / ".build" / "browser"
"""The folder to which the tests write pictures of the pages, for people to look at."""
_TOO_SMALL = """
least => [...document.querySelectorAll('a, button, textarea')]
    .filter(each => each.getClientRects().length)
    .filter(each => { const box = each.getBoundingClientRect(); return box.width < least || box.height < least })
    .map(each => each.outerHTML)
"""
_HIDDEN_TEXT = """
() => [...document.querySelectorAll('h1, h2, p, th, td, textarea, button, caption')]
    .filter(each => each.scrollWidth > each.clientWidth + 1 && getComputedStyle(each).display !== 'inline')
    .map(each => each.outerHTML)
"""
_WIDTHS = "() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """How a payer looks at the page."""

    width: int = PHONE
    scheme: Literal["dark", "light"] = "light"
    language: str = "pt-BR"
    scripts: bool = True

    @property
    def name(self) -> str:
        return f"{self.width}-{self.scheme}-{self.language}"


SCREENS = (
    Screen(width=PHONE, scheme="light", language="pt-BR"),
    Screen(width=PHONE, scheme="dark", language="en"),
    Screen(width=WIDE, scheme="light", language="en"),
    Screen(width=WIDE, scheme="dark", language="pt-BR"),
)
"""Each two of a width, a scheme and a language occur together on one screen."""


@dataclass(frozen=True, slots=True)
class Payer:
    """A tab of the browser, with the URLs that its page requested, and the messages on its console."""

    page: Page
    requested: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)

    async def open(self, url: str, *, status: int = 200) -> None:
        answer = await self.page.goto(url)
        assert isinstance(answer, Response)
        assert answer.status == status

    async def shoot(self, name: str) -> None:
        """Write a picture of the whole page to SHOTS."""
        SHOTS.mkdir(parents=True, exist_ok=True)
        await self.page.screenshot(path=SHOTS / f"{name}.png", full_page=True)


@asynccontextmanager
async def payer_at(browser: Browser, screen: Screen) -> AsyncGenerator[Payer]:
    """Open a tab, and close it after the block."""
    context = await browser.new_context(
        viewport={"width": screen.width, "height": 844},
        device_scale_factor=1 if screen.width == WIDE else 3,
        color_scheme=screen.scheme,
        locale=screen.language,
        java_script_enabled=screen.scripts,
    )
    try:
        payer = Payer(await context.new_page())
        payer.page.on("console", lambda message: payer.messages.append(message.text))
        payer.page.on("pageerror", lambda error: payer.messages.append(str(error)))
        payer.page.on("request", lambda request: payer.requested.append(request.url))
        yield payer
    finally:
        await context.close()


async def check_page(payer: Payer) -> None:
    """Check what must hold for each page: it is accessible, fits on the screen, and loads nothing."""
    page = payer.page
    found = await Axe().run(page, options=AXE_OPTIONS)
    assert found.violations_count == 0, found.generate_report()
    scrolled, visible = await page.evaluate(_WIDTHS)
    assert scrolled <= visible, "the page scrolls sideways"
    assert await page.evaluate(_HIDDEN_TEXT) == []
    assert await page.evaluate(_TOO_SMALL, LEAST_TARGET) == []
    assert await page.locator("script").count() == 0
    assert payer.messages == []
    # a logo is part of the page, although the browser reports a request for its `data:` URL
    assert [each for each in payer.requested if not each.startswith("data:")] == [page.url]


async def scan(payer: Payer) -> str:
    """Return the text of the QR code that the page shows. The code must be dark on light, as some readers need."""
    code = payer.page.locator(".qr")
    await code.scroll_into_view_if_needed()
    return decode(await code.screenshot())


def decode(picture: bytes) -> str:
    with Image.open(io.BytesIO(picture)) as image:
        found = zxingcpp.read_barcodes(image.convert("L"), try_invert=False)
    [code] = found
    return code.text
