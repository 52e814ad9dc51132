"""Connecting to whichever of several hosts leads: all are asked at once, so that a dead one hides none behind it."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import asyncpg


async def connect(dsn: str | None = None, **options: Any) -> Any:
    """Return a connection as `asyncpg.connect` does; of the hosts in the URL, the first that takes it and fits.

    A host that is switched off refuses nothing: it is silent, and asked one after the other it would be waited for.
    Raises what the last host's failure was.
    """
    assert dsn is not None, "ours is always given"
    hosts = _hosts(dsn)
    if len(hosts) < 2:
        return await asyncpg.connect(dsn, **options)
    attempts = [
        asyncio.create_task(_connect(dsn, {**options, "host": host, "port": port})) for host, port in hosts
    ]
    connection: Any = None
    failure: Exception | None = None
    try:
        for attempt in asyncio.as_completed(attempts):
            try:
                connection = await attempt
            except (
                OSError,
                asyncpg.PostgresError,
                asyncpg.InterfaceError,
                asyncpg.InternalClientError,
            ) as error:
                failure = error
            else:
                return connection
        assert failure is not None, "there are hosts"
        raise failure
    finally:
        _drop(attempts, but=connection)


async def _connect(dsn: str, options: Mapping[str, Any]) -> Any:
    return await asyncpg.connect(dsn, **options)


def _drop(attempts: Sequence[asyncio.Task[Any]], *, but: object) -> None:
    """End the attempts that lost, whether they are still under way or came second."""
    for attempt in attempts:
        if not attempt.done():
            attempt.cancel()
        elif not attempt.cancelled() and attempt.exception() is None and attempt.result() is not but:
            attempt.result().terminate()


def _hosts(url: str) -> list[tuple[str, int]]:
    """Return the hosts and ports of a URL that lists several as `host:port,host:port`."""
    listed = urlsplit(url).netloc.rpartition("@")[2].split(",")
    found = [
        each.rpartition(":") if each.rpartition(":")[2].isdigit() else (each, "", "5432") for each in listed
    ]
    return [(host.strip("[]"), int(port)) for host, _, port in found]
