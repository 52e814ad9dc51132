"""Measure the API over HTTP, compared with a bare ASGI application that sends the same SQL and returns the same bytes.

Each side is a process with its own copy of the same database. A load client sends the same requests to both sides, over
eight open connections. Before the measurement, the engine answers these requests on a third copy. The engine's
statements, values and transactions are recorded, and the bare application replays them.
"""

import asyncio
import statistics
import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path

from bench.api_process import Server, bare_api, fatura_api
from bench.api_requests import ENROLL, PAGE, READ, VALUE, ApiRequest, Stage, filled
from bench.frame import Figure, Measured, Options
from bench.load import Answered, loaded
from bench.recording import keep, record
from bench.servers import cloned, server

ROUNDS = 5
CONNECTIONS = 8
LEAST_THROUGHPUT = 0.7
MOST_P99 = 1.5
RIVAL = "a bare ASGI application with the same SQL"
WARM_UP = 40


@dataclass(slots=True)
class Side:
    """The API or the bare application, with its results by kind of request."""

    server: Server
    per_second: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    p50_ms: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    p99_ms: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    processor_us: dict[str, list[float]] = field(default_factory=dict[str, list[float]])

    async def send(self, requests: Sequence[bytes]) -> Answered:
        """Send the requests. Each connection sends its next request as soon as the previous one is answered."""
        answered = await loaded(self.server.port, requests, connections=CONNECTIONS)
        assert set(answered.statuses) <= {"200", "201"}, answered.statuses
        return answered

    async def measure_round(self, kind: str, requests: Sequence[bytes]) -> None:
        before = self.server.processor_seconds()
        answered = await self.send(requests)
        spent = self.server.processor_seconds() - before
        self.per_second.setdefault(kind, []).append(len(requests) / answered.seconds)
        self.p50_ms.setdefault(kind, []).append(statistics.median(answered.latencies_ms))
        self.p99_ms.setdefault(kind, []).append(statistics.quantiles(answered.latencies_ms, n=100)[-1])
        self.processor_us.setdefault(kind, []).append(1e6 * spent / len(requests))

    def last_round(self, kind: str) -> str:
        return (
            f"{self.per_second[kind][-1]:,.0f}/s, p99 {self.p99_ms[kind][-1]:.1f} ms, "
            f"{self.processor_us[kind][-1]:,.0f} us of a processor each"
        )


def run(options: Options) -> Measured:
    reads, writes = options.pick(short=800, full=8000), options.pick(short=200, full=2000)
    counts = {READ: reads, PAGE: reads, ENROLL: writes, VALUE: writes}
    with server() as url:
        return asyncio.run(_run(options, url, counts))


async def _run(options: Options, server_url: str, counts: Mapping[str, int]) -> Measured:
    stage = await filled(server_url, "api", writes=WARM_UP + ROUNDS * counts[VALUE])
    requests = {
        kind: list(islice(cycle(chosen), WARM_UP + ROUNDS * counts[kind]))
        for kind, chosen in stage.requests.items()
    }
    async with _sides(options, server_url, stage) as sides:
        for chosen in requests.values():
            for side in sides:
                await side.send(_raw(stage, chosen[:WARM_UP]))
        for number in range(ROUNDS):
            for kind, count in counts.items():
                since = WARM_UP + number * count
                raw = _raw(stage, requests[kind][since : since + count])
                for side in sides if number % 2 else reversed(sides):
                    await side.measure_round(kind, raw)
                ours, theirs = sides
                options.log(
                    f"{kind}, round {number + 1}: {ours.last_round(kind)}; bare: {theirs.last_round(kind)}"
                )
    return _measured(*sides, kinds=counts)


def _raw(stage: Stage, chosen: Sequence[ApiRequest]) -> list[bytes]:
    return [each.on_the_wire(stage.account) for each in chosen]


@asynccontextmanager
async def _sides(options: Options, server_url: str, stage: Stage) -> AsyncGenerator[tuple[Side, Side]]:
    """Record the engine's SQL on a temporary copy of the database. Then start each application on another copy."""
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="fatura-bench-"))
        recorded = Path(folder) / "recording"
        async with cloned(server_url, "api", apart="recorded") as url:
            chosen = [each for kind in stage.requests.values() for each in kind]
            keep(await record(url, stage.account, chosen), recorded)
        options.log("recorded the SQL of all requests")
        ours = await stack.enter_async_context(cloned(server_url, "api", apart="ours"))
        theirs = await stack.enter_async_context(cloned(server_url, "api", apart="theirs"))
        yield (
            Side(await stack.enter_async_context(fatura_api(ours))),
            Side(await stack.enter_async_context(bare_api(theirs, recorded))),
        )


def _measured(ours: Side, theirs: Side, *, kinds: Mapping[str, int]) -> Measured:
    measured = Measured()
    for kind in kinds:
        measured.figures += [
            Figure(
                4, kind, "requests/s", RIVAL, ours.per_second[kind], theirs.per_second[kind],
                at_least=LEAST_THROUGHPUT,
            ),
            Figure(4, f"{kind}, p50", "ms", RIVAL, ours.p50_ms[kind], theirs.p50_ms[kind]),
            Figure(4, f"{kind}, p99", "ms", RIVAL, ours.p99_ms[kind], theirs.p99_ms[kind], at_most=MOST_P99),
        ]  # fmt: skip
    return measured
