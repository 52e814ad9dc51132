"""Ask PostgreSQL for its time over a connection that no transaction uses, because the whole pool may be in use."""

from datetime import datetime
from typing import Any

import asyncpg

from fatura.shared_call import SharedCall
from fatura.store import multi_host
from fatura.store.transaction_end import UNAVAILABLE_ERRORS, unavailable

TIMEOUT_SECONDS = 1
"""Maximum wait for a connection, and maximum wait for an answer."""
_NAMES = {"application_name": "fatura ping", "timezone": "UTC"}


class Ping:
    """One connection to PostgreSQL, opened at the first query, and again if it was lost.

    Concurrent callers share one query, so many callers need no more connections than a single caller.
    """

    __slots__ = ("_connection", "_pooler_url", "_query", "_url")

    def __init__(self, url: str, *, pooler_url: str | None) -> None:
        self._url = url
        self._pooler_url = pooler_url
        self._connection: Any = None
        self._query = SharedCall[datetime](keep_seconds=0)

    async def time(self) -> datetime:
        """Return the time of the database. If there is a pooler, also check that the pooler accepts a connection.

        Raises DatabaseUnavailableError.
        """
        return await self._query.get(self._ask)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def _ask(self) -> datetime:
        try:
            if self._pooler_url is not None:
                (await multi_host.connect(self._pooler_url, timeout=TIMEOUT_SECONDS)).terminate()
            return await self._ask_postgres()
        except (*UNAVAILABLE_ERRORS, asyncpg.PostgresError) as error:
            self.close()
            raise unavailable(error) from error

    async def _ask_postgres(self) -> datetime:
        """Ask over the open connection. If it was lost, for example because PostgreSQL restarted, open a new one."""
        if self._connection is not None:
            try:
                return await self._clock_time()
            except TimeoutError:
                raise
            except (*UNAVAILABLE_ERRORS, asyncpg.PostgresError):
                self.close()
        self._connection = await multi_host.connect(
            self._url, timeout=TIMEOUT_SECONDS, server_settings=_NAMES
        )
        return await self._clock_time()

    async def _clock_time(self) -> datetime:
        return await self._connection.fetchval("SELECT clock_timestamp()", timeout=TIMEOUT_SECONDS)
