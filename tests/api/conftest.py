"""Fixtures of the API's tests: an engine that a module's tests share, and an API on a real HTTP server."""

import asyncio
import json
import os
import socket
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest_asyncio

from fatura.store.vault import new_key
from tests.conftest import fresh_database
from tests.support.unlimited import UNLIMITED
from tests.support.world import Json, World, open_world

START_SECONDS = 20
FATURA = (sys.executable, "-m", "fatura")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_world(server_url: str) -> AsyncIterator[World]:
    """An engine shared by the tests of a module. No test may change resources that another test created."""
    async with fresh_database(server_url) as url, open_world(url) as opened:
        yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def product(shared_world: World) -> Json:
    """A product with a fixed price, in the account of `shared_world`. No test may change the product."""
    return await shared_world.product()


@dataclass(frozen=True, slots=True)
class Served:
    """An API process and an API key for it."""

    host: str
    port: int
    api_key: str

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(server_url: str, tmp_path_factory) -> AsyncIterator[Served]:
    """A `fatura api` process with one sandbox account, shared by the tests of a module."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        host, port = probe.getsockname()
    data_dir: Path = tmp_path_factory.mktemp("served")
    async with fresh_database(server_url) as url:
        environment = {
            **os.environ,
            "FATURA_DATABASE_URL": url,
            "FATURA_DATA_DIR": str(data_dir),
            "FATURA_SECRET_KEYS": new_key(),
            **UNLIMITED,
            "FATURA_LOG_LEVEL": "error",
        }
        account = ("account", "create", "Test", "--mode", "sandbox", "--json")
        opening = await asyncio.create_subprocess_exec(*FATURA, *account, env=environment, stdout=PIPE)
        printed, _ = await opening.communicate()
        api = ("api", "--port", str(port))
        process = await asyncio.create_subprocess_exec(
            *FATURA, *api, env=environment, stdout=PIPE, stderr=STDOUT
        )
        try:
            found = Served(host, port, json.loads(printed)["apiKey"])
            await _until_alive(process, found)
            yield found
        finally:
            if process.returncode is None:
                process.terminate()
            await process.communicate()


async def _until_alive(process: Process, served: Served) -> None:
    async with httpx.AsyncClient() as client, asyncio.timeout(START_SECONDS):
        while process.returncode is None:
            try:
                assert (await client.get(f"{served.url}/health")).status_code == 200
            except httpx.TransportError:
                await asyncio.sleep(0.02)
            else:
                return
    assert process.stdout
    raise AssertionError(await process.stdout.read())
