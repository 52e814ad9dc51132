"""The settings for calls to merchants' servers."""

from ipaddress import ip_network

import pytest

from fatura import settings
from fatura.bootstrap import url_rules
from fatura.domain.credentials import Mode
from fatura.domain.endpoint_url import refusal
from fatura.settings import HostPorts, SettingsError

HOSTS = "FATURA_OUTBOUND_ALLOW"


def test_hosts_have_a_port_or_a_range_of_ports():
    """[D-47 outbound, D-215]"""
    read = settings.read({HOSTS: " Shop:80, [::1]:8080 ,10.0.0.5:9000-9009"}).outbound_allow
    assert read == (
        HostPorts("shop", 80, 80),
        HostPorts("::1", 8080, 8080),
        HostPorts("10.0.0.5", 9000, 9009),
    )
    assert settings.read({HOSTS: ",".join(map(str, read))}).outbound_allow == read


@pytest.mark.parametrize(
    "entry",
    ["127.0.0.1", "localhost", "localhost:", "[::1]", "::1:80", "a:0", "a:65536", "a:9-8", "a:1-", "http://a:1",
     "a:1/b", "a b:1", "*:1", "10.0.0.0/8:1"],
)  # fmt: skip
def test_other_entries_are_refused_with_a_sentence(entry: str):
    """[D-47 outbound]"""
    with pytest.raises(SettingsError, match=r"FATURA_OUTBOUND_ALLOW has the entry '.+'; .*port"):
        settings.read({HOSTS: f"127.0.0.1:9000,{entry}"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FATURA_OUTBOUND_PORTS", "443,x"),
        ("FATURA_OUTBOUND_PORTS", "0"),
        ("FATURA_OUTBOUND_PORTS", "65536"),
        ("FATURA_OUTBOUND_PORTS", "100000000000000"),
        ("FATURA_OUTBOUND_DENY", "10.0.0.1/8"),
        ("FATURA_OUTBOUND_DENY", "example.com"),
        ("FATURA_OUTBOUND_ALLOW_LIVE", "127.0.0.1"),
    ],
)
def test_invalid_ports_and_networks_are_refused(name: str, value: str):
    """[D-215]"""
    with pytest.raises(SettingsError, match=f"{name} has the entry"):
        settings.read({name: value})


def test_ports_and_networks_are_lists():
    """[D-215]"""
    read = settings.read(
        {"FATURA_OUTBOUND_PORTS": "8443, 9443", "FATURA_OUTBOUND_DENY": "10.0.0.0/8,2001:db8::/32"}
    )
    assert read.outbound_ports == {8443, 9443}
    assert read.outbound_deny == (ip_network("10.0.0.0/8"), ip_network("2001:db8::/32"))


def test_hosts_of_sandbox_accounts_are_refused_for_live_accounts():
    """[D-215, D-47 outbound]"""
    rules = url_rules(settings.read({HOSTS: "test:80", "FATURA_OUTBOUND_ALLOW_LIVE": "inner:80"}))
    accepted = {
        (mode, host)
        for mode in Mode
        for host in ("test", "inner")
        if not refusal(f"http://{host}/", rules[mode])
    }
    assert accepted == {(Mode.SANDBOX, "test"), (Mode.SANDBOX, "inner"), (Mode.LIVE, "inner")}


@pytest.mark.parametrize("quote", ["'", '"'])
def test_a_value_in_quotes_is_refused(quote: str):
    """[D-237]"""
    with pytest.raises(SettingsError, match="FATURA_DATABASE_URL begins with a quotation mark"):
        settings.read({"FATURA_DATABASE_URL": f"{quote}postgresql://fatura@db.internal/fatura{quote}"})
