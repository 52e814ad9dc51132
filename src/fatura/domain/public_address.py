"""Which IP addresses may be called: public addresses outside the blocks that this module denies (D-47)."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

_DENIED_IPV4 = tuple(
    IPv4Network(block)
    for block in (
        "0.0.0.0/8",  # "this host", which reaches the machine itself
        "10.0.0.0/8",  # private networks
        "100.64.0.0/10",  # carriers' NAT; 100.100.100.200 is the metadata service of Alibaba Cloud
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # services of the Azure platform
        "169.254.0.0/16",  # link-local; 169.254.169.254 is the metadata service of most clouds
        "172.16.0.0/12",  # private networks
        "192.0.0.0/24",  # assigned to protocols
        "192.0.2.0/24",  # examples in documentation
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # private networks
        "198.18.0.0/15",  # benchmarks of networks
        "198.51.100.0/24",  # examples in documentation
        "203.0.113.0/24",  # examples in documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and the broadcast address
    )
)
_GLOBAL_UNICAST = IPv6Network("2000::/3")
"""The only IPv6 block with addresses that may be called.

Outside this block are loopback, link-local, unique local and multicast addresses, and the mapped, compatible and NAT64
forms of IPv4 addresses. Teredo and 6to4 addresses also contain an IPv4 address. They are denied below, so the check
never has to extract an IPv4 address.
"""
_DENIED_IPV6 = tuple(
    IPv6Network(block)
    for block in (
        "2001::/23",  # assigned to protocols such as Teredo
        "2001:db8::/32",  # examples in documentation
        "2002::/16",  # 6to4
        "3fff::/20",  # examples in documentation
    )
)


def is_public(address: str) -> bool:
    """Return whether an address may be called; False for text that is not an IP address.

    `ipaddress.is_global` is not used: it accepts NAT64, 6to4 and IPv4-compatible forms of private addresses.
    """
    try:
        judged = ip_address(address)
    except ValueError:
        return False
    if isinstance(judged, IPv4Address):
        return not any(judged in block for block in _DENIED_IPV4)
    return _is_public_ipv6(judged)


def _is_public_ipv6(judged: IPv6Address) -> bool:
    return (
        judged.scope_id is None
        and judged in _GLOBAL_UNICAST
        and not any(judged in block for block in _DENIED_IPV6)
    )
