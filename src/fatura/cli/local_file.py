"""Read small files that a person names on the command line."""

import os
import stat
from pathlib import Path

from fatura.cli.client import ApiError


def read_file(path: Path, *, max_bytes: int) -> bytes:
    """Return the content of a regular file. Raises ApiError, also for devices and pipes, which may never end."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ApiError(f"cannot read {path}: it is no regular file")
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
    except OSError as error:
        raise ApiError(f"cannot read {path}: {os.strerror(error.errno or 0)}") from error
    if len(content) > max_bytes:
        raise ApiError(f"{path} is larger than {max_bytes:,} bytes")
    return content
