"""The test gateways and merchants of many trials in one process. Each trial has its own clock, journal and faults.

`python -m tests.faults.crashes.external FOLDER` prints its URL, and serves `/{trial}/...` until its stdin closes.
"""

import asyncio
import os
import signal
import sys
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

from aiohttp import web

from tests.faults import clock
from tests.faults.clock import FastClock
from tests.faults.external import ROUTES, GatewayAndMerchant, serve
from tests.faults.gateway import faults

CLOCK_FILE = "clock"
FAULTS_FILE = "faults"
KILL_FILE = "kill"
"""Names of files in a trial's folder. If the file `kill` exists, it contains the id of a process.

The external services kill this process before they answer the trial's next call.
"""
KEPT = 32
"""Maximum number of open journals. The least recently used journal is closed first."""


class TrialClock:
    """A clock that reads its time from a file in the trial's folder. The trial's processes change this file."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / CLOCK_FILE

    def _read(self) -> FastClock:
        return clock.read(self._file.read_text())

    def __call__(self) -> object:
        return self._read()()

    def real_seconds(self, seconds: float) -> float:
        return self._read().real_seconds(seconds)


class TrialRouter:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: OrderedDict[str, GatewayAndMerchant] = OrderedDict()

    def application(self) -> web.Application:
        app = web.Application()
        for method, path, name in ROUTES:
            app.router.add_route(method, "/{trial}" + path, self._taking(name))
        return app

    def _of(self, trial: str) -> GatewayAndMerchant:
        if trial not in self._known:
            folder = self._folder / trial
            chosen = faults.read((folder / FAULTS_FILE).read_text())
            self._known[trial] = GatewayAndMerchant(folder, cast("FastClock", TrialClock(folder)), chosen)
        self._known.move_to_end(trial)
        if len(self._known) > KEPT:
            _, oldest = self._known.popitem(last=False)
            oldest.journal.close()
        return self._known[trial]

    def _taking(self, name: str) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def take(request: web.Request) -> web.StreamResponse:
            trial = request.match_info["trial"]
            response: web.Response = await getattr(self._of(trial), name)(request)
            kill = self._folder / trial / KILL_FILE
            if kill.exists():
                caller = int(kill.read_text())
                kill.unlink()
                os.kill(caller, signal.SIGKILL)
            return response

        return take


if __name__ == "__main__":
    asyncio.run(serve(TrialRouter(Path(sys.argv[1])).application()))
