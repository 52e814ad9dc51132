"""A simulated connection pool on a real PostgreSQL. Every statement is a step (see `schedule`), and may fail.

Each transaction of a simulated connection uses a real connection. If the simulated connection is lost, its transaction
is rolled back. The real connection stays open, and a later transaction uses it.
"""

import asyncio
import re
from datetime import datetime, timedelta
from functools import cache, partial
from typing import Any

import asyncpg

from fatura.store.connection_shares import ConnectionShares
from fatura.store.db import Database, DatabaseUnavailableError, Tx
from fatura.store.ping import Ping
from fatura.store.pool import PLANNING, Opening
from tests.faults.simulator.faults import COMMIT, STATEMENT, Faults
from tests.faults.simulator.machines import HOST
from tests.faults.simulator.schedule import Schedule

CONNECTION: dict[str, Any] = {
    "server_settings": {
        "application_name": "fatura",
        "timezone": "UTC",
        "lock_timeout": "0",  # no limit: the schedule ends lock waits itself
        **PLANNING,
    },
    "statement_cache_size": 1000,
    "max_cached_statement_lifetime": 0,  # no limit: asyncpg would measure it in real seconds
}
"""Options of each connection."""
_AWAY = "the database is unavailable"
UNLIMITED = 1_000
"""A pool size so large that only the simulated pool limits connections."""
SHOWN_CHARS = 60
_LOCKS = re.compile(r"\b(INSERT|UPDATE|DELETE|FOR SHARE|FOR KEY SHARE)\b")


class ConnectionStore:
    """Connections to the world's database.

    If `goes_away_for` is set, an outage of this many seconds starts at the next use of a connection. The outage ends at
    `away_until`.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.goes_away_for = 0
        self.away_until: datetime | None = None
        self.lent = 0
        self._idle: list[asyncpg.Connection[Any]] = []
        self._all: list[asyncpg.Connection[Any]] = []

    async def take(self) -> "asyncpg.Connection[Any]":
        self.lent += 1
        if self._idle:
            return self._idle.pop()
        connection = await asyncpg.connect(self.url, **CONNECTION)
        self._all.append(connection)
        return connection

    def put(self, connection: "asyncpg.Connection[Any]") -> None:
        """Take back a connection that `take` lent. Its transaction must have ended."""
        self.lent -= 1
        self._idle.append(connection)

    def close(self) -> None:
        for each in self._all:
            each.terminate()


class Session:
    """A simulated connection, with the asyncpg methods that `store.db` uses.

    It uses one real connection per transaction.
    """

    def __init__(self, pool: "SimPool") -> None:
        self._pool = pool
        self._real: asyncpg.Connection[Any] | None = None
        self._begin: str | None = None
        self._lost = False
        self._failed = False
        self.is_busy = False

    async def execute(self, sql: str, *values: object) -> str:
        """Run a statement. Send BEGIN only with the next statement, because BEGIN has no effect by itself."""
        if self._lost:
            raise asyncpg.InterfaceError("connection is closed")
        if sql.startswith("BEGIN"):
            self._begin = sql
            return "BEGIN"
        if sql in {"COMMIT", "ROLLBACK"} and self._real is None:
            self._begin = None
            return sql
        return await self._step("execute", sql, values)

    async def fetch(self, sql: str, *values: object) -> Any:
        return await self._step("fetch", sql, values)

    async def fetchrow(self, sql: str, *values: object) -> Any:
        return await self._step("fetchrow", sql, values)

    async def fetchval(self, sql: str, *values: object) -> Any:
        return await self._step("fetchval", sql, values)

    def add_log_listener(self, _listener: object) -> None:
        """Do nothing. The engine listens for warnings about a standby, but this server has no standby."""

    def remove_log_listener(self, _listener: object) -> None:
        """Do nothing, like `add_log_listener`."""

    def terminate(self) -> None:
        self._lost = True

    async def end(self) -> None:
        """End the session as PostgreSQL does when its client disconnects."""
        self._lost, self._begin = True, None
        if self._real is not None:
            real, self._real = self._real, None
            await real.execute("ROLLBACK")
            self._pool.schedule.locks_were_freed = True
            self._pool.connections.put(real)

    async def release(self) -> None:
        if self._real is not None:
            await self._pool.schedule.io("release", self.end)

    async def _step(self, method: str, sql: str, values: tuple[object, ...]) -> Any:
        if self._lost:
            raise asyncpg.InterfaceError("connection is closed")
        label, may_wait = _known(sql)
        work = partial(self._run, method, sql, values)
        return await self._pool.schedule.io(label, work, pid=self._pid if may_wait else None)

    def _pid(self) -> int | None:
        return self._real.get_server_pid() if self._real is not None else None

    async def _run(self, method: str, sql: str, values: tuple[object, ...]) -> Any:
        pool = self._pool
        if self._lost:  # PostgreSQL has ended the session while the process was frozen
            raise asyncpg.ConnectionDoesNotExistError(
                "terminating connection due to idle-in-transaction timeout"
            )
        if pool.is_away():
            await self.end()
            raise asyncpg.ConnectionDoesNotExistError(_AWAY)
        ends, undoes = sql in {"COMMIT", "ROLLBACK"}, sql.startswith("ROLLBACK")
        if self._failed and not (ends or undoes):
            raise asyncpg.InFailedSQLTransactionError("current transaction is aborted")
        fault = None if undoes else pool.faults.draw(COMMIT if sql == "COMMIT" else STATEMENT)
        if fault is not None:
            pool.schedule.trace.add(fault)
            await self._fail(fault, sql)
        if self._real is None:
            self._real = await pool.connections.take()
        if self._begin is not None:
            begin, self._begin = self._begin, None
            await self._real.execute(begin)
        self.is_busy = True
        try:
            answer = await getattr(self._real, method)("ROLLBACK" if ends and self._failed else sql, *values)
        except asyncpg.PostgresError:
            self._failed = pool.schedule.locks_were_freed = True
            raise
        finally:
            self.is_busy = False
        if ends or undoes:
            self._failed = False
        if ends:
            pool.schedule.locks_were_freed = True
            pool.connections.put(self._real)
            self._real = None
        return answer

    async def _fail(self, fault: str, sql: str) -> None:
        """Raise the exception that asyncpg raises for a fault. If only the answer of a COMMIT is lost, commit first."""
        match fault:
            case "statement: lock time-out":
                self._failed = True
                raise asyncpg.LockNotAvailableError("canceling statement due to lock timeout")
            case "statement: deadlock":
                self._failed = True
                raise asyncpg.DeadlockDetectedError("deadlock detected")
            case "commit: done, answer lost" if self._real is not None and not self._failed:
                await self._real.execute(sql)
            case _:
                pass
        await self.end()
        raise asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation")


@cache
def _known(sql: str) -> tuple[str, bool]:
    """Return the statement's label in the trace, and whether the statement may wait for a lock."""
    return " ".join(sql.split())[:SHOWN_CHARS], _LOCKS.search(sql) is not None


class SimPool:
    """The connection pool of one engine process."""

    def __init__(
        self, schedule: Schedule, connections: ConnectionStore, faults: Faults, *, size: int
    ) -> None:
        self.schedule = schedule
        self.connections = connections
        self.faults = faults
        self._places = asyncio.Semaphore(size)
        self._open: list[Session] = []

    def is_away(self) -> bool:
        """Start the outage if `goes_away_for` is set. Return whether the database is unavailable.

        If it is unavailable, count this as a fault that occurred.
        """
        connections, now = self.connections, self.schedule.now
        if connections.goes_away_for:
            connections.away_until, connections.goes_away_for = (
                now + timedelta(seconds=connections.goes_away_for),
                0,
            )
        away = connections.away_until is not None and now < connections.away_until
        if away:
            self.faults.count("database: away")
        return away

    async def acquire(self) -> Session:
        # a task of a dead machine must not take a connection of the machine that has replaced it
        await self.schedule.live_only()
        await self._places.acquire()
        session = Session(self)
        self._open.append(session)
        return session

    async def release(self, session: Session) -> None:
        self._open.remove(session)
        try:
            if HOST.get().alive:
                await session.release()
        finally:
            self._places.release()

    async def end_sessions(self) -> None:
        for each in list(self._open):
            await each.end()

    async def end_idle_sessions(self) -> None:
        """End all sessions that execute no statement. A session whose statement waits for a lock is not ended."""
        for each in list(self._open):
            if not each.is_busy:
                await each.end()


class SimDatabase(Database):
    """The engine's `Database` on a simulated pool. Its `ping` returns the simulated time."""

    __slots__ = ("_sim",)

    def __init__(self, pool: SimPool, limit: asyncio.Semaphore | None = None) -> None:
        super().__init__(
            pool, Opening(), Ping(pool.connections.url, pooler_url=None), ConnectionShares(UNLIMITED), limit
        )
        self._sim = pool

    def limited(self, limit: asyncio.Semaphore) -> "SimDatabase":
        return SimDatabase(self._sim, limit)

    async def clock_time(self, _tx: Tx, /) -> datetime:
        return self._sim.schedule.now

    async def ping(self) -> datetime:
        if self._sim.is_away():
            raise DatabaseUnavailableError(_AWAY)
        return self._sim.schedule.now
