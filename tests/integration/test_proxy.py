"""nginx with the configuration of `contrib/nginx` in front of a real API process."""

import json
import socket
import ssl
from collections.abc import Generator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from pathlib import Path

import pytest

from fatura.api.http.body import MAX_BYTES
from tests.support.expect import UNKNOWN_ID
from tests.support.fatura_processes import Running, environment, free_port, run_here, running, serves
from tests.support.nginx_process import BURST, PROGRAM, Proxy, nginx
from tests.support.postgres_processes import until
from tests.support.unlimited import UNLIMITED

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="nginx is not installed (`apt-get install nginx`)")

FAILURES = 2
CONNECTIONS = 100
"""Maximum number of requests in progress of each client, set in `contrib/nginx/fatura.conf`."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def problem(self) -> tuple[int, str, str | None]:
        """The status, the type and `Retry-After`. The answer must be a problem document."""
        assert self.headers["content-type"] == "application/problem+json", self
        problem = json.loads(self.body)
        assert problem["status"] == self.status
        assert problem.keys() >= {"title", "detail", "requestId"}
        return self.status, problem["type"], self.headers.get("retry-after")


@dataclass(slots=True)
class Front:
    proxy: Proxy
    api: Running
    api_key: str
    _connections: dict[str, HTTPSConnection] = field(default_factory=dict[str, HTTPSConnection])

    def ask(
        self,
        path: str,
        *,
        source: str = "127.0.0.1",
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a request from the address `source`. All requests of an address use one TLS connection."""
        if source not in self._connections:
            self._connections[source] = HTTPSConnection(
                "127.0.0.1", self.proxy.port, timeout=20, source_address=(source, 0), context=self.proxy.trust
            )
        connection = self._connections[source]
        sent = {"Authorization": f"Bearer {self.api_key}", **(headers or {})}
        connection.request("GET" if body is None else "POST", path, body, sent)
        return read(connection.getresponse())

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    def open_tls(self, source: str) -> ssl.SSLSocket:
        raw = socket.create_connection(("127.0.0.1", self.proxy.port), timeout=20, source_address=(source, 0))
        return self.proxy.trust.wrap_socket(raw, server_hostname="127.0.0.1")


def read(response: HTTPResponse) -> Answer:
    headers = {name.lower(): value for name, value in response.getheaders()}
    return Answer(response.status, headers, response.read())


@pytest.fixture
def front(database_url: str, tmp_path: Path) -> Generator[Front]:
    limits = {**UNLIMITED, "FATURA_REFUSED_WEBHOOK_RATE_LIMIT": str(FAILURES)}
    env, port = environment(database_url, **limits, FATURA_TRUSTED_PROXIES="1"), free_port()
    opened = run_here("account", "create", "Gym", "--mode", "sandbox", "--json", env=env)
    with running("api", "--port", str(port), env=env, output=tmp_path / "api.log") as api:
        until(lambda: serves(port), seconds=30)
        with nginx(port, tmp_path) as proxy:
            opened_front = Front(proxy, api, json.loads(opened.stdout)["apiKey"])
            yield opened_front
            opened_front.close()


def test_nginx_serves_the_api_and_limits_each_client(front: Front) -> None:
    """[D-191, D-200, D-202, D-11]"""
    served = front.ask("/v1/products")
    assert served.status == 200
    assert served.headers["strict-transport-security"] == "max-age=31536000"
    plain = HTTPConnection("127.0.0.1", front.proxy.plain_port, timeout=20)
    plain.request("GET", "/v1/products")
    assert read(plain.getresponse()).problem == (400, "engine.invalid_request", None)
    plain.close()
    assert front.ask("/metrics").problem == (404, "engine.not_found", None)

    with front.open_tls("127.0.0.1") as raw:
        raw.sendall(b"GET /v1/products HTTP/1.1\r\n\r\n")  # a Host header is missing
        invalid = HTTPResponse(raw)
        invalid.begin()
        assert read(invalid).problem == (400, "engine.invalid_request", None)

    # Fatura sees the address of each client, even if the client forges the header X-Forwarded-For
    refused = [_send_forged_webhook(front, number, source="127.0.0.2") for number in range(40)]
    assert refused[:FAILURES] == [404] * FAILURES
    assert refused[-1] == 429
    assert _send_forged_webhook(front, 0, source="127.0.0.3") == 404
    assert front.ask("/v1/products").status == 200

    # Fatura refuses a body that is too large; nginx refuses a very large one
    for size in (MAX_BYTES + 1, 4 * 1024 * 1024):
        refused_body = front.ask("/v1/products", source=f"127.0.1.{size % 100}", body=b" " * size)
        assert refused_body.problem == (413, "engine.payload_too_large", None)

    # too many requests per second
    answers = [front.ask("/health", source="127.0.0.4") for _ in range(2 * BURST)]
    limited = [each.problem for each in answers if each.status != 200]
    assert set(limited) == {(429, "engine.rate_limited", "1")}
    assert len(answers) - len(limited) > BURST
    assert front.ask("/health").status == 200

    # too many requests at the same time: each of these requests waits for the rest of its body
    with ExitStack() as stack:
        for _ in range(CONNECTIONS):
            slow = stack.enter_context(front.open_tls("127.0.0.5"))
            slow.sendall(b"POST /v1/products HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")
        assert front.ask("/health", source="127.0.0.5").problem == (429, "engine.rate_limited", "1")
        assert front.ask("/health").status == 200
    with ExitStack() as stack:
        for _ in range(1500):  # more idle connections than nginx can have open
            address = ("127.0.0.1", front.proxy.port)
            stack.enter_context(socket.create_connection(address, 20, source_address=("127.0.0.6", 0)))
        assert front.ask("/health", source="127.0.0.7").status == 200

    front.api.kill()
    assert front.ask("/health", source="127.0.0.8").problem == (503, "engine.unavailable", "1")


def _send_forged_webhook(front: Front, number: int, *, source: str) -> int:
    """Send a webhook for an unknown connection, with a forged X-Forwarded-For that depends on `number`."""
    headers = {"X-Forwarded-For": f"192.0.2.{number}, 127.0.0.9"}
    path = f"/gateways/{UNKNOWN_ID}/{UNKNOWN_ID}/webhook"
    return front.ask(path, source=source, body=b"{}", headers=headers).status
