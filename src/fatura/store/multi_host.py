"""Connect to the primary among several hosts. All hosts are tried at once, so an unresponsive one causes no delay."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import asyncpg

_TLS_FILES = frozenset({"sslrootcert", "sslcert", "sslkey", "sslcrl"})


async def connect(dsn: str | None = None, **options: Any) -> Any:
    """Connect as `asyncpg.connect` does, to the first host that answers and meets the URL's `target_session_attrs`.

    asyncpg alone tries one host after the other, and waits for a timeout at each host that is switched off.
    Raises InterfaceError if a file that the URL names cannot be read. If no host can be used, raises the error of the
    host that failed last.
    """
    assert dsn is not None, "the engine always passes a URL"
    try:
        return await _connect(dsn, **options)
    except (FileNotFoundError, PermissionError):  # the driver's error does not name the file
        _check_tls_files(dsn)
        raise


def _check_tls_files(dsn: str) -> None:
    """Raise an InterfaceError if a file for TLS that the URL names cannot be read."""
    for name, path in parse_qsl(urlsplit(dsn).query):
        if name in _TLS_FILES:
            try:
                Path(path).open("rb").close()
            except OSError as error:
                raise asyncpg.InterfaceError(
                    f"the file {path} of {name} cannot be read: {error.strerror}"
                ) from error


async def _connect(dsn: str, **options: Any) -> Any:
    try:
        hosts = _hosts(dsn)
        if len(hosts) < 2:
            return await asyncpg.connect(dsn, **options)
    except ValueError as error:
        if isinstance(error, (asyncpg.InterfaceError, OSError)):
            raise  # an untrusted certificate is reported as an error that is both an OSError and a ValueError
        message = "the URL of the database is malformed; percent-encode / @ : # ? and % in its password"
        raise asyncpg.InterfaceError(message) from None  # `error` may contain a part of the password
    attempts = [
        asyncio.create_task(asyncpg.connect(dsn, **options, host=host, port=port)) for host, port in hosts
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
        _close_others(attempts, but=connection)


def _close_others(attempts: Sequence[asyncio.Task[Any]], *, but: object) -> None:
    """Cancel the attempts in progress. Close the established connections, except the connection `but`."""
    for attempt in attempts:
        if not attempt.done():
            attempt.cancel()
        elif not attempt.cancelled() and attempt.exception() is None and attempt.result() is not but:
            attempt.result().terminate()


def _hosts(url: str) -> list[tuple[str, int]]:
    """Return the hosts and ports that a URL lists as `host:port,host:port`."""
    listed = urlsplit(url).netloc.rpartition("@")[2].split(",")
    found = [
        each.rpartition(":") if each.rpartition(":")[2].isdigit() else (each, "", "5432") for each in listed
    ]
    return [(host.strip("[]"), int(port)) for host, _, port in found]
