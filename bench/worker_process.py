"""Start a worker as a child process. The worker prints `ready` and waits for a line on stdin."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from bench.servers import RING


@asynccontextmanager
async def ready(
    module: str, *words: str, within: Sequence[str] = (), niceness: int = 0
) -> AsyncGenerator[asyncio.subprocess.Process]:
    """Start a module and wait until it is ready. `within` is a command prefix, such as `ip netns exec NAME`."""
    process = await asyncio.create_subprocess_exec(
        *within, sys.executable, "-m", module, *words,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        env={"FATURA_SECRET_KEYS": RING, "FATURA_OUTBOUND_ALLOW": "127.0.0.1:1-65535", "PATH": os.environ["PATH"],
            "BENCH_NICENESS": str(niceness)},
    )  # fmt: skip
    assert process.stdout is not None, "it is a pipe"
    try:
        assert await process.stdout.readline() == b"ready\n", "the worker did not start"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
