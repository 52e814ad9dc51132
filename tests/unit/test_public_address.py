"""Which IP addresses the engine may call: all except the denied blocks."""

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fatura.domain.public_address import is_public
from tests.support.hostile_urls import PRIVATE_ADDRESSES, PUBLIC_ADDRESSES

TAKEN_FOR_GLOBAL = (
    *("64:ff9b::a9fe:a9fe", "2002:7f00:1::", "::127.0.0.1", "fec0::1", "224.0.0.1", "168.63.129.16"),
    *("64:ff9b:1::7f00:1", "2001:0:7f00:1::"),
)


@pytest.mark.parametrize("address", PRIVATE_ADDRESSES + TAKEN_FOR_GLOBAL)
def test_denied_addresses_are_refused(address):
    """[D-47 outbound]"""
    assert not is_public(address)


@pytest.mark.parametrize("address", PUBLIC_ADDRESSES)
def test_public_addresses_are_allowed(address):
    """[D-47 outbound]"""
    assert is_public(address)


@pytest.mark.parametrize(
    "text", ["", "localhost", "127.1", "0x7f.0.0.1", "8.8.8.8 ", "8.8.8.8:53", "08.8.8.8", "[2003::1]"]
)
def test_text_that_is_no_address_is_refused(text):
    """[D-47 outbound]"""
    assert not is_public(text)


@given(st.ip_addresses(v=4))
def test_private_ipv4_addresses_are_refused(address: IPv4Address):
    """[D-47 outbound]"""
    assert address.is_global or not is_public(str(address))


@given(st.ip_addresses(v=6))
def test_private_ipv6_addresses_are_refused(address: IPv6Address):
    """[D-47 outbound]"""
    assert address.is_global or not is_public(str(address))


@given(
    st.ip_addresses(v=4),
    st.sampled_from(["::ffff:0:0", "::", "64:ff9b::", "64:ff9b:1::", "::ffff:0:0:0", "fe80::"]),
)
def test_ipv4_at_the_end_of_ipv6_is_refused(hidden: IPv4Address, prefix: str):
    """[D-47 outbound]"""
    assert not is_public(str(IPv6Address(int(ip_address(prefix)) + int(hidden))))


@given(st.ip_addresses(v=4), st.integers(0, 2**64 - 1))
def test_ipv4_in_a_tunnel_address_is_refused(hidden: IPv4Address, rest: int):
    """A 6to4 address contains one IPv4 address after its prefix. A Teredo address contains two. [D-47 outbound]"""
    six_to_four = (0x2002 << 112) + (int(hidden) << 80) + rest
    teredo = (0x20010000 << 96) + (int(hidden) << 64) + rest
    assert not is_public(str(IPv6Address(six_to_four)))
    assert not is_public(str(IPv6Address(teredo)))
