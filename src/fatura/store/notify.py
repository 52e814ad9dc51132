"""Telling workers that there is work, and hearing it: hints that make the lanes prompt; the sweep is the truth."""

import asyncio
from collections.abc import Callable

import asyncpg

from fatura.observability import log
from fatura.store import multi_host
from fatura.store.db import GONE, Database, DatabaseUnavailableError

CHANNEL = "fatura_work"
GATHER_SECONDS = 0.01
"""How long hints are gathered, so that a burst of requests sends one."""
RECONNECT_SECONDS = 1


class Notifier:
    """Sends hints from a process that has no lanes of its own; losing one costs a sweep's delay."""

    def __init__(self, db: Database) -> None:
        """Keep the pool that hints are sent through."""
        self._db = db
        self._lanes: set[str] = set()
        self._sending: asyncio.Task[None] | None = None

    def __call__(self, lane: str) -> None:
        """Hint that a lane has work."""
        self._lanes.add(lane)
        if self._sending is None:
            self._sending = asyncio.get_running_loop().create_task(self._send())

    async def _send(self) -> None:
        await asyncio.sleep(GATHER_SECONDS)
        lanes, self._lanes, self._sending = ",".join(sorted(self._lanes)), set(), None
        try:
            await self._db.notify(lanes)
        except DatabaseUnavailableError as error:
            log.warning("work.hint_lost", lanes=lanes, error=str(error))


async def listen(url: str, hear: Callable[[str], None]) -> None:
    """Call `hear` with each lane that has work, for ever; reconnects by itself. Wants a direct connection."""
    while True:
        try:
            await _listen_once(url, hear)
        except (*GONE, asyncpg.PostgresError) as error:
            log.warning("work.not_listening", error=str(error))
        await asyncio.sleep(RECONNECT_SECONDS)


async def _listen_once(url: str, hear: Callable[[str], None]) -> None:
    connection: asyncpg.Connection[asyncpg.Record] = await multi_host.connect(
        url, server_settings={"application_name": "fatura listen"}
    )
    gone = asyncio.Event()
    connection.add_termination_listener(lambda _: gone.set())

    def on_notice(_connection: object, _pid: int, _channel: str, payload: object) -> None:
        for lane in str(payload).split(","):
            hear(lane)

    try:
        await connection.add_listener(CHANNEL, on_notice)
        await gone.wait()
    finally:
        connection.terminate()
