"""A load client in its own process. It sends prepared requests over a few open connections.

    python -m bench.load PORT FILE CONNECTIONS PER_SECOND

Each connection sends a request, waits for the complete answer, and sends the next request. PER_SECOND limits the total
rate of the requests; 0 means no limit. The client prints the total seconds, the latency of each request in
milliseconds, and the number of answers by status.
"""

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile

import msgspec
import uvloop

LENGTH = b"content-length: "


@dataclass(frozen=True, slots=True)
class Answered:
    """Latencies in the order of the requests, and the number of answers by status."""

    seconds: float
    latencies_ms: Sequence[float]
    statuses: Mapping[str, int]


class Connection(asyncio.Protocol):
    """A connection that sends one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.WriteTransport | None = None
        self._received = bytearray()
        self._expected = 0
        self._answer: asyncio.Future[str] | None = None

    def connection_made(self, transport: asyncio.WriteTransport) -> None:  # type: ignore[override] - asyncio passes this type
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionResetError())

    async def ask(self, request: bytes) -> str:
        """Send a request, wait for the complete answer, and return its status. Raises ConnectionResetError."""
        assert self._transport is not None, "connected"
        if self._transport.is_closing():
            raise ConnectionResetError
        self._answer = asyncio.get_running_loop().create_future()
        self._received.clear()
        self._expected = 0
        self._transport.write(request)
        return await self._answer

    def data_received(self, data: bytes) -> None:
        """Collect bytes until headers and body are complete."""
        self._received += data
        if not self._expected:
            head = self._received.find(b"\r\n\r\n")
            if head < 0:
                return
            at = self._received.index(LENGTH) + len(LENGTH)
            self._expected = head + 4 + int(self._received[at : self._received.index(b"\r", at)])
        if len(self._received) >= self._expected:
            assert self._answer is not None, "a request is open"
            if not self._answer.done():  # a canceled request is done
                self._answer.set_result(self._received[9:12].decode())


async def send(requests: Sequence[bytes], *, port: int, connections: int, per_second: float) -> Answered:
    """Send all requests. A latency begins when the request is sent or, with `per_second`, when it is due."""
    loop = asyncio.get_running_loop()
    latencies_ms = [0.0] * len(requests)
    statuses: Counter[str] = Counter()
    numbered: Iterator[tuple[int, bytes]] = iter(enumerate(requests))
    opened = [(await loop.create_connection(Connection, "127.0.0.1", port))[1] for _ in range(connections)]
    began = time.perf_counter()

    async def ask(connection: Connection) -> None:
        for number, request in numbered:
            sent = time.perf_counter()
            if per_second:
                due = began + number / per_second
                await asyncio.sleep(max(due - sent, 0))
                sent = due
            statuses[await connection.ask(request)] += 1
            latencies_ms[number] = 1000 * (time.perf_counter() - sent)

    await asyncio.gather(*(ask(connection) for connection in opened))
    return Answered(time.perf_counter() - began, latencies_ms, statuses)


async def loaded(
    port: int, requests: Sequence[bytes], *, connections: int, per_second: float = 0
) -> Answered:
    """Send requests from a child process, so that the client does not slow this process down."""
    with NamedTemporaryFile(prefix="fatura-load-") as file:
        file.write(msgspec.msgpack.encode(requests))
        file.flush()
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.load", str(port), file.name, str(connections), str(per_second),
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        output, _ = await process.communicate()
    assert process.returncode == 0, "the load client failed"
    return Answered(**json.loads(output))


def main() -> None:
    port, path, connections, per_second = sys.argv[1:]
    requests = msgspec.msgpack.decode(Path(path).read_bytes(), type=list[bytes])
    answered = uvloop.run(
        send(requests, port=int(port), connections=int(connections), per_second=float(per_second))
    )
    print(json.dumps({name: getattr(answered, name) for name in Answered.__slots__}))


if __name__ == "__main__":
    main()
