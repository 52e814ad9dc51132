"""Start and stop the API processes that are measured, and read their CPU time."""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bench.servers import RING

READY_WITHIN_SECONDS = 30
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Server:
    """An API process that accepts connections on `port`."""

    port: int
    pid: int
    metrics_port: int = 0

    def processor_seconds(self) -> float:
        after_name = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(after_name[11]) + int(after_name[12])) / CLOCK_TICKS


@asynccontextmanager
async def fatura_api(url: str, *, limits: bool = False) -> AsyncGenerator[Server]:
    """Run `fatura api` with its default settings. If `limits` is false, there is no rate limit."""
    environment = {"FATURA_DATABASE_URL": url, "FATURA_SECRET_KEYS": RING}
    if not limits:
        environment["FATURA_RATE_LIMIT"] = "0"
    port, metrics_port = _free_port(), _free_port()
    words = (
        "fatura", "api", "--port", str(port), "--metrics-port", str(metrics_port), "--until-stdin-closes"
    )  # fmt: skip
    async with started(*words, port=port, environment=environment) as server:
        yield replace(server, metrics_port=metrics_port)


@asynccontextmanager
async def bare_api(url: str, recording: Path) -> AsyncGenerator[Server]:
    port = _free_port()
    words = ("bench.bare_api", url, str(recording), str(port))
    async with started(*words, port=port, environment={}) as server:
        yield server


@asynccontextmanager
async def started(*words: str, port: int, environment: Mapping[str, str]) -> AsyncGenerator[Server]:
    """Run a Python module that listens on a port, and discard its logs."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", *words, env={**os.environ, **environment},
        stdin=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        async with asyncio.timeout(READY_WITHIN_SECONDS):
            while not await _listens(port):
                assert process.returncode is None, f"{words[0]} ended"
                await asyncio.sleep(0.05)
        yield Server(port, process.pid)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]
