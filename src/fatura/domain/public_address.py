"""Which IP addresses may be called: public addresses outside the blocks that this module denies (D-47, D-215).

The denied blocks are those of IANA's registries of special-purpose addresses, and Azure's address. IPv6 blocks outside
_GLOBAL_UNICAST are not listed, because all their addresses are denied. The registries are
https://www.iana.org/assignments/iana-ipv4-special-registry and iana-ipv6-special-registry.
"""

from collections.abc import Collection
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
        "192.31.196.0/24",  # AS112: reverse DNS of private addresses
        "192.52.193.0/24",  # AMT: multicast relays
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # private networks
        "192.175.48.0/24",  # AS112
        "198.18.0.0/15",  # network benchmarks
        "198.51.100.0/24",  # examples in documentation
        "203.0.113.0/24",  # examples in documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and the broadcast address
    )
)
_GLOBAL_UNICAST = IPv6Network("2000::/3")
"""The only IPv6 block with addresses that may be called.

Outside this block are loopback, link-local, unique local and multicast addresses, and the mapped, compatible and NAT64
forms of IPv4 addresses. Teredo, 6to4 and ISATAP addresses also contain an IPv4 address. They are denied below, so
`_is_public` never has to extract an IPv4 address.
"""
_DENIED_IPV6 = tuple(
    IPv6Network(block)
    for block in (
        "2001::/23",  # assigned to protocols such as Teredo, AMT and ORCHID
        "2001:db8::/32",  # examples in documentation
        "2002::/16",  # 6to4
        "2620:4f:8000::/48",  # AS112
        "3fff::/20",  # examples in documentation
    )
)
_ISATAP = frozenset({0x00005EFE, 0x02005EFE})
"""Values of bits 64 to 95 that identify an ISATAP address, in any network. Such an address contains an IPv4 address."""


def may_call(
    address: str, *, is_exempt: bool = False, denied: Collection[IPv4Network | IPv6Network] = ()
) -> bool:
    """Return whether an address may be called; False for text that is not an IP address.

    `denied` are the networks that the operator forbids. If `is_exempt` is true, every address outside these networks
    may be called.
    """
    try:
        judged = ip_address(address)
    except ValueError:
        return False
    forms = {judged, getattr(judged, "ipv4_mapped", None) or judged}
    if any(form in network for form in forms for network in denied):
        return False
    return is_exempt or _is_public(judged)


def _is_public(judged: IPv4Address | IPv6Address) -> bool:
    """Return whether an address is public.

    `ipaddress.is_global` is not used, because it accepts NAT64, 6to4 and IPv4-compatible forms of private addresses.
    """
    if isinstance(judged, IPv4Address):
        return not any(judged in block for block in _DENIED_IPV4)
    return (
        judged.scope_id is None
        and judged in _GLOBAL_UNICAST
        and not any(judged in block for block in _DENIED_IPV6)
        and int(judged) >> 32 & 0xFFFFFFFF not in _ISATAP
    )
