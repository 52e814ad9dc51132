"""The address of a client. Refused webhooks are limited per address (D-191)."""

import httpx
import pytest

from fatura.api.http.client_address import client_address, client_network
from tests.support.world import rows
from tests.unit.tiny_api import KEY, tiny_api

ADDRESSES = rows("""
    proxies | peer             | X-Forwarded-For                         | client
    0       | 192.0.2.1        |                                         | 192.0.2.1
    0       | 192.0.2.1        | 198.51.100.1                            | 192.0.2.1
    1       | 192.0.2.1        | 198.51.100.1                            | 198.51.100.1
    1       | 192.0.2.1        | 203.0.113.9, 198.51.100.1               | 198.51.100.1
    1       | 192.0.2.1        | 203.0.113.9 + 198.51.100.1              | 198.51.100.1
    1       | 192.0.2.1        |                                         | 192.0.2.1
    1       | 192.0.2.1        | unknown                                 | 192.0.2.1
    1       | 192.0.2.1        | 198.51.100.1,                           | 192.0.2.1
    1       | 192.0.2.1        | 198.51.100.1:4711                       | 198.51.100.1
    1       | 192.0.2.1        | [2001:db8::1]:4711                      | 2001:db8::/64
    1       | 192.0.2.1        | 2001:db8::1                             | 2001:db8::/64
    2       | 192.0.2.1        | 203.0.113.9, 198.51.100.1, 192.0.2.7    | 198.51.100.1
    2       | 192.0.2.1        | 198.51.100.1, 192.0.2.7                 | 198.51.100.1
    2       | 192.0.2.1        | 198.51.100.1                            | 192.0.2.1
    0       | 2001:db8::1      |                                         | 2001:db8::/64
    0       | 2001:db8::ffff:1 |                                         | 2001:db8::/64
    0       | 2001:db8:0:1::1  |                                         | 2001:db8:0:1::/64
    0       | fe80::1%eth0     |                                         | fe80::/64
    0       | ::ffff:192.0.2.1 |                                         | 192.0.2.1
    0       | ::ffff:192.0.2.2 |                                         | 192.0.2.2
    0       | not an address   |                                         | not an address
""")


@pytest.mark.parametrize(("proxies", "peer", "forwarded", "client"), ADDRESSES)
def test_the_address_of_a_client(proxies: str, peer: str, forwarded: str, client: str):
    """In the table, a plus sign separates two headers. [D-191]"""
    headers = [(b"x-forwarded-for", each.strip().encode()) for each in forwarded.split("+") if each]
    scope = {"type": "http", "client": (peer, 5000), "headers": headers}
    assert client_address(scope, trusted_proxies=int(proxies)) == client


def test_long_entries_are_ignored():
    """[D-191]"""
    headers = [(b"x-forwarded-for", b"fe80::1%" + b"a" * 64)]
    scope = {"type": "http", "client": ("192.0.2.1", 5000), "headers": headers}
    assert client_address(scope, trusted_proxies=1) == "192.0.2.1"


def test_a_client_of_a_unix_socket_has_no_address():
    """[D-191]"""
    assert client_address({"type": "http", "client": None, "headers": []}, trusted_proxies=0) == ""


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2::/64", "2001:db8:1::/48"),
        ("not an address", "not an address"),
        ("", ""),
    ],
)
def test_the_network_that_counts_for_refused_webhooks(address: str, network: str):
    """[D-191]"""
    assert client_network(address) == network


async def test_an_endpoint_gets_the_name_of_the_key_and_the_address_of_its_client():
    transport = httpx.ASGITransport(tiny_api(), client=("192.0.2.1", 5000))
    headers = {"Authorization": f"Bearer {KEY}", "Idempotency-Key": "k"}
    async with httpx.AsyncClient(transport=transport, base_url="http://api", headers=headers) as client:
        made = await client.post("/v1/things", json={"name": "x"})
    assert made.json()["caller"] == ["checkout", "192.0.2.1"]
