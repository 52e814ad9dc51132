"""The tiny API on a real socket, with short deadlines, and functions that read its answers."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from fastapi import FastAPI

from fatura.api.http.server import run_server
from fatura.domain.errors import Problem
from tests.unit.tiny_api import KEY, tiny_api

HEAD = f"Host: x\r\nAuthorization: Bearer {KEY}\r\nIdempotency-Key: k\r\nContent-Type: application/json\r\n"
POST = f"POST /v1/things HTTP/1.1\r\n{HEAD}"
GET = f"GET /v1/things HTTP/1.1\r\n{HEAD}\r\n"
PATIENCE = 0.4
"""The server's deadlines, in seconds."""
GRACE = 5

Connect = Callable[..., Any]


@asynccontextmanager
async def served(app: FastAPI | None = None, *, limits_addresses: bool = True) -> AsyncGenerator[Connect]:
    """Serve an application, by default the tiny API. Yield a function that opens a connection from an address."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    stop = asyncio.Event()
    serving = asyncio.create_task(
        run_server(app or tiny_api(), stop, host="127.0.0.1", port=port, limits_addresses=limits_addresses)
    )

    @asynccontextmanager
    async def connected(
        source: str = "127.0.0.1",
    ) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
        try:
            yield reader, writer
        finally:
            writer.close()

    for _ in range(200):
        try:
            async with connected():
                break
        except OSError:
            await asyncio.sleep(0.01)
    try:
        yield connected
    finally:
        stop.set()
        await serving


async def answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    async with asyncio.timeout(GRACE):
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        return int(head[0].split(" ")[1]), headers, await reader.readexactly(int(headers["content-length"]))


async def check(reader: asyncio.StreamReader, problem: Problem) -> None:
    """Check that the next response is a problem document of this type."""
    status, headers, received = await answer(reader)
    assert (status, headers["content-type"]) == (problem.status, "application/problem+json")
    assert problem.type.encode() in received


async def closed_after(reader: asyncio.StreamReader) -> float:
    """Return the number of seconds until the server closes the connection."""
    started = asyncio.get_running_loop().time()
    async with asyncio.timeout(GRACE):
        with suppress(ConnectionResetError):  # raised if the server closed before it read all our bytes
            assert await reader.read() == b""
    return asyncio.get_running_loop().time() - started
