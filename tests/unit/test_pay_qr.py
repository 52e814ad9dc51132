"""The QR codes of pay pages: what they contain, and when they are drawn (D-258)."""

import asyncio
from collections import OrderedDict
from typing import Any

import pytest
import segno

from fatura.api.pay_page import qr
from fatura.api.pay_page.qr import KEPT, MAX_BYTES, qr_svg
from fatura.views.samples import story

ID = story.ACCOUNT.account_id


class Drawing:
    """Replaces segno. Records the texts of the codes, and draws no real code."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def make_qr(self, text: str, **_: Any) -> "Drawing":
        self.texts.append(text)
        return self

    def svg_inline(self, **_: Any) -> str:
        return f"<svg>{self.texts[-1]}</svg>"


@pytest.fixture
def drawing(monkeypatch: pytest.MonkeyPatch) -> Drawing:
    found = Drawing()
    monkeypatch.setattr(segno, "make_qr", found.make_qr)
    monkeypatch.setattr(qr, "_drawn", OrderedDict[str, Any]())
    return found


async def test_many_first_views_draw_one_code(drawing: Drawing) -> None:
    """[D-258]"""
    await asyncio.gather(*(qr_svg("000201", account_id=ID) for _ in range(60)))
    assert drawing.texts == ["000201"]


async def test_the_newest_codes_are_kept(drawing: Drawing) -> None:
    """[D-258]"""
    for _ in range(2):
        for number in range(KEPT):
            assert await qr_svg(str(number), account_id=ID) == f"<svg>{number}</svg>"
    assert len(drawing.texts) == KEPT
    await qr_svg("another", account_id=ID)
    await qr_svg("1", account_id=ID)
    assert len(drawing.texts) == KEPT + 1
    await qr_svg("0", account_id=ID)
    assert len(drawing.texts) == KEPT + 2


async def test_a_text_that_is_no_pix_code_is_not_drawn(drawing: Drawing) -> None:
    """[D-258]"""
    assert await qr_svg("x" * MAX_BYTES, account_id=ID) is not None
    assert await qr_svg("x" * (MAX_BYTES + 1), account_id=ID) is None
    assert await qr_svg("ç" * MAX_BYTES, account_id=ID) is None
    assert len(drawing.texts) == 1


async def test_a_code_has_the_bytes_of_the_pix_code() -> None:
    """Pix counts the bytes of UTF-8. segno would write ISO 8859-1 without saying so. [D-258]"""
    text = "00020126410014br.gov.bcb.pix0119pix@academia.exampl5910AÇAÍ DO ZÉ"
    expected = segno.make_qr(text, error="m", encoding="utf-8", eci=False)
    drawn = expected.svg_inline(
        border=4, dark="#000", light="#fff", omitsize=True, svgclass=None, lineclass=None
    )
    assert await qr_svg(text, account_id=ID) == drawn
