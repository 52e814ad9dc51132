"""Run a function until a signal arrives, and supervise child processes, which end when their parent ends."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence

from fatura.observability import log
from fatura.settings import Settings

RESTART_AFTER_SECONDS = 1
"""Pause before a child that ended is restarted."""
STOP_WITHIN_SECONDS = 30
"""Maximum time for a child to stop. It is longer than any external call, so the child can record all answers."""


def run_until_stopped(work: Callable[[asyncio.Event], Awaitable[None]], *, with_parent: bool = False) -> None:
    """Run `work(stop)`. SIGINT and SIGTERM set the event `stop`.

    If `with_parent` is true, the event is also set when stdin closes, which happens when the parent process ends.
    """

    async def main() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        if with_parent:
            loop.add_reader(sys.stdin.fileno(), _until_closed, stop)
        await work(stop)

    try:
        import uvloop  # noqa: PLC0415 - not available on every platform
    except ImportError:
        asyncio.run(main())
    else:
        uvloop.run(main())


async def run_until_set(stop: asyncio.Event, work: Callable[[], Awaitable[None]]) -> None:
    """Run `work`, and cancel it when `stop` is set. Raises what `work` raises."""
    working, stopping = asyncio.ensure_future(work()), asyncio.create_task(stop.wait())
    await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if working.done():
        working.result()
    else:
        working.cancel()
        await asyncio.wait({working})


def _until_closed(stop: asyncio.Event) -> None:
    if not os.read(sys.stdin.fileno(), 1):
        stop.set()
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())


class Child:
    """A `fatura` command as a child process, restarted when it ends."""

    def __init__(self, arguments: Sequence[str], *, settings: Settings) -> None:
        """Pass the log level, the allowed outbound hosts and the data folder of `settings` to the child."""
        self._environment = {
            **os.environ,
            "FATURA_LOG_LEVEL": settings.log_level,
            "FATURA_OUTBOUND_ALLOW": ",".join(map(str, settings.outbound_allow)),
        }
        self._arguments = [*arguments, "--data-dir", str(settings.data_dir), "--until-stdin-closes"]

    async def keep_running(self, stop: asyncio.Event) -> None:
        """Run the child, and restart it whenever it ends. When `stop` is set, stop the child."""
        name = self._arguments[0]
        while not stop.is_set():
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "fatura", *self._arguments, stdin=subprocess.PIPE, env=self._environment
            )
            ended, stopped = asyncio.create_task(process.wait()), asyncio.create_task(stop.wait())
            await asyncio.wait({ended, stopped}, return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
            if stop.is_set():
                await _end(process, ended)
                return
            log.error("process.ended", name=name, exit_code=process.returncode)
            await asyncio.sleep(RESTART_AFTER_SECONDS)


async def _end(process: asyncio.subprocess.Process, ended: asyncio.Task[int]) -> None:
    if process.returncode is None:
        process.terminate()
    try:
        async with asyncio.timeout(STOP_WITHIN_SECONDS):
            await ended
    except TimeoutError:
        process.kill()
        await process.wait()
