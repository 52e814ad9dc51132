"""Draws QR codes of Pix codes as SVG."""

import asyncio
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from uuid import UUID

import segno

from fatura.api.pay_page.html import Html
from fatura.shared_call import SharedLookups

MAX_BYTES = 512
"""A Pix code may have this many bytes. Longer texts are not drawn: their codes take long to draw and hardly scan."""
KEPT = 1024
"""Number of drawn codes that a process keeps."""
_QUIET_MODULES = 4
"""Width of the white border, as the standard of QR codes requires."""

_drawn = OrderedDict[str, Html]()
_turns = SharedLookups()
_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="qr")
"""A thread of its own, because drawing takes milliseconds, and other work waits for the usual threads."""


async def qr_svg(text: str, *, account_id: UUID) -> Html | None:
    """Return a QR code as an `svg` element, or None for a text that is too long.

    Only one code of an account is drawn at a time, so the pages of one account hardly delay those of other accounts.
    """
    if len(text.encode()) > MAX_BYTES:
        return None
    if found := _drawn.get(text):
        _drawn.move_to_end(text)
        return found
    return await _turns.get(partial(_draw_once, text), group=account_id, key=text)


async def _draw_once(text: str) -> Html:
    if text not in _drawn:
        _drawn[text] = await asyncio.get_running_loop().run_in_executor(_thread, _draw, text)
        if len(_drawn) > KEPT:
            _drawn.popitem(last=False)
    return _drawn[text]


def _draw(text: str) -> Html:
    # The lengths and the checksum in a Pix code refer to its UTF-8 bytes. Pix readers expect no mark of the encoding.
    code = segno.make_qr(text, error="m", encoding="utf-8", eci=False)
    return Html(
        code.svg_inline(
            border=_QUIET_MODULES, dark="#000", light="#fff", omitsize=True, svgclass=None, lineclass=None
        )
    )
