"""Measure how long a block of code stalls other tasks and how much memory it adds, and deny new file descriptors."""

import asyncio
import gc
import resource
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(slots=True)
class ResourceUse:
    """The measured costs. `stall_seconds` counts only CPU time of this thread."""

    seconds: float = 0.0
    stall_seconds: float = 0.0
    grown_mb: float = 0.0


@asynccontextmanager
async def measure() -> AsyncGenerator[ResourceUse]:
    """Measure the longest stall of other tasks during a block, and the growth of memory use.

    Garbage collection would also stall tasks, while it visits the objects that earlier tests left in memory.
    `gc.freeze` exempts these objects from collection.
    """
    gc.collect()
    gc.freeze()
    measured = ResourceUse()
    started, before = time.monotonic(), _rss_mb()

    async def watch() -> None:
        while True:
            turn = time.thread_time()
            await asyncio.sleep(0.005)
            measured.stall_seconds = max(measured.stall_seconds, time.thread_time() - turn)
            measured.grown_mb = max(measured.grown_mb, _rss_mb() - before)

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0)
    try:
        yield measured
    finally:
        measured.seconds = time.monotonic() - started
        watching.cancel()
        gc.unfreeze()


def _rss_mb() -> float:
    try:
        return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * resource.getpagesize() / 1e6
    except FileNotFoundError:  # other systems than Linux report only the peak since the process started
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


@contextmanager
def no_free_descriptors() -> Generator[None]:
    """Prevent this process from opening files and sockets during the block. Open files and sockets still work."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
