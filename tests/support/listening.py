"""An API on a real port, which tests can stop and restart, and a running `fatura listen`."""

import asyncio
import base64
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx

from fatura.api.app import create_app
from fatura.api.http.server import run_server
from fatura.cli.client import connect
from fatura.cli.event_stream import StreamEvent
from fatura.cli.listen.forwarding import Forwarding, Position, Post, forward
from tests.support.fatura_processes import free_port
from tests.support.receiver import Receiver
from tests.support.world import World

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()


class Api:
    """The real application on a real port. It can stop and restart."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self._stop = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the server and wait until it answers requests."""
        self._stop = asyncio.Event()
        server = run_server(create_app(self._world.deps), self._stop, host="127.0.0.1", port=self._port)
        self._serving = asyncio.create_task(server)
        async with httpx.AsyncClient() as client:
            for _ in range(200):
                try:
                    await client.get(f"{self.url}/health")
                except httpx.TransportError:
                    await asyncio.sleep(0.02)
                else:
                    return
        raise AssertionError

    async def stop(self) -> None:
        assert self._serving is not None
        self._stop.set()
        await self._serving


@dataclass
class Listening:
    """A running `fatura listen`: its attempts to forward events, its messages and its position in the stream."""

    place: Position
    attempts: list[tuple[int, Post]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def report(self, event: StreamEvent, attempt: Post) -> None:
        self.attempts.append((event.sequence, attempt))


@asynccontextmanager
async def listening(
    api: Api, world: World, receiver: Receiver, *, after: int | None, skip_failures: bool = False
) -> AsyncGenerator[Listening]:
    """Forward an account's events to a receiver during the block."""
    seen = Listening(Position(after))
    forwarding = Forwarding(
        receiver.url, SECRET, skip_failures, report=seen.report, print_note=seen.said.append
    )
    async with connect(api.url, world.api_key) as client:
        task = asyncio.create_task(forward(client, seen.place, of=forwarding))
        try:
            yield seen
        finally:
            task.cancel()
            await asyncio.wait({task})
