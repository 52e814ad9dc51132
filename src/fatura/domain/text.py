"""Which characters a text from outside may contain (D-218).

Control characters can forge lines in logs and act on terminals. Invisible characters, and characters that change the
direction of text, can make one name look like another.
"""

import re

_REFUSED = (
    r"\x00-\x1f\x7f-\x9f"  # control characters
    r"\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e"  # invisible: soft hyphen, joiner, Arabic mark, fillers, vowels
    r"\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"  # zero width, direction marks, line separators
    r"\u3164\ufeff\uffa0\ufff9-\ufffb"  # fillers, byte order mark, annotations
)
_REFUSED_RARE = "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e007f"
"""Characters that format shorthand and music, and tag characters, which can hide a whole text."""
_JOINERS = r"\u200c\u200d"
"""Joiners are allowed only between two non-ASCII characters, because Persian, Hindi and many emoji need them there."""
_UNSAFE = re.compile(
    rf"[{_REFUSED}{_REFUSED_RARE}]|(?<![^\x00-\x7f])[{_JOINERS}]|[{_JOINERS}](?![^\x00-\x7f])"
)
_BREAKS = frozenset("\t\n\v\f\r")

_SAFE = f"[^{_REFUSED}{_JOINERS}]"
SAFE_PATTERN = f"^{_SAFE}*$"
NOT_BLANK_PATTERN = rf"^{_SAFE}*[^\s{_REFUSED}{_JOINERS}]{_SAFE}*$"
"""This and SAFE_PATTERN are for JSON Schema. They allow no joiners, as a character class cannot check neighbours."""


def unsafe_character(text: str) -> str | None:
    """Return the first character that the text must not contain, or None."""
    found = _UNSAFE.search(text)
    return None if found is None else found[0]


def with_safe_characters(text: str) -> str:
    """Replace tabs and ASCII line breaks with spaces, and all other unsafe characters with U+FFFD."""
    return _UNSAFE.sub(lambda found: " " if found[0] in _BREAKS else "\ufffd", text)
