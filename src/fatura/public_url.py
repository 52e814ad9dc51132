"""Checks the URL with which links to pay pages begin (D-258)."""

import re
from ipaddress import AddressValueError, IPv6Address

_MAX_PORT = 65535
_LABEL = "[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?"
_URL = re.compile(
    rf"(?:https://(?:\[(?P<ipv6>[0-9a-f:.]+)\]|{_LABEL}(?:\.{_LABEL})*)|http://(?:127\.0\.0\.1|\[::1\]|localhost))"
    r"(?::(?P<port>[0-9]{1,5}))?(?P<path>/[a-z0-9._~/-]*)?",
    re.IGNORECASE | re.ASCII,
)


def is_valid(text: str) -> bool:
    """Return whether a text is a URL with which links can begin: an https URL, or an http URL of this machine."""
    found = _URL.fullmatch(text)
    if found is None:
        return False
    try:
        IPv6Address(found["ipv6"] or "::1")
    except AddressValueError:
        return False
    has_dots = {".", ".."} & set((found["path"] or "").split("/"))
    return 0 < int(found["port"] or 443) <= _MAX_PORT and not has_dots
