"""Check the URLs of merchants' endpoints. IP addresses are checked separately, at each call (D-47)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

MAX_CHARS = 2048
MAX_HOST_CHARS = 253
MAX_PORT = 65535
DEFAULT_PORTS = {"http": 80, "https": 443}
HTTPS_PORT = DEFAULT_PORTS["https"]
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f\\]|[^\x00-\x7f]")
_URL = re.compile(r"(https?)://([^/?#]+)([^#]*)", re.IGNORECASE)
_ORIGIN = re.compile(r"https?://[^/?#]*", re.IGNORECASE)
_AUTHORITY = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^\[\]:@]+))(?::([0-9]{1,5}))?", re.IGNORECASE)
_HOST = re.compile(
    r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)+", re.IGNORECASE
)
_ALLOWABLE = re.compile(r"\[[0-9a-f:.]+\]|[a-z0-9._-]{1,253}")
"""Hosts that FATURA_OUTBOUND_ALLOW can name."""
_NUMERIC_LABEL = re.compile(r"[0-9]+|0x[0-9a-f]*", re.IGNORECASE)
_PRIVATE_SUFFIXES = (".local", ".internal", ".localhost", ".arpa")


class RefusedUrlError(ValueError):
    """A URL that must not be called; the message says which rule it breaks."""


@dataclass(frozen=True, slots=True)
class UrlRules:
    """Endpoints that the operator allows an account, besides https on port 443 of public hosts (D-47).

    `ports` are further ports of public hosts. `allowed` are hosts, each with its first and last allowed port. For these
    hosts and ports, http and private addresses are allowed.
    """

    ports: frozenset[int] = frozenset()
    allowed: Sequence[tuple[str, int, int]] = ()


@dataclass(frozen=True, slots=True)
class Target:
    """A parsed URL. A request is built from a Target, so that the request calls exactly the host that was checked.

    `host` is lower case; an IPv6 address has no brackets. `path` includes the query.
    `is_exempt` is true if the operator allows http and private addresses for this port of the host.
    """

    scheme: str
    host: str
    port: int
    path: str
    is_exempt: bool

    @property
    def authority(self) -> str:
        """The value of the `Host` header: the host, and the port unless it is the default."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"


PUBLIC_ONLY = UrlRules()


def refusal(url: str, rules: UrlRules = PUBLIC_ONLY) -> str | None:
    """Return why a URL is refused, or None if Fatura may call it.

    The URL must be https, have a public host name and an allowed port, and must not have a user, a password or a
    fragment. `rules` has the operator's exceptions (D-47, D-215).
    """
    try:
        read(url, rules)
    except RefusedUrlError as refused:
        return str(refused)
    return None


def read(url: str, rules: UrlRules = PUBLIC_ONLY) -> Target:
    """Parse a URL, and check it by the rules of `refusal`.

    Raises RefusedUrlError if a rule is broken, or if another parser might find a different host in the text.
    """
    target = _parse(url)
    if any(target.host == host and first <= target.port <= last for host, first, last in rules.allowed):
        return replace(target, is_exempt=True)
    if target.scheme != "https":
        raise RefusedUrlError(f"must be an https URL{_cure(target)}")
    if len(target.host) > MAX_HOST_CHARS or not _HOST.fullmatch(target.host):
        raise RefusedUrlError(f"must name a public host, not an address or a single label{_cure(target)}")
    if _NUMERIC_LABEL.fullmatch(target.host.rsplit(".", 1)[-1]) or target.host.endswith(_PRIVATE_SUFFIXES):
        raise RefusedUrlError(f"must name a public host{_cure(target)}")
    if target.port != HTTPS_PORT and target.port not in rules.ports:
        cure = f"to allow this port, the operator adds {target.port} to FATURA_OUTBOUND_PORTS and restarts Fatura"
        raise RefusedUrlError(f"must use port 443; {cure}")
    return target


def without_path(url: str) -> str:
    """Return a URL with its path and query replaced by `/...`, because they may contain a token (D-64, D-222)."""
    origin = _ORIGIN.match(url)
    return f"{origin[0]}/..." if origin else "..."


def _cure(target: Target) -> str:
    """Return the end of an error text, which names the settings that can allow this host and port.

    Return an empty text if no setting can allow them.
    """
    host = f"[{target.host}]" if ":" in target.host else target.host
    if not _ALLOWABLE.fullmatch(host):
        return ""
    return (
        f"; to allow this one, the operator adds {host}:{target.port} to FATURA_OUTBOUND_ALLOW, or for live accounts "
        "to FATURA_OUTBOUND_ALLOW_LIVE, and restarts Fatura"
    )


def _parse(url: str) -> Target:
    if len(url) > MAX_CHARS:
        raise RefusedUrlError(f"must be at most {MAX_CHARS} characters")
    if _FORBIDDEN.search(url):
        raise RefusedUrlError("must be plain ASCII without spaces, control characters or backslashes")
    if "#" in url:
        raise RefusedUrlError("must not carry a fragment")
    parts = _URL.fullmatch(url)
    if parts is None:
        raise RefusedUrlError("must be an absolute https URL")
    if "@" in parts[2]:
        raise RefusedUrlError("must not carry a user or a password")
    authority = _AUTHORITY.fullmatch(parts[2])
    if authority is None:
        raise RefusedUrlError("is not a URL: its host or port cannot be read")
    scheme = parts[1].lower()
    port = int(authority[3] or DEFAULT_PORTS[scheme])
    if not 0 < port <= MAX_PORT:
        raise RefusedUrlError(f"must have a port from 1 to {MAX_PORT}")
    path = parts[3] if parts[3].startswith("/") else f"/{parts[3]}"
    return Target(scheme, (authority[1] or authority[2]).lower(), port, path, is_exempt=False)
