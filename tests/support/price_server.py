"""A merchant's price endpoint on 127.0.0.1. Tests script its replies, and it records every call."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiohttp import web

Json = Any


@dataclass(frozen=True, slots=True)
class ReceivedCall:
    path: str
    headers: dict[str, str]
    raw: bytes

    @property
    def json(self) -> Json:
        return json.loads(self.raw)


@dataclass(slots=True)
class Reply:
    """A scripted reply. `delay` is in seconds."""

    body: Json = None
    status: int = 200
    delay: float = 0
    headers: dict[str, str] | None = None

    def raw(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


class PriceServer:
    """A server with a script of replies for each path. It sends them one after another, then repeats the last reply.

    If `withholds` is true, each call adds an `asyncio.Event` to `withheld`. The call is answered when
    the test sets that `asyncio.Event`.
    """

    def __init__(self) -> None:
        self.base_url = ""
        self.calls: list[ReceivedCall] = []
        self.scripts: dict[str, list[Reply]] = {}
        self.withholds = False
        self.withheld: list[asyncio.Event] = []

    def url(self, path: str = "/price") -> str:
        return self.base_url + path

    def answers(self, *replies: Reply | Json, path: str = "/price") -> None:
        """Script the replies of a path. A JSON value is sent with status 200."""
        self.scripts[path] = [each if isinstance(each, Reply) else Reply(each) for each in replies]

    async def wait_for_calls(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.calls) < count or (self.withholds and len(self.withheld) < count):  # noqa: ASYNC110 - calls arrive over sockets
                await asyncio.sleep(0.002)

    async def _serve(self, request: web.Request) -> web.Response:
        raw = await request.read()
        self.calls.append(ReceivedCall(request.path, {**request.headers}, raw))
        script = self.scripts.get(request.path, [Reply({"amount": 1250})])
        reply = script[0] if len(script) == 1 else script.pop(0)
        if self.withholds:
            self.withheld.append(release := asyncio.Event())
            await release.wait()
        await asyncio.sleep(reply.delay)
        return web.Response(
            body=reply.raw(), status=reply.status, headers=reply.headers, content_type="application/json"
        )


@asynccontextmanager
async def price_server() -> AsyncGenerator[PriceServer]:
    """Serve on a free port of 127.0.0.1, an address that the test engine may call (D-47)."""
    server = PriceServer()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server._serve)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    server.base_url = f"http://{host}:{port}"
    try:
        yield server
    finally:
        for each in server.withheld:
            each.set()
        await runner.cleanup()
