"""Notify workers of the lanes that have work, by PostgreSQL's LISTEN and NOTIFY.

Lanes also poll the database, so a lost notification only delays the work.
"""

import asyncio
from collections.abc import Callable

import asyncpg

from fatura.observability import log
from fatura.store import multi_host
from fatura.store.db import Database, DatabaseUnavailableError
from fatura.store.transaction_end import UNAVAILABLE_ERRORS, unavailable

CHANNEL = "fatura_work"
GATHER_SECONDS = 0.01
"""Delay before a notification is sent, so that one notification names the lanes of all requests in a burst."""
RECONNECT_SECONDS = 1


class Notifier:
    """Notifies the workers of all processes. Call it with the name of a lane that has work."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._lanes: set[str] = set()
        self._sending: asyncio.Task[None] | None = None

    def __call__(self, lane: str) -> None:
        self._lanes.add(lane)
        if self._sending is None:
            self._sending = asyncio.get_running_loop().create_task(self._send())

    async def finish(self) -> None:
        """Wait until all notifications are sent or lost."""
        if self._sending is not None:
            await asyncio.wait([self._sending])

    async def _send(self) -> None:
        try:
            while self._lanes:
                await asyncio.sleep(GATHER_SECONDS)
                lanes, self._lanes = ",".join(sorted(self._lanes)), set()
                await self._notify(lanes)
        finally:
            self._sending = None

    async def _notify(self, lanes: str) -> None:
        try:
            await self._db.notify(lanes)
        except DatabaseUnavailableError as error:
            log.warning("work.notification_lost", lanes=lanes, error=error)


async def listen(url: str, notify: Callable[[str], None]) -> None:
    """Call `notify` with each notified lane until cancelled; reconnect after failures. Do not pass a pooler's URL."""
    while True:
        try:
            await _listen_once(url, notify)
        except (*UNAVAILABLE_ERRORS, asyncpg.PostgresError) as error:
            log.warning("work.not_listening", error=unavailable(error))
        await asyncio.sleep(RECONNECT_SECONDS)


async def _listen_once(url: str, notify: Callable[[str], None]) -> None:
    connection: asyncpg.Connection[asyncpg.Record] = await multi_host.connect(
        url, server_settings={"application_name": "fatura listen"}
    )
    closed = asyncio.Event()
    connection.add_termination_listener(lambda _: closed.set())

    def on_notification(_connection: object, _pid: int, _channel: str, payload: object) -> None:
        for lane in str(payload).split(","):
            notify(lane)

    try:
        await connection.add_listener(CHANNEL, on_notification)
        await closed.wait()
    finally:
        connection.terminate()
