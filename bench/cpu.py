"""CPU seconds of a PostgreSQL server, all its processes together: what a figure of several processes shares."""

import os
from pathlib import Path

from bench.prepared import connected

_TICKS = os.sysconf("SC_CLK_TCK")


async def of_server(url: str) -> float:
    """Return the CPU seconds that the server behind a URL has used so far, those of ended backends included."""
    connection = await connected(url)
    backend: int = await connection.fetchval("SELECT pg_backend_pid()")
    postmaster = int(_fields(backend)[1])
    living = [each for each in _processes() if each[1] == str(postmaster)]
    own = _fields(postmaster)
    await connection.close()
    return sum(map(_seconds, living)) + _seconds(own) + (int(own[13]) + int(own[14])) / _TICKS


def of_process(pid: int) -> float:
    """Return the CPU seconds that a living process has used so far."""
    return _seconds(_fields(pid))


def _seconds(fields: list[str]) -> float:
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _fields(pid: int) -> list[str]:
    """Return what /proc tells of a process, from its state on (a name may hold anything)."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _processes() -> list[list[str]]:
    found: list[list[str]] = []
    for each in Path("/proc").iterdir():
        try:
            if each.name.isdigit():
                found.append(_fields(int(each.name)))
        except (FileNotFoundError, ProcessLookupError):  # it has ended
            continue
    return found
