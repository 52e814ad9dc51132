"""A client without an API key stops nobody: many connections, readiness calls and scrapes at a real API process."""

import json
import socket
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from http.client import HTTPConnection
from pathlib import Path

import pytest

from fatura.api.http.connections import IN_ALL, OF_ADDRESS
from tests.support.databases import as_superuser
from tests.support.fatura_processes import Running, environment, free_port, run_here, running, serves
from tests.support.populated import connected
from tests.support.postgres_processes import until
from tests.support.unlimited import UNLIMITED

IDLE = 2500
ADDRESSES = [f"127.0.{network}.1" for network in range(5)]
ANSWERED_WITHIN_SECONDS = 5


@dataclass(frozen=True, slots=True)
class Api:
    process: Running
    port: int
    metrics_port: int
    api_key: str

    def get(self, path: str, *, port: int | None = None) -> tuple[int, str | None]:
        """Return the status and the media type of the answer, which must come soon."""
        connection = HTTPConnection("127.0.0.1", port or self.port, timeout=ANSWERED_WITHIN_SECONDS)
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {self.api_key}"})
            answer = connection.getresponse()
            answer.read()
        finally:
            connection.close()
        return answer.status, answer.headers["Content-Type"]

    def open_sockets(self) -> int:
        found = 0
        for each in Path(f"/proc/{self.process.process.pid}/fd").iterdir():
            with suppress(FileNotFoundError):
                found += str(each.readlink()).startswith("socket:")
        return found


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Generator[Api]:
    env, port, metrics_port = environment(database_url, **UNLIMITED), free_port(), free_port()
    opened = run_here("account", "create", "Gym", "--mode", "sandbox", "--json", env=env)
    words = ("api", "--port", str(port), "--metrics-port", str(metrics_port))
    with running(*words, env=env, output=tmp_path / "api.log") as process:
        until(lambda: serves(port), seconds=30)
        yield Api(process, port, metrics_port, json.loads(opened.stdout)["apiKey"])


def test_idle_connections_keep_nobody_out(api: Api) -> None:
    """[D-200]"""
    for addresses, most in ((ADDRESSES[:1], OF_ADDRESS), (ADDRESSES, IN_ALL)):
        with ExitStack() as stack:
            for number in range(IDLE):
                source = (addresses[number % len(addresses)], 0)
                opened = socket.create_connection(("127.0.0.1", api.port), timeout=10, source_address=source)
                stack.enter_context(opened)
            for path in ("/health", "/health/ready", "/v1/products"):
                assert api.get(path)[0] == 200
            assert api.open_sockets() < most.connections + 50


async def test_metrics_have_a_port_and_share_the_questions_to_the_database(
    api: Api, database_url: str
) -> None:
    """[D-202]"""
    assert api.get("/metrics") == (404, "application/problem+json")
    assert api.get("/v1/products", port=api.metrics_port) == (404, "application/problem+json")
    before = await _pings(database_url)
    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(api.get, ["/health/ready"] * 200))
        for path in ("/health", "/health/ready", "/metrics"):
            answers += list(pool.map(partial(api.get, port=api.metrics_port), [path] * 60))
    assert {status for status, _ in answers} == {200}
    assert len(before) == 1
    assert await _pings(database_url) == before


async def _pings(database_url: str) -> set[int]:
    """Return the backends of PostgreSQL that answer the API's questions for its health."""
    async with connected(as_superuser(database_url)) as connection:
        found = await connection.fetch(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
            "AND application_name = 'fatura ping'"
        )
    return {row["pid"] for row in found}
