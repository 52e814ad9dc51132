"""Run the example merchant as a child process."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import fatura

PROGRAM = Path("examples/merchant/app.py")
START_WITHIN_SECONDS = 20


def find_program() -> Path:
    """Return the example's path: inside the installed package, or at the top of a checkout."""
    package = Path(fatura.__file__).resolve().parent
    installed = package / PROGRAM
    return installed if installed.exists() else package.parents[1] / PROGRAM


@asynccontextmanager
async def example_merchant(secret: str) -> AsyncGenerator[str]:
    """Run the example on a free local port with an integration secret, and yield its URL."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(find_program()),
        "--port",
        "0",
        "--until-stdin-closes",
        env={**os.environ, "FATURA_INTEGRATION_SECRET": secret},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(START_WITHIN_SECONDS):
            address = (await process.stdout.readline()).decode().strip()
        assert address, "the example merchant did not start"
        yield address
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
