"""What happens to requests that are still open when the server stops."""

import asyncio
import logging

import httpx

from fatura.api.http import server
from fatura.cli.processes import STOP_WITHIN_SECONDS
from fatura.domain.errors import UNAVAILABLE
from fatura.gateways.port import CALL_TIMEOUT_SECONDS
from fatura.outbound.http import DEADLINE_SECONDS
from tests.support.fatura_processes import free_port
from tests.unit.tiny_api import KEY, tiny_api


def test_calls_in_progress_have_more_time_than_their_deadline() -> None:
    """When the server stops, the API waits for open requests longer than any gateway or merchant call may take.

    `fatura up` waits longer than the API. [D-33, D-47]
    """
    assert max(CALL_TIMEOUT_SECONDS, DEADLINE_SECONDS) < server.DRAIN_SECONDS < STOP_WITHIN_SECONDS


async def test_a_request_that_outlasts_the_drain_gets_a_503_and_no_traceback(monkeypatch, caplog) -> None:
    """[D-13]"""
    monkeypatch.setattr(server, "DRAIN_SECONDS", 1)
    stop, port = asyncio.Event(), free_port()
    serving = asyncio.create_task(server.run_server(tiny_api(), stop, host="127.0.0.1", port=port))
    api = httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers={"Authorization": f"Bearer {KEY}"})
    async with api, asyncio.timeout(20):
        await _until_up(api)
        waiting = asyncio.create_task(api.get("/v1/waits", timeout=20))
        await asyncio.sleep(0.3)  # give the request time to reach its endpoint
        with caplog.at_level(logging.INFO):
            stop.set()
            answer = await waiting
            await serving

    assert (answer.status_code, answer.json()["type"]) == (503, UNAVAILABLE.type)
    assert answer.headers["retry-after"] == "1"
    assert not [record for record in caplog.records if record.exc_info]


async def _until_up(api: httpx.AsyncClient) -> None:
    for _ in range(500):
        try:
            await api.get("/health")
        except httpx.TransportError:
            await asyncio.sleep(0.02)
        else:
            return
    raise AssertionError
