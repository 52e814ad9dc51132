"""Errors of the embedded PostgreSQL: one line each, with the cause and the next step."""

import errno
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from fatura.failure_text import OwnTextError

LINES_SHOWN = 3
FREE_BYTES_NEEDED = 1_000_000

_HINTS = {
    "No space left on device": "its disk is full: free some space and start again",
    "Address already in use": "its port is in use by another program: start again to try another port",
    "already exists": "another PostgreSQL seems to use this cluster: stop that one and start again",
    "pre-existing shared memory block": "processes of an earlier server still run: end them and start again",
    "could not look up effective user ID": (
        "this user id has no name here: run as a user listed in /etc/passwd, "
        "or name a database in FATURA_DATABASE_URL"
    ),
    "wrong ownership": "the cluster belongs to another user: run as that user, or choose another data folder",
    "invalid permissions": "other users may enter the folder of the cluster: run `chmod 700` on it and start again",
}
_FULL = {errno.ENOSPC, errno.EDQUOT}
_CLOSED = {errno.EACCES, errno.EPERM, errno.EROFS}
_OCCUPIED = {errno.EEXIST, errno.ENOTDIR, errno.ELOOP}


class EmbeddedPostgresError(OwnTextError):
    """PostgreSQL could not be found, created, started or stopped; the message names the next step."""


@contextmanager
def folder_errors(data_dir: Path) -> Generator[None]:
    """Convert an OSError that the block raises to an EmbeddedPostgresError about the data folder."""
    try:
        yield
    except OSError as error:
        where = f"{error.filename or data_dir}"
        if error.errno in _FULL:
            reason = f"the disk of {data_dir} is full: free some space and start again"
        elif error.errno in _CLOSED:
            reason = (
                f"{where} may not be used ({error.strerror}): make it yours or choose another data folder"
            )
        elif error.errno in _OCCUPIED:
            reason = f"{where} is not a folder of Fatura's own: choose another data folder"
        else:
            reason = f"the data folder {data_dir} cannot be used: {error}"
        raise EmbeddedPostgresError(reason) from error


def failed(doing: str, output: str, *, where: Path) -> EmbeddedPostgresError:
    """Return the error of a failed program.

    The message begins with `doing` and `where`, for example "creating a database in /srv/data".
    """
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    shown = " | ".join(lines[-LINES_SHOWN:]) or "nothing"
    hints = [hint for sign, hint in _HINTS.items() if sign in output]
    if shutil.disk_usage(where).free < FREE_BYTES_NEEDED:
        hints = [_HINTS["No space left on device"]]
    return EmbeddedPostgresError(
        f"{doing} {where} failed: {''.join(f'{hint}; ' for hint in hints[:1])}its output: {shown}"
    )
