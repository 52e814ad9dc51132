"""House rule on the network: only `outbound.http` and `gateways.http` use the standard library's network modules.

Import contracts in pyproject.toml refuse other HTTP clients.
"""

import ast
from collections.abc import Iterator

import pytest

from tests.tidy.sources import Finding, Source, none, repository

GUARDED = ("src/fatura/outbound/http/", "src/fatura/gateways/http/")
MODULES = {
    *("ftplib", "http.client", "imaplib", "nntplib", "poplib", "smtplib", "socket", "socketserver", "ssl"),
    *("telnetlib", "urllib.request", "xmlrpc", "xmlrpc.client"),
}
CALLS = {
    *("create_connection", "create_datagram_endpoint", "create_unix_connection", "open_connection"),
    *("open_unix_connection", "sock_connect", "start_tls"),
}
LISTENERS = {
    "src/fatura/bootstrap.py": "tries whether a port is free",
    "src/fatura/postgres/address.py": "finds the embedded server's socket",
    "src/fatura/failure_text.py": "describes the errors of both",
}
"""Modules that may import `socket` and `ssl`, with the reason."""


def network_calls(source: Source) -> Iterator[Finding]:
    """Refuse imports and calls that could reach the network."""
    if source.path.startswith(GUARDED):
        return
    for node in ast.walk(source.tree):
        for name in _imported(node):
            if name in MODULES | CALLS and not (name in {"socket", "ssl"} and source.path in LISTENERS):
                yield _finding(source, node, f"imports {name}")
        if isinstance(node, ast.Attribute) and node.attr in CALLS:
            yield _finding(source, node, f"uses {node.attr}")


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        yield node.module
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
        yield from CALLS.intersection(alias.name for alias in node.names)


def _finding(source: Source, node: ast.AST, what: str) -> Finding:
    line = getattr(node, "lineno", 1)
    return Finding(
        source.path,
        line,
        f"{what}: call merchants through fatura.outbound.http, and providers through fatura.gateways.http",
    )


def test_only_the_two_http_packages_reach_the_network():
    """[D-47 outbound]"""
    assert none(finding for source in repository(".py", under="src/") for finding in network_calls(source))


@pytest.mark.parametrize(
    "bad",
    [
        "import urllib.request",
        "from urllib import request",
        "from urllib.request import urlopen",
        "import http.client",
        "from http import client",
        "import socket",
        "def f():\n    import ssl",
        "import asyncio\nasyncio.open_connection('merchant.example', 443)",
        "loop.create_connection(P, 'merchant.example', 443)",
        "from asyncio import open_connection",
    ],
)
def test_a_bad_sample_is_found(bad):
    assert list(network_calls(Source("src/fatura/usecases/a.py", bad)))


@pytest.mark.parametrize(
    "good", ["from urllib.parse import quote", "from http import HTTPStatus", "import http"]
)
def test_a_good_sample_passes(good):
    assert not list(network_calls(Source("src/fatura/usecases/a.py", good)))
