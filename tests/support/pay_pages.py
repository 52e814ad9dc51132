"""Open pay pages as a payer's browser does, and check their HTML."""

import base64
import re
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from html.parser import HTMLParser
from uuid import UUID

import httpx

from fatura.domain.pay_links import PayLink
from tests.support.world import Json, Merchant

EMPTY = {"meta", "img", "path"}
ALLOWED = {
    *(
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "header",
        "main",
        "footer",
        "section",
        "div",
        "p",
        "small",
    ),
    *("h1", "h2", "table", "caption", "thead", "tbody", "tfoot", "tr", "th", "td", "label", "textarea", "a"),
    *("form", "button", "img", "svg", "path"),
}
"""The elements that a pay page may have."""


class Parsed(HTMLParser):
    """A page. `start` lists its elements in order, each with its attributes; `texts` are its texts, without styles."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.start: list[tuple[str, Mapping[str, str | None]]] = []
        self.texts: list[str] = []
        self.by_tag: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == [], "each element has its end tag"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.start.append((tag, dict(attrs)))
        if tag not in EMPTY:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.start.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and data.strip():
            self.by_tag.setdefault(self._open[-1], []).append(data)
            if self._open[-1] != "style":
                self.texts.append(data)

    def all(self, tag: str) -> list[Mapping[str, str | None]]:
        return [attributes for name, attributes in self.start if name == tag]

    @property
    def text(self) -> str:
        return " ".join(self.texts)


@dataclass(frozen=True, slots=True)
class Shown:
    """The answer to a request for a pay page."""

    status: int
    headers: httpx.Headers
    html: str

    @property
    def parsed(self) -> Parsed:
        return checked(self.html)

    @property
    def heading(self) -> str:
        [heading] = self.parsed.by_tag["h1"]
        return heading


def checked(html: str) -> Parsed:
    """Check the rules for every pay page, among them those for screen readers. Return the parsed page."""
    page = Parsed(html)
    tags = [tag for tag, _ in page.start]
    assert html.startswith("<!doctype html>\n")
    assert set(tags) <= ALLOWED
    assert [tags.count(each) for each in ("html", "h1", "main", "title", "style")] == [1] * 5
    assert page.all("html")[0]["lang"] in {"pt-BR", "en"}
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in page.all("meta")
    levels = [int(tag[1]) for tag in tags if re.fullmatch("h[1-6]", tag)]
    assert all(level <= before + 1 for before, level in zip([0, *levels], levels, strict=False))
    ids = [attributes["id"] for _, attributes in page.start if "id" in attributes]
    assert len(set(ids)) == len(ids)
    labels = {each["for"] for each in page.all("label")}
    assert labels == {each["id"] for each in page.all("textarea")}
    assert {each["aria-describedby"] for each in page.all("textarea")} <= set(ids)
    assert all("alt" in each for each in page.all("img"))
    names = {name for _, attributes in page.start for name in attributes}
    assert not [name for name in names if name.startswith("on") or name == "style"]
    return page


def token_of(merchant: Merchant, invoice: Json, *, version: int = 0) -> str:
    link = PayLink(merchant.account_id, UUID(invoice["id"]), version)
    return merchant.deps.tagger.pay_links.token(link)


async def open_page(merchant: Merchant, token: str, query: str = "?lang=en", **headers: str) -> Shown:
    answer = await merchant._client.get(f"/pay/{token}{query}", headers=headers)
    return Shown(answer.status_code, answer.headers, answer.text)


async def page_of(merchant: Merchant, invoice: Json, query: str = "?lang=en", *, version: int = 0) -> Shown:
    """Open the page of an invoice, in English."""
    return await open_page(merchant, token_of(merchant, invoice, version=version), query)


async def press_button(merchant: Merchant, invoice: Json) -> httpx.Response:
    """Press the button with which a sandbox account's page simulates a payment."""
    return await merchant._client.post(f"/pay/{token_of(merchant, invoice)}/sandbox-payment")


def png(width: int = 2, height: int = 2, *, padding: int = 0) -> bytes:
    """Return a black PNG file, with a text of `padding` bytes in it."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    lines = zlib.compress(bytes((width + 1) * height))
    parts = (
        chunk(b"IHDR", header),
        chunk(b"IDAT", lines),
        chunk(b"tEXt", b"x" * padding),
        chunk(b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def in_base64(file: bytes) -> str:
    return base64.b64encode(file).decode()
