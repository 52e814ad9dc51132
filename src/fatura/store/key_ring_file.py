"""The file that holds the key ring of the vault, if FATURA_SECRET_KEYS is not set."""

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from fatura.store.vault import KeyRingError, new_key

MAX_KEY_RING_CHARS = 65_536


def read(path: Path) -> tuple[str, ...] | None:
    """Return the keys of a key ring file, or None if there is no file.

    Raises KeyRingError if the file is unreadable, or if other users may open it. But if root owns the file and this
    process runs as another user, the file's group may read it, because Kubernetes and systemd provide secrets this way.
    """
    try:
        with path.open(encoding="ascii") as file:
            status = os.fstat(file.fileno())
            text = file.read(MAX_KEY_RING_CHARS)
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it contains other characters than keys"
        message = f"the key ring {path} cannot be read ({reason}): check its owner, or set FATURA_SECRET_KEYS"
        raise KeyRingError(message) from None
    mode = stat.S_IMODE(status.st_mode)
    is_given_by_root = status.st_uid == 0 and os.geteuid() != 0
    if mode & (0o037 if is_given_by_root else 0o077):
        message = (
            f"other users of this host may open the key ring {path} (mode {mode:04o}): run `chmod 600 {path}`"
        )
        raise KeyRingError(message)
    return tuple(text.replace(",", " ").split())


def create(path: Path) -> None:
    """Write a new key ring atomically. If another process has written the file meanwhile, keep that file.

    Raises KeyRingError if the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=path.name) as file:
            file.write(new_key() + "\n")
            file.flush()
            os.fsync(file.fileno())
            with suppress(FileExistsError):
                os.link(file.name, path)
    except OSError as error:
        message = (
            f"the key ring {path} does not exist and cannot be created ({error.strerror}): set FATURA_SECRET_KEYS, "
            "or choose another FATURA_DATA_DIR"
        )
        raise KeyRingError(message) from None
