"""Which IP addresses the engine may call: all except the denied blocks."""

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fatura.domain.public_address import may_call
from tests.support.hostile_urls import PRIVATE_ADDRESSES, PUBLIC_ADDRESSES

TAKEN_FOR_GLOBAL = (
    *("64:ff9b::a9fe:a9fe", "2002:7f00:1::", "::127.0.0.1", "fec0::1", "224.0.0.1", "168.63.129.16"),
    *("64:ff9b:1::7f00:1", "2001:0:7f00:1::"),
)


@pytest.mark.parametrize("address", PRIVATE_ADDRESSES + TAKEN_FOR_GLOBAL)
def test_denied_addresses_are_refused(address):
    """[D-47 outbound]"""
    assert not may_call(address)


@pytest.mark.parametrize("address", PUBLIC_ADDRESSES)
def test_public_addresses_are_allowed(address):
    """[D-47 outbound]"""
    assert may_call(address)


@pytest.mark.parametrize(
    "text", ["", "localhost", "127.1", "0x7f.0.0.1", "8.8.8.8 ", "8.8.8.8:53", "08.8.8.8", "[2003::1]"]
)
def test_text_that_is_no_address_is_refused(text):
    """[D-47 outbound]"""
    assert not may_call(text)


@given(st.ip_addresses(v=4))
def test_private_ipv4_addresses_are_refused(address: IPv4Address):
    """[D-47 outbound]"""
    assert address.is_global or not may_call(str(address))


@given(st.ip_addresses(v=6))
def test_private_ipv6_addresses_are_refused(address: IPv6Address):
    """[D-47 outbound]"""
    assert address.is_global or not may_call(str(address))


@given(
    st.ip_addresses(v=4),
    st.sampled_from(["::ffff:0:0", "::", "64:ff9b::", "64:ff9b:1::", "::ffff:0:0:0", "fe80::"]),
)
def test_ipv4_at_the_end_of_ipv6_is_refused(hidden: IPv4Address, prefix: str):
    """[D-47 outbound]"""
    assert not may_call(str(IPv6Address(int(ip_address(prefix)) + int(hidden))))


@given(st.ip_addresses(v=4), st.integers(0, 2**64 - 1))
def test_ipv4_in_a_tunnel_address_is_refused(hidden: IPv4Address, rest: int):
    """A 6to4 address contains one IPv4 address after its prefix. A Teredo address contains two. [D-47 outbound]"""
    six_to_four = (0x2002 << 112) + (int(hidden) << 80) + rest
    teredo = (0x20010000 << 96) + (int(hidden) << 64) + rest
    assert not may_call(str(IPv6Address(six_to_four)))
    assert not may_call(str(IPv6Address(teredo)))


@given(st.ip_addresses(v=4), st.integers(0, 2**64 - 1), st.sampled_from([0x00005EFE, 0x02005EFE]))
def test_ipv4_in_an_isatap_address_is_refused(hidden: IPv4Address, network: int, mark: int):
    """[D-215, D-47 outbound]"""
    assert not may_call(str(IPv6Address((network << 64) + (mark << 32) + int(hidden))))


SPECIAL_PURPOSE = (
    *(
        "0.0.0.0/8",
        "0.0.0.0/32",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
    ),
    *("192.0.0.0/24", "192.0.0.0/29", "192.0.0.8/32", "192.0.0.9/32", "192.0.0.10/32", "192.0.0.170/31"),
    *("192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16"),
    *(
        "192.175.48.0/24",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "240.0.0.0/4",
        "255.255.255.255/32",
    ),
    *("::1/128", "::/128", "::ffff:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "100:0:0:1::/64"),
    *(
        "2001::/23",
        "2001::/32",
        "2001:1::1/128",
        "2001:1::2/128",
        "2001:1::3/128",
        "2001:2::/48",
        "2001:3::/32",
    ),
    *("2001:4:112::/48", "2001:10::/28", "2001:20::/28", "2001:30::/28", "2001:db8::/32", "2002::/16"),
    *("2620:4f:8000::/48", "3fff::/20", "5f00::/16", "fc00::/7", "fe80::/10"),
)
"""IANA's registries of special-purpose addresses, of November 2026."""


@pytest.mark.parametrize("block", SPECIAL_PURPOSE)
def test_special_purpose_addresses_are_refused(block: str):
    """[D-215]"""
    network = ip_network(block)
    assert not may_call(str(network[0]))
    assert not may_call(str(network[-1]))


@pytest.mark.parametrize(
    ("address", "is_exempt", "allowed"),
    [
        ("8.8.8.8", False, False),
        ("8.8.8.8", True, False),
        ("8.8.4.4", False, True),
        ("10.0.0.5", True, False),
        ("10.1.0.5", True, True),
        ("::ffff:10.0.0.5", True, False),
        ("2a00:1450::1", False, False),
        ("2a00:1451::1", False, True),
    ],
)
def test_networks_of_the_operator_are_never_called(address: str, is_exempt: bool, allowed: bool):  # noqa: FBT001 - pytest passes by name
    """[D-215]"""
    denied = [ip_network(each) for each in ("8.8.8.0/24", "10.0.0.0/16", "2a00:1450::/32")]
    assert may_call(address, is_exempt=is_exempt, denied=denied) is allowed
