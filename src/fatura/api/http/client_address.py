"""Find the address of a client. The engine limits how many refused gateway webhooks one address may send (D-191)."""

from functools import lru_cache
from ipaddress import IPv6Address, ip_address, ip_network

from starlette.types import Scope

from fatura.api.http.trace import values

_MAX_CHARS = 64
"""Maximum length of an address in X-Forwarded-For. A longer entry is no address."""
_CLIENT_BITS = 64
"""Prefix length of the IPv6 network that counts as one client, because one client often has the whole network."""
_SITE_BITS = 48
"""Prefix length of the IPv6 network that one customer of a provider may have."""


def client_network(address: str) -> str:
    """Return the network of the client's site. `address` is the result of `client_address`.

    An IPv6 network is widened to _SITE_BITS. Any other address is returned unchanged.
    """
    if "/" not in address:
        return address
    return str(ip_network(address).supernet(new_prefix=_SITE_BITS))


def client_address(scope: Scope, *, trusted_proxies: int) -> str:
    """Return the client's IPv4 address, or the network of its IPv6 address.

    Each trusted proxy appends one entry to X-Forwarded-For: the address from which the proxy got the request. A client
    can forge all entries before those of the trusted proxies, so the function ignores these earlier entries. If the
    trusted proxies sent no valid address, the function uses the address that connected to this server.
    """
    peer = scope["client"][0] if scope.get("client") else ""
    if trusted_proxies:
        sent = b",".join(values(scope["headers"], b"x-forwarded-for")).decode("latin-1")
        entries = [each.strip() for each in sent.rsplit(",", trusted_proxies)[-trusted_proxies:]]
        is_usable = len(entries) == trusted_proxies and len(entries[0]) <= _MAX_CHARS
        return (_network(entries[0]) if is_usable else None) or _network(peer) or peer
    return _network(peer) or peer


@lru_cache(maxsize=1024)
def _network(text: str) -> str | None:
    """Return the IPv4 address or IPv6 network of `text`, which may have a port; None if `text` is no address."""
    host = text
    if text.startswith("["):
        host = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        host = text.partition(":")[0]
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return None
    if not isinstance(address, IPv6Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ip_network((address, _CLIENT_BITS), strict=False))
