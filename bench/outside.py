"""A fast gateway, price endpoint and webhook receiver in one process.

    python -m bench.outside [--delay 0.05] [--host 127.0.0.1] [--state paid]

The process prints its port. New charges have the state of `--state`, and every price is 100 cents. The process records
the requests that it answers, so that `bench.bare_client` can repeat them.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import aiohttp
import uvloop
from httptools import HttpRequestParser

CREATED_AT = PAID_AT = "2026-01-01T00:00:00+00:00"
LOOPBACK = "127.0.0.1"


@dataclass(slots=True)
class Journal:
    calls: list[tuple[str, str, bytes]] = field(default_factory=list[tuple[str, str, bytes]])
    charges: dict[str, bytes] = field(default_factory=dict[str, bytes])
    events: int = 0
    open: int = 0
    most_open: int = 0
    hangs: bool = False
    unanswered: int = 0


class Connection(asyncio.Protocol):
    def __init__(self, journal: Journal, *, delay: float, state: str) -> None:
        """A gateway call is answered after `delay` seconds. New charges have the state `state`."""
        self._journal = journal
        self._delay = delay
        self._state = state
        self._parser = HttpRequestParser(self)
        self._path = ""
        self._body = b""
        self._hung = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport
        self._journal.open += 1
        self._journal.most_open = max(self._journal.most_open, self._journal.open)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - required by the protocol
        self._journal.open -= 1
        self._journal.unanswered -= self._hung

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._path, self._body = url.decode(), b""

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        method = self._parser.get_method().decode()
        if self._path == "/seen":
            self._answer(
                json.dumps({"events": self._journal.events, "unanswered": self._journal.unanswered}).encode()
            )
        elif self._path == "/take":
            self._answer(self._take_calls())
        elif self._path in {"/hang", "/answer"}:
            self._journal.hangs = self._path == "/hang"
            self._answer(b"{}")
        elif self._journal.hangs:
            self._hung = True
            self._journal.unanswered += 1
        else:
            self._journal.calls.append((method, self._path, self._body))
            self._serve(method)

    def _serve(self, method: str) -> None:
        match self._path.split("/")[1]:
            case "webhook":
                self._journal.events += 1
                self._transport.write(b"HTTP/1.1 204 No Content\r\n\r\n")
            case "price":
                self._answer(b'{"amount": 100}')
            case _:
                charge = self._create() if method == "POST" else self._journal.charges[self._path]
                if self._delay:
                    asyncio.get_running_loop().call_later(self._delay, self._answer, charge)
                else:
                    self._answer(charge)

    def _create(self) -> bytes:
        """Create a charge whose id is the invoice id and the attempt's number. A repeat returns an equal charge."""
        request = json.loads(self._body)
        charge_id = f"{request['invoiceId']}-{request['attempt']}"
        charge = {
            "charge_id": charge_id,
            "invoice_id": request["invoiceId"],
            "attempt": request["attempt"],
            "state": self._state,
            "amount_cents": request["amountCents"],
            "paid_at": PAID_AT if self._state == "paid" else None,
            "created_at": CREATED_AT,
        }
        self._journal.charges[f"/charges/{charge_id}"] = encoded = json.dumps(charge).encode()
        return encoded

    def _answer(self, body: bytes) -> None:
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        self._transport.write(head.encode() + body)

    def _take_calls(self) -> bytes:
        """Return and clear the recorded requests and the maximum of open connections. Clear the count of events."""
        journal = self._journal
        calls = [(method, path, body.decode()) for method, path, body in journal.calls]
        recorded = {"mostOpen": journal.most_open, "calls": calls}
        journal.calls.clear()
        journal.events, journal.most_open = 0, journal.open
        return json.dumps(recorded).encode()


async def serve(*, delay: float, host: str, state: str) -> None:
    make = partial(Connection, Journal(), delay=delay, state=state)
    server = await asyncio.get_running_loop().create_server(make, host, 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()


@dataclass(frozen=True, slots=True)
class RecordedCalls:
    calls: list[tuple[str, str, str]]
    most_open: int


@dataclass(frozen=True, slots=True)
class GatewayProcess:
    port: int

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    async def events(self) -> int:
        return (await self._get("/seen"))["events"]

    async def unanswered(self) -> int:
        """Return the number of open calls that the gateway leaves unanswered."""
        return (await self._get("/seen"))["unanswered"]

    @asynccontextmanager
    async def hanging(self) -> AsyncGenerator[None]:
        """Leave all calls unanswered that arrive before the end of the block."""
        await self._get("/hang")
        try:
            yield
        finally:
            await self._get("/answer")

    async def take_calls(self) -> RecordedCalls:
        """Return and clear the recorded requests and the count of events. Charges are kept."""
        recorded = await self._get("/take")
        return RecordedCalls([tuple(each) for each in recorded["calls"]], recorded["mostOpen"])

    async def _get(self, path: str) -> Any:
        async with aiohttp.ClientSession() as session, session.get(self.url + path) as answer:
            return await answer.json(content_type=None)


@asynccontextmanager
async def started(
    *, delay: float = 0, host: str = LOOPBACK, state: str = "paid"
) -> AsyncGenerator[GatewayProcess]:
    words = ["--delay", str(delay), "--host", host, "--state", state]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.outside", *words, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None, "it is a pipe"
    try:
        yield GatewayProcess(int(await process.stdout.readline()))
    finally:
        process.terminate()
        await process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--delay", type=float, default=0)
    parser.add_argument("--host", default=LOOPBACK)
    parser.add_argument("--state", default="paid")
    options: Any = parser.parse_args()
    uvloop.run(serve(delay=options.delay, host=options.host, state=options.state))


if __name__ == "__main__":
    main()
