"""A worker of a measurement as a process of its own, which says `ready` and waits for a line on its input."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from bench.servers import RING


@asynccontextmanager
async def ready(
    module: str, *words: str, within: Sequence[str] = ()
) -> AsyncGenerator[asyncio.subprocess.Process]:
    """Start a module, ready to be told to go; `within` is a command to start it with, if any."""
    process = await asyncio.create_subprocess_exec(
        *within, sys.executable, "-m", module, *words,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        env={"FATURA_SECRET_KEYS": RING, "FATURA_OUTBOUND_ALLOW": "127.0.0.1", "PATH": os.environ["PATH"]},
    )  # fmt: skip
    assert process.stdout is not None, "asked for"
    try:
        assert await process.stdout.readline() == b"ready\n", "the worker did not start"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
