"""How a merchant's pay pages look: the name, the color and the logo (D-258)."""

import base64
import binascii
import re
from dataclasses import dataclass

MAX_NAME_CHARS = 120
MAX_LOGO_BYTES = 32 * 1024
MAX_LOGO_CHARS = -(-MAX_LOGO_BYTES // 3) * 4
"""Length of the largest logo in base64."""
MAX_LOGO_PIXELS = 1024
"""Maximum width and maximum height of a logo."""
COLOR_PATTERN = "^#[0-9a-fA-F]{6}$"
_COLOR = re.compile("#[0-9a-fA-F]{6}")
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_HEADER = b"\x00\x00\x00\rIHDR"
"""The start of the first chunk of a PNG file: its length, 13 bytes, and its type."""
_EXTRA_BYTES = 12
"""Each chunk has its length, type and checksum besides its data."""


@dataclass(frozen=True, slots=True)
class PayPageLook:
    """How an account's pay pages look. `color` is a text such as `#0b6bcb`; `logo` is a PNG file."""

    name: str
    color: str | None = None
    logo: bytes | None = None


def read_color(text: str) -> str:
    """Return a color in lower case. Raises ValueError unless it has the form `#rrggbb`."""
    if not _COLOR.fullmatch(text):
        raise ValueError(text)
    return text.lower()


def read_logo(text: str) -> bytes:
    """Return the PNG file that a text has in base64.

    Raises ValueError for any other text, and for a file with too many bytes or pixels.
    """
    if len(text) > MAX_LOGO_CHARS:
        raise ValueError("too long")
    png = base64.b64decode(text, validate=True)
    if not png.startswith(_SIGNATURE + _HEADER):
        raise ValueError("no PNG")
    chunks = _chunks(png)
    size_at = len(_SIGNATURE) + len(_HEADER)
    width, height = int.from_bytes(png[size_at : size_at + 4]), int.from_bytes(png[size_at + 4 : size_at + 8])
    is_small = len(png) <= MAX_LOGO_BYTES and all(0 < side <= MAX_LOGO_PIXELS for side in (width, height))
    if not (is_small and b"IDAT" in chunks and chunks.index(b"IEND") == len(chunks) - 1):
        raise ValueError("no small PNG")
    return png


def _chunks(png: bytes) -> list[bytes]:
    """Return the types of a PNG file's chunks. Raises ValueError if a chunk is incomplete or has a wrong checksum."""
    types: list[bytes] = []
    at = len(_SIGNATURE)
    while at < len(png):
        end = at + _EXTRA_BYTES + int.from_bytes(png[at : at + 4])
        if end > len(png) or binascii.crc32(png[at + 4 : end - 4]).to_bytes(4) != png[end - 4 : end]:
            raise ValueError("broken chunk")
        types.append(png[at + 4 : at + 8])
        at = end
    return types
