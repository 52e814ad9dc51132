"""A merchant's server in its own process. It answers price calls after a delay, and events immediately.

    python -m bench.endpoints --delay 8

The process prints its port. POST /price answers `{"amount": 100}`, and POST /webhook answers 204. GET /seen returns the
current and the maximum number of open price calls, the number of answered price calls, and the arrival times of price
calls and `invoice.ready` events by subscription. The times are read from CLOCK_MONOTONIC, so that other processes can
compare them with their own times.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web


class Endpoints:
    def __init__(self, delay: float) -> None:
        """`delay` is the number of seconds before a price call is answered."""
        self._delay = delay
        self._open = self._most_open = self._answered = 0
        self._prices: dict[str, float] = {}
        self._events: dict[str, float] = {}

    async def price(self, request: web.Request) -> web.Response:
        call = json.loads(await request.read())
        self._prices[call["subscription"]["externalRef"]] = time.monotonic()
        self._open += 1
        self._most_open = max(self._most_open, self._open)
        try:
            await asyncio.sleep(self._delay)
        finally:
            self._open -= 1
        self._answered += 1
        return web.json_response({"amount": 100})

    async def webhook(self, request: web.Request) -> web.Response:
        event = json.loads(await request.read())
        if event["type"] == "invoice.ready":
            self._events[event["data"]["invoice"]["subscriptionId"]] = time.monotonic()
        return web.Response(status=204)

    async def seen(self, _request: web.Request) -> web.Response:
        return web.json_response(
            {
                "open": self._open,
                "mostOpen": self._most_open,
                "answered": self._answered,
                "prices": self._prices,
                "events": self._events,
            }
        )


async def serve(delay: float) -> None:
    endpoints = Endpoints(delay)
    app = web.Application()
    app.router.add_post("/price", endpoints.price)
    app.router.add_post("/webhook", endpoints.webhook)
    app.router.add_get("/seen", endpoints.seen)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=4096).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


@asynccontextmanager
async def started(*, delay: float) -> AsyncGenerator[str]:
    """Start this program as a child process, and yield its base URL."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.endpoints", "--delay", str(delay), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None, "it is a pipe"
    try:
        yield f"http://127.0.0.1:{int(await process.stdout.readline())}"
    finally:
        process.terminate()
        await process.wait()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--delay", type=float, default=0)
    options: Any = parser.parse_args(arguments)
    asyncio.run(serve(options.delay))


if __name__ == "__main__":
    main()
