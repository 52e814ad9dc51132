"""Which characters a text may contain."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fatura.domain.text import unsafe_character, with_safe_characters

SAFE = (
    "Academia São João, 50% & <b>[bold]</b> \N{EURO SIGN}",
    "\N{CJK UNIFIED IDEOGRAPH-5DDD}\N{IDEOGRAPHIC SPACE}\N{HIRAGANA LETTER A}",
    "\N{HEBREW LETTER ALEF}\N{HEBREW LETTER BET} \N{ARABIC LETTER ALEF}",  # these letters need no direction mark
    "\N{ARABIC LETTER MEEM}\N{ARABIC LETTER FARSI YEH}\u200c\N{ARABIC LETTER KHAH}",  # Persian
    "\N{DEVANAGARI LETTER KA}\N{DEVANAGARI SIGN VIRAMA}\u200d\N{DEVANAGARI LETTER SSA}",
    "\N{MAN}\u200d\N{WOMAN}\u200d\N{GIRL} \N{HEAVY BLACK HEART}\N{VARIATION SELECTOR-16}",
    "",
)
UNSAFE = (
    *("a\0", "a\tb", "a\nb", "a\rb", "\x1b[31mred", "\x7f", "\x85", "\x9b31m"),
    *("a\u202eb", "\u202a", "\u2066", "\u2069", "\u200e", "\u200f", "\u061c", "a\u2028b", "a\u2029b"),
    *("\u200b", "\u00ad", "\u2060", "\ufeff", "\u180e", "\u3164", "\uffa0", "\u115f", "\ufff9", "\u034f"),
    *(
        "a\u200db",
        "a\u200c",
        "\u200d",
        "\u200d\N{MAN}",
        "\N{MAN}\u200d",
        "\U000e0041",
        "\U000e0001",
        "\U0001d173",
    ),
)


@pytest.mark.parametrize("text", SAFE)
def test_text_of_all_scripts_is_safe(text: str) -> None:
    """[D-218]"""
    assert unsafe_character(text) is None
    assert with_safe_characters(text) == text


@pytest.mark.parametrize("text", UNSAFE)
def test_control_and_invisible_characters_are_unsafe(text: str) -> None:
    """[D-218]"""
    assert unsafe_character(text) is not None


@given(st.text() | st.text("a\n\u2028\u202e\u200d\N{MAN}"))
def test_replacing_makes_every_text_safe(text: str) -> None:
    """[D-218, D-30]"""
    safe = with_safe_characters(text)
    assert unsafe_character(safe) is None
    assert len(safe) == len(text)


def test_breaks_become_spaces_and_others_visible() -> None:
    """[D-218]"""
    assert with_safe_characters("2 aulas\r\n\tsetembro \u202ey") == "2 aulas   setembro \ufffdy"


def test_every_control_and_format_character_is_unsafe_or_visible() -> None:
    """Of these characters, only two joiners and the visible signs of some scripts are safe. [D-218]"""
    joiners = {"\u200c", "\u200d"}
    found = {
        char
        for char in map(chr, range(0x110000))
        if unicodedata.category(char) in {"Cc", "Cf", "Zl", "Zp"} and unsafe_character(char) is None
    }
    names = {unicodedata.name(char) for char in found - joiners}
    assert all(
        "ARABIC" in name or "KAITHI" in name or "EGYPTIAN" in name or "SYRIAC" in name for name in names
    )
