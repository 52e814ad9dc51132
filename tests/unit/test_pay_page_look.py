"""The name, the color and the logo of pay pages are checked before they are stored and shown (D-258)."""

import re

import pytest

from fatura import settings
from fatura.api.pay_page.style import DEFAULT_COLOR, brand_color, contrast_with_white, style
from fatura.domain.pay_page import MAX_LOGO_BYTES, read_color, read_logo
from fatura.settings import SettingsError
from tests.support.pay_pages import in_base64, png

SMALL = png()
LARGEST = png(1024, 1024)


@pytest.mark.parametrize("file", [SMALL, LARGEST, png(padding=MAX_LOGO_BYTES - len(SMALL))])
def test_a_small_png_is_a_logo(file: bytes):
    """[D-258]"""
    assert len(file) <= MAX_LOGO_BYTES
    assert read_logo(in_base64(file)) == file


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        in_base64(b""),
        in_base64(SMALL)[:-1],
        f" {in_base64(SMALL)}",
        in_base64(SMALL).replace("=", ""),
        in_base64(SMALL[:-1]),
        in_base64(SMALL + b"<script>"),
        in_base64(b"GIF89a" + SMALL),
        in_base64(SMALL[:16] + b"\x01" + SMALL[17:]),
        in_base64(b'<svg xmlns="http://www.w3.org/2000/svg"/>'),
        in_base64(SMALL[:33] + SMALL[-12:]),
        in_base64(SMALL[:33] + b"<script>alert(1)</script>" + SMALL[-12:]),
        in_base64(SMALL[:-1] + b"\x00"),
        in_base64(SMALL + SMALL[-12:]),
        in_base64(png(1025, 1)),
        in_base64(png(1, 1025)),
        in_base64(png(0, 1)),
        in_base64(png(padding=MAX_LOGO_BYTES - len(SMALL) + 1)),
        "data:image/png;base64," + in_base64(SMALL),
        "https://merchant.example/logo.png",
        "A" * 1_000_000,
    ],
)
def test_other_files_are_no_logos(text: str):
    """[D-258]"""
    with pytest.raises(ValueError):  # noqa: PT011 - pydantic needs only the type
        read_logo(text)


def test_a_color_has_six_digits():
    """[D-258]"""
    assert read_color("#0B6bcB") == "#0b6bcb"
    for text in ("", "red", "#fff", "#0b6bcbff", "#0b6bcg", "0b6bcb", "#0b6bcb;", "#0b6bcb\n", "#٣٣٣٣٣٣"):
        with pytest.raises(ValueError):  # noqa: PT011 - as above
            read_color(text)


@pytest.mark.parametrize(
    ("color", "contrast"),
    [
        ("#ffffff", 1.0),
        ("#000000", 21.0),
        ("#767676", 4.54),
        ("#777777", 4.48),
        ("#ff0000", 4.0),
        ("#0000ff", 8.59),
    ],
)
def test_the_contrast_is_that_of_wcag(color: str, contrast: float):
    """[D-258]"""
    assert contrast_with_white(color) == pytest.approx(contrast, abs=0.005)
    assert brand_color(color) == (color if contrast >= 4.5 else DEFAULT_COLOR)


def luminance(color: str) -> float:
    return 1.05 / contrast_with_white(color) - 0.05


def palettes() -> list[dict[str, str]]:
    """Return the named colors of the style for light screens, for dark screens, and for paper."""
    blocks = re.findall(r":root{(color-scheme.*?|--page.*?)}", style(None)[0], re.DOTALL)
    found = [dict(re.findall(r"--(\w+):(#[0-9a-f]+)", each)) for each in blocks]
    light, dark, paper = ({name: _six_digits(color) for name, color in each.items()} for each in found)
    return [light, light | dark, light | paper]


def _six_digits(color: str) -> str:
    return color if len(color) == 7 else "#" + "".join(2 * digit for digit in color[1:])


@pytest.mark.parametrize("text", ["text", "soft", "link", "good", "bad"])
@pytest.mark.parametrize("ground", ["page", "card"])
def test_every_text_can_be_read_on_screens_and_on_paper(text: str, ground: str):
    """[D-258]"""
    for palette in palettes():
        darker, lighter = sorted((luminance(palette[text]), luminance(palette[ground])))
        assert (lighter + 0.05) / (darker + 0.05) >= 4.5


def test_without_a_color_the_page_has_the_default():
    """[D-258]"""
    assert brand_color(None) == DEFAULT_COLOR
    assert contrast_with_white(DEFAULT_COLOR) >= 4.5
    assert style(None)[1] != style("#000000")[1]


@pytest.mark.parametrize(
    ("text", "base"),
    [
        ("", None),
        ("https://billing.example.com", "https://billing.example.com"),
        ("https://billing.example.com:8443/fatura/", "https://billing.example.com:8443/fatura"),
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("http://localhost/", "http://localhost"),
        ("http://[::1]:8000", "http://[::1]:8000"),
        ("https://[2001:db8::1]", "https://[2001:db8::1]"),
    ],
)
def test_the_public_url_begins_the_links(text: str, base: str | None):
    """[D-258]"""
    assert settings.read({"FATURA_PUBLIC_URL": text}).public_url == base


@pytest.mark.parametrize(
    "text",
    ["billing.example.com", "http://billing.example.com", "http://10.0.0.1", "http://localhost.example.com",
     "ftp://a.example", "https://", "https://user@a.example", "https://a.example?x", "https://a.example/#x",
     "https://a.example/<b>", "https://a b.example", "javascript:alert(1)", "https://a.example:99999",
     "https://a.example:0", "https://.", "https://-", "https://a..b", "https://example\u017f.com", "https://[:]",
     "https://a.example/../x"],
)  # fmt: skip
def test_other_public_urls_are_refused(text: str):
    """[D-258]"""
    with pytest.raises(SettingsError, match=r"FATURA_PUBLIC_URL is .* https URL"):
        settings.read({"FATURA_PUBLIC_URL": text})
