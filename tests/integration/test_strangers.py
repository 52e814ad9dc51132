"""Clients without an API key cannot make the engine unavailable to others, whatever they send or open."""

import asyncio
import gc
import json
import socket
import time
from collections import Counter
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from http.client import HTTPConnection
from pathlib import Path

import pytest

from fatura import bootstrap, settings
from fatura.api.http.connections import IN_ALL, OF_ADDRESS
from fatura.bootstrap import Address
from fatura.store.vault import new_key
from tests.support.databases import as_superuser
from tests.support.expect import UNKNOWN_ID
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
        """Return the status and the media type of the answer, which must come within ANSWERED_WITHIN_SECONDS."""
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

    def answers_of(self, method: str, path: str, *, keys: Sequence[str]) -> Counter[int]:
        """Send a request with each key over one connection, and count the answers by status."""
        statuses = Counter[int]()
        connection = HTTPConnection("127.0.0.1", self.port, timeout=ANSWERED_WITHIN_SECONDS)
        for key in keys:
            connection.request(method, path, headers={"Authorization": f"Bearer {key}"})
            answer = connection.getresponse()
            answer.read()
            statuses[answer.status] += 1
        connection.close()
        return statuses


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Generator[Api]:
    env, port, metrics_port = environment(database_url, **UNLIMITED), free_port(), free_port()
    opened = run_here("account", "create", "Gym", "--mode", "sandbox", "--json", env=env)
    words = ("api", "--port", str(port), "--metrics-port", str(metrics_port))
    with running(*words, env=env, output=tmp_path / "api.log") as process:
        until(lambda: serves(port), seconds=30)
        yield Api(process, port, metrics_port, json.loads(opened.stdout)["apiKey"])


def test_idle_connections_do_not_exclude_other_clients(api: Api) -> None:
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


async def test_garbage_collections_skip_imported_objects(database_url: str) -> None:
    """Many connections cause a full collection, which stops all requests while it runs. [D-200]"""
    stop = asyncio.Event()
    stop.set()
    read = replace(settings.read({}), secret_keys=(new_key(),))
    try:
        await bootstrap.serve(read, database_url, stop=stop, address=Address("127.0.0.1", free_port()))
        assert gc.get_freeze_count() > len(gc.get_objects())
    finally:
        gc.unfreeze()


async def test_metrics_have_a_port_and_all_checks_share_one_database_connection(
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


async def test_forged_keys_and_webhooks_reach_no_database_connection(api: Api, database_url: str) -> None:
    """[D-240, D-241]"""
    assert api.get("/v1/products")[0] == 200
    newest = await _newest_query(database_url)
    forged = [f"{api.api_key[:-4]}{number:04}" for number in range(500)]
    began = time.monotonic()

    assert api.answers_of("GET", "/v1/products", keys=forged) == {401: 500}
    for account, connection in (("019a2f6e-1c3b-7d52-9f0a-6b1c2d3e4f50", "no-id"), (UNKNOWN_ID, UNKNOWN_ID)):
        path = f"/gateways/{account}/{connection}/webhook"
        assert api.answers_of("POST", path, keys=["none"] * 200) == {404: 200}

    assert 900 / (time.monotonic() - began) > 50
    assert await _newest_query(database_url) == newest
    assert api.get("/v1/products")[0] == 200
    assert await _newest_query(database_url) > newest


async def _newest_query(database_url: str) -> datetime:
    """Return when the API's newest query began."""
    async with connected(as_superuser(database_url)) as connection:
        return await connection.fetchval(
            "SELECT max(query_start) FROM pg_stat_activity WHERE datname = current_database() "
            "AND application_name = 'fatura'"
        )


async def _pings(database_url: str) -> set[int]:
    """Return the process ids of the PostgreSQL backends that serve the API's health checks."""
    async with connected(as_superuser(database_url)) as connection:
        found = await connection.fetch(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
            "AND application_name = 'fatura ping'"
        )
    return {row["pid"] for row in found}
