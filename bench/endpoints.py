"""A merchant's server for the measurements: prices after a delay, webhooks at once; started as a process of its own.

    python -m bench.endpoints --delay 8

Prints its port. POST /price answers `{"amount": 100}`; POST /webhook answers 204; GET /seen tells how many price calls
are and were open at once, and when (CLOCK_MONOTONIC, which all processes share) each call and event arrived.
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
    """What arrived, and how it is answered."""

    def __init__(self, delay: float) -> None:
        """Answer prices after `delay` seconds."""
        self._delay = delay
        self._open = self._most_open = self._answered = 0
        self._prices: dict[str, float] = {}
        self._events: dict[str, float] = {}

    async def price(self, request: web.Request) -> web.Response:
        """Answer a price call, late."""
        asked = json.loads(await request.read())
        self._prices[asked["subscription"]["externalRef"]] = time.monotonic()
        self._open += 1
        self._most_open = max(self._most_open, self._open)
        try:
            await asyncio.sleep(self._delay)
        finally:
            self._open -= 1
        self._answered += 1
        return web.json_response({"amount": 100})

    async def webhook(self, request: web.Request) -> web.Response:
        """Take an event."""
        event = json.loads(await request.read())
        if event["type"] == "invoice.ready":
            self._events[event["data"]["invoice"]["subscriptionId"]] = time.monotonic()
        return web.Response(status=204)

    async def seen(self, _request: web.Request) -> web.Response:
        """Tell what arrived so far."""
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
    """Serve on a free port until the process is ended."""
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
    """Start the program as a process and yield its base URL."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.endpoints", "--delay", str(delay), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None, "asked for"
    try:
        yield f"http://127.0.0.1:{int(await process.stdout.readline())}"
    finally:
        process.terminate()
        await process.wait()


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the delay and serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--delay", type=float, default=0)
    options: Any = parser.parse_args(arguments)
    asyncio.run(serve(options.delay))


if __name__ == "__main__":
    main()
