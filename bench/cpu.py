"""Read the CPU time of processes, and of a PostgreSQL server with all its backends."""

import os
from pathlib import Path

from bench.prepared import connected

_TICKS = os.sysconf("SC_CLK_TCK")


async def of_server(url: str) -> float:
    """Return the CPU seconds that the server has used so far, including ended backends."""
    connection = await connected(url)
    backend: int = await connection.fetchval("SELECT pg_backend_pid()")
    postmaster = int(_fields(backend)[1])
    living = [each for each in _processes() if each[1] == str(postmaster)]
    own = _fields(postmaster)
    await connection.close()
    return sum(map(_seconds, living)) + _seconds(own) + (int(own[13]) + int(own[14])) / _TICKS


def of_process(pid: int) -> float:
    return _seconds(_fields(pid))


def waited(pid: int) -> float:
    """Return the seconds for which the threads of a process were ready to run, but had to wait for a core."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((each / "schedstat").read_text().split()[1]) for each in threads) / 1e9


def _seconds(fields: list[str]) -> float:
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _fields(pid: int) -> list[str]:
    """Return the fields of /proc/<pid>/stat after the process name, which may contain spaces."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _processes() -> list[list[str]]:
    found: list[list[str]] = []
    for each in Path("/proc").iterdir():
        try:
            if each.name.isdigit():
                found.append(_fields(int(each.name)))
        except (FileNotFoundError, ProcessLookupError):  # the process has ended
            continue
    return found
