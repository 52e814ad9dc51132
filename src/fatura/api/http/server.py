"""Runs the application in uvicorn, with limits against slow and oversized requests."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from typing import Any

import uvicorn
from fastapi import FastAPI

from fatura.api.http.connections import Connections
from fatura.api.http.protocol import LimitedProtocol

KEEP_ALIVE_SECONDS = 15
DRAIN_SECONDS = 25
"""Maximum time for running requests to end when the server stops. It is longer than the timeout of gateway calls."""
BACKLOG = 2048


class _Server(uvicorn.Server):
    """A server without signal handlers, because the `fatura` command handles signals."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


async def run_server(
    app: FastAPI, stop: asyncio.Event, *, host: str, port: int, limits_addresses: bool = True
) -> None:
    """Serve until `stop` is set, then finish running requests. If the port is in use, uvicorn raises SystemExit.

    `limits_addresses` must be false behind a proxy (D-200).
    """
    protocol: Any = partial(LimitedProtocol, connections=Connections(limits_addresses=limits_addresses))
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=protocol,
        ws="none",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=DRAIN_SECONDS,
        backlog=BACKLOG,
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve())
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    server.should_exit = True
    stopping.cancel()
    await serving
