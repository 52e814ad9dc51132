"""A bare aiohttp loop that repeats the HTTP calls of the engine, to compare its speed with the engine's.

    python -m bench.bare_client URL FILE CONNECTIONS

FILE contains the calls as JSON. The program prints `ready`, waits for a line on stdin, makes the calls, and prints the
time in seconds. It signs events and price calls as the engine does. It reads each answer completely and discards it.
"""

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import uvloop

from bench.outside import RecordedCalls
from fatura import signature
from fatura.outbound.webhook import WebhookMessage, headers_of

SECRET = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="  # noqa: S105 - not a real secret
Call = tuple[str, str, str]


async def call_all(url: str, calls: Sequence[Call], *, connections: int) -> float:
    """Make all calls over `connections` connections. Return the elapsed seconds."""
    left = iter(calls)
    connector = aiohttp.TCPConnector(limit=connections)
    async with aiohttp.ClientSession(connector=connector) as session:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        began = time.perf_counter()
        await asyncio.gather(*(_ask(session, url, left) for _ in range(connections)))
        return time.perf_counter() - began


async def _ask(session: aiohttp.ClientSession, url: str, left: Iterator[Call]) -> None:
    for method, path, text in left:
        body = text.encode()
        async with session.request(method, url + path, data=body, headers=_headers(path, body)) as answer:
            assert answer.ok, answer.status
            await answer.read()


def _headers(path: str, body: bytes) -> Mapping[str, str]:
    timestamp = int(time.time())
    match path.split("/")[1]:
        case "webhook":
            event = json.loads(body)
            message = WebhookMessage(event["id"], event["type"], 1, body)
            return headers_of(message, secrets=[SECRET], timestamp=timestamp)
        case "price":
            signed = signature.sign(body, [SECRET], timestamp=timestamp)
            return {"Content-Type": "application/json", signature.HEADER: signed}
        case _:
            return {"Content-Type": "application/json"}


async def repeat_calls(url: str, recorded: RecordedCalls) -> float:
    """Repeat recorded calls from a child process, over as many connections as the engine used. Return the seconds."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(recorded.calls, file)
        file.flush()
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.bare_client", url, file.name, str(recorded.most_open),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout is not None, "it is a pipe"
        assert await process.stdout.readline() == b"ready\n", "the bare client did not start"
        output, _ = await process.communicate(b"begin\n")
    assert process.returncode == 0, "the bare client failed"
    return float(output)


def main() -> None:
    url, name, connections = sys.argv[1:]
    calls: Any = json.loads(Path(name).read_text())
    print(uvloop.run(call_all(url, calls, connections=int(connections))))


if __name__ == "__main__":
    main()
