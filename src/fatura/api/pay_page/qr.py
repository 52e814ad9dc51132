"""Draws QR codes of Pix codes as SVG."""

import asyncio
from functools import lru_cache

import segno

from fatura.api.pay_page.html import Html

_KEPT = 256
"""Number of drawn codes that a process keeps."""
_QUIET_MODULES = 4
"""Width of the white border, as the standard of QR codes requires."""


async def qr_svg(text: str) -> Html:
    """Return a QR code as an `svg` element. It is drawn in a thread, because drawing takes milliseconds."""
    return await asyncio.to_thread(_draw, text)


@lru_cache(maxsize=_KEPT)
def _draw(text: str) -> Html:
    code = segno.make_qr(text, error="m")
    return Html(
        code.svg_inline(
            border=_QUIET_MODULES, dark="#000", light="#fff", omitsize=True, svgclass=None, lineclass=None
        )
    )
