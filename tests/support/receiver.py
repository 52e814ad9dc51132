"""A merchant's webhook endpoint on 127.0.0.1. It records requests and sends scripted responses."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web
from multidict import CIMultiDictProxy

from tests.support.world import Json


@dataclass(frozen=True, slots=True)
class Received:
    body: bytes
    headers: CIMultiDictProxy[str]

    @property
    def json(self) -> Json:
        return json.loads(self.body)

    @property
    def sequence(self) -> int:
        return self.json["sequence"]


@dataclass(frozen=True, slots=True)
class Reply:
    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


Answerer = Callable[[Received], Reply | Awaitable[Reply]]
OK = Reply()


def always(status: int, body: bytes = b"", **headers: str) -> Answerer:
    """Return an answerer that always sends the same response. `retry_after="5"` adds the header `retry-after: 5`."""
    reply = Reply(status, body, {name.replace("_", "-"): value for name, value in headers.items()})
    return lambda _: reply


class Receiver:
    """The endpoint: the received requests, the scripted response, and the highest number of concurrent requests."""

    def __init__(self) -> None:
        self.url = ""
        self.received: list[Received] = []
        self.answer: Answerer = always(200)
        self.most_at_once = 0
        self._at_once = 0

    @property
    def sequences(self) -> list[int]:
        """The event numbers of all received requests, in order of arrival."""
        return [each.sequence for each in self.received]

    def forget(self) -> None:
        self.received.clear()
        self.most_at_once = 0

    async def take(self, request: web.Request) -> web.Response:
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            received = Received(await request.read(), request.headers)
            self.received.append(received)
            reply = self.answer(received)
            if not isinstance(reply, Reply):
                reply = await reply
        finally:
            self._at_once -= 1
        return web.Response(status=reply.status, body=reply.body, headers=reply.headers)


@asynccontextmanager
async def open_receiver() -> AsyncGenerator[Receiver]:
    """Listen on a free port of 127.0.0.1."""
    receiver = Receiver()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", receiver.take)
    runner = web.AppRunner(app, shutdown_timeout=0, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}/events"
        yield receiver
    finally:
        await runner.cleanup()


async def hang(_: Received) -> Reply:
    """Never respond."""
    await asyncio.Event().wait()
    raise AssertionError
