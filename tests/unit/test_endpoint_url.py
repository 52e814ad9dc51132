"""Which merchant URLs the engine accepts. This depends only on the text of the URL, not on DNS."""

import re
from urllib.parse import urlsplit

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fatura.bootstrap import url_rules
from fatura.domain.credentials import Mode
from fatura.domain.endpoint_url import MAX_CHARS, RefusedUrlError, read, refusal
from fatura.settings import read as read_settings
from tests.support.merchant_clients import rules

PUBLIC = [
    "https://merchant.example",
    "https://merchant.example/",
    "https://merchant.example/prices?a=1&b=%20",
    "https://merchant.example:443/prices",
    "https://MERCHANT.Example/prices",
    "https://xn--caf-dma.example/prices",
    "https://a-b.c-d.example/",
    "https://1.merchant.example/",
    "https://" + "a." * 120 + "example/",
]
CURES = {
    "http://127.0.0.1:9000/webhooks": "adds 127.0.0.1:9000 to FATURA_OUTBOUND_ALLOW, or for live accounts to "
    "FATURA_OUTBOUND_ALLOW_LIVE, and restarts Fatura",
    "http://localhost/": "adds localhost:80 to FATURA_OUTBOUND_ALLOW,",
    "https://localhost/": "adds localhost:443 to FATURA_OUTBOUND_ALLOW,",
    "http://[::1]:9000/": "adds [::1]:9000 to FATURA_OUTBOUND_ALLOW,",
    "https://shop.internal:8443/": "adds shop.internal:8443 to FATURA_OUTBOUND_ALLOW,",
    "https://merchant.example:8443/": "adds 8443 to FATURA_OUTBOUND_PORTS and restarts Fatura",
}
REFUSED = {
    "http": "http://merchant.example/prices",
    "another scheme": "ftp://merchant.example/prices",
    "a script": "javascript:alert(1)",
    "a file": "file:///etc/passwd",
    "no scheme": "merchant.example/prices",
    "no scheme, slashes": "//merchant.example/prices",
    "no host": "https:///prices",
    "nothing": "",
    "user": "https://user@merchant.example/",
    "user and password": "https://user:secret@merchant.example/",
    "empty user": "https://@merchant.example/",
    "fragment": "https://merchant.example/#part",
    "empty fragment": "https://merchant.example/#",
    "space": "https://merchant.example/a b",
    "newline": "https://merchant.example/\nHost: inner",
    "tab inside the host": "https://merchant\t.example/",
    "NUL": "https://merchant.example/\0",
    "backslash": "https://merchant.example\\@inner/",
    "not ASCII": "https://café.example/",
    "full-width dots": "https://127。0。0。1/",
    "single label": "https://merchant/",
    "localhost": "https://localhost/",
    "under localhost": "https://a.localhost/",
    "under local": "https://printer.local/",
    "under internal": "https://metadata.google.internal/",
    "under arpa": "https://1.0.0.127.in-addr.arpa/",
    "trailing dot": "https://merchant.example./",
    "IPv4": "https://127.0.0.1/",
    "public IPv4": "https://8.8.8.8/",
    "IPv4 in short": "https://127.1/",
    "IPv4 as one number": "https://2130706433/",
    "IPv4 in hex": "https://0x7f.0x0.0x0.0x1/",
    "IPv4 in octal": "https://0177.0.0.1/",
    "IPv6": "https://[::1]/",
    "IPv4 in IPv6": "https://[::ffff:127.0.0.1]/",
    "broken IPv6": "https://[::1/",
    "port that is not a number": "https://merchant.example:http/",
    "port too large": "https://merchant.example:65536/",
    "another port": "https://merchant.example:8443/prices",
    "the port of http": "https://merchant.example:80/prices",
    "port 0": "https://merchant.example:0/",
    "colon without a port": "https://merchant.example:/",
    "two ports": "https://merchant.example:443:443/",
    "no slashes": "https:merchant.example/",
    "one slash": "https:/merchant.example/",
    "three slashes": "https:///merchant.example/",
    "a bracket beside the host": "https://[::1]merchant.example/",
    "underscore": "https://mer_chant.example/",
    "empty label": "https://merchant..example/",
    "label too long": f"https://{'a' * 64}.example/",
    "host too long": "https://" + "a." * 130 + "example/",
    "too long": "https://merchant.example/" + "a" * MAX_CHARS,
    "percent in the host": "https://merchant%2eexample.com/",
}


@pytest.mark.parametrize("url", PUBLIC)
def test_public_names_over_https_are_accepted(url):
    """[spec 4.2 pricing endpoint]"""
    assert refusal(url) is None


@pytest.mark.parametrize("url", [pytest.param(url, id=name) for name, url in REFUSED.items()])
def test_other_urls_are_refused_with_a_reason(url):
    """[spec 4.2 pricing endpoint, D-47 outbound]"""
    said = refusal(url)
    assert said
    assert said.isascii()


@pytest.mark.parametrize(
    ("url", "allowed", "accepted"),
    [
        ("http://127.0.0.1:9000/price", "127.0.0.1:9000", True),
        ("http://127.0.0.1:9001/price", "127.0.0.1:9000", False),
        ("http://127.0.0.1:9001/price", "127.0.0.1:9000-9001", True),
        ("http://127.0.0.1:9002/price", "127.0.0.1:9000-9001", False),
        ("http://localhost/price", "localhost:80", True),
        ("https://localhost/price", "localhost:443", True),
        ("https://localhost/price", "localhost:80", False),
        ("http://LOCALHOST/price", "LocalHost:80", True),
        ("http://localhost.evil.example/price", "localhost:80", False),
        ("http://user@localhost/price", "localhost:80", False),
        ("ftp://localhost:80/price", "localhost:80", False),
        ("http://[::1]:8080/price", "[::1]:8080", True),
        ("http://[::1]:8081/price", "[::1]:8080", False),
        ("http://[::1]evil.example/price", "[::1]:80", False),
        ("http://localhost:80:80/price", "localhost:80", False),
    ],
)
def test_the_operator_may_allow_hosts(url, allowed, accepted):
    """[D-47 outbound]"""
    assert (refusal(url, rules([allowed])) is None) is accepted


@pytest.mark.parametrize(
    ("url", "accepted"),
    [
        ("https://merchant.example:8443/", True),
        ("https://merchant.example/", True),
        ("https://merchant.example:8444/", False),
        ("http://merchant.example:8443/", False),
        ("https://localhost:8443/", False),
    ],
)
def test_the_operator_may_allow_ports(url, accepted):
    """[D-215, D-47 outbound]"""
    assert (refusal(url, rules(ports="8443")) is None) is accepted


@given(st.text(max_size=80))
def test_any_text_is_accepted_or_refused(text):
    """[D-11]"""
    for url in (text, f"https://{text}", f"https://merchant.example{text}"):
        said = refusal(url)
        assert said is None or said
        assert said is not None or url.startswith("https://") or url[:8].lower() == "https://"


@given(
    st.text("htps:/@[]#?.%\\ \tax019-_&", max_size=40), st.sampled_from(["", "https://", "https://a.example"])
)
@example("@b.example/", "https://a.example")
@example("a.example:443/?@b.example", "https://")
def test_other_parsers_see_the_same_host_and_port(text, before):
    """[D-47 outbound]"""
    url = before + text
    try:
        target = read(url, rules(["ax:1-65535", "0:1-65535"]))
    except RefusedUrlError:
        return
    parts = urlsplit(url)
    assert (parts.scheme, parts.hostname, parts.username) == (target.scheme, target.host, None)
    assert (parts.port or {"http": 80, "https": 443}[parts.scheme]) == target.port
    assert httpx.URL(url).host == target.host
    assert (httpx.URL(url).port or target.port) == target.port


@pytest.mark.parametrize(
    ("url", "authority", "path"),
    [
        ("https://MERCHANT.example", "merchant.example", "/"),
        ("https://merchant.example:443/a?b=c", "merchant.example", "/a?b=c"),
        ("https://merchant.example:8443?b=/c", "merchant.example:8443", "/?b=/c"),
        ("http://[::1]:8080/a", "[::1]:8080", "/a"),
        ("http://[::1]:80/../a//b", "[::1]", "/../a//b"),
    ],
)
def test_the_request_has_host_path_and_query_as_given(url, authority, path):
    """[D-47 outbound]"""
    target = read(url, rules(["[::1]:80", "[::1]:8080"], ports="8443"))
    assert (target.authority, target.path) == (authority, path)


@pytest.mark.parametrize("url", CURES)
def test_a_refusal_names_the_setting_that_allows_the_url(url: str) -> None:
    """[D-252]"""
    assert CURES[url] in (refusal(url) or "")
    named = re.search(r"adds (\S+) to (FATURA_OUTBOUND_\w+)", refusal(url) or "")
    assert named
    setting = read_settings({named[2]: named[1]})
    assert refusal(url, url_rules(setting)[Mode.SANDBOX]) is None


@pytest.mark.parametrize("url", ["http://a_<b>:80/", "http://" + "a" * 300, "ftp://127.0.0.1/"])
def test_a_refusal_names_no_setting_that_could_not_help(url: str) -> None:
    """[D-252]"""
    assert "FATURA_" not in (refusal(url) or "FATURA_")
