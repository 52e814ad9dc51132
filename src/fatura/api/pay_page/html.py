"""Builds HTML. Each text is escaped, unless it is HTML that this module has built (`Html`)."""

from collections.abc import Iterable
from html import escape
from typing import Literal

_EMPTY = frozenset({"img", "meta"})
"""Elements that have no content and no end tag."""


class Html(str):
    """HTML that is already escaped. Make one only with `element` or `joined`, or from text that no one can change."""

    __slots__ = ()


Content = str | Iterable["Content"] | None
"""What an element contains: a text, HTML, several of these, or nothing."""


def joined(content: Content) -> Html:
    """Return content as HTML. Texts are escaped, and None is left out."""
    if content is None:
        return Html()
    if isinstance(content, Html):
        return content
    if isinstance(content, str):
        return Html(escape(content))
    return Html("".join(map(joined, content)))


def element(tag: str, *content: Content, **attributes: str | Literal[True] | None) -> Html:
    """Return an element.

    An underscore at the end of an attribute's name is dropped, and other underscores become hyphens. The value True
    gives an attribute without a value; None leaves the attribute out.
    """
    start = "".join(_attribute(name, value) for name, value in attributes.items() if value is not None)
    inside = "" if tag in _EMPTY else f"{joined(content)}</{tag}>"
    return Html(f"<{tag}{start}>{inside}")


def _attribute(name: str, value: str | Literal[True] | None) -> str:
    shown = name.rstrip("_").replace("_", "-")
    return f' {shown}="{escape(value)}"' if isinstance(value, str) else f" {shown}"
