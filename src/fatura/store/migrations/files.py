"""The migration files of a folder: their order, names and checksums."""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

_FILE_NAME = re.compile(r"(\d{4})_[a-z0-9_]+\.sql")


class MigrationError(Exception):
    """The database could not be migrated; the message names the next step."""


@dataclass(frozen=True, slots=True)
class Migration:
    """One file: its number, its name without the ending, and its SQL."""

    version: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        """SHA-256 of the SQL. Line ends do not change it."""
        return hashlib.sha256(self.sql.encode()).hexdigest()


def read(folder: Path) -> list[Migration]:
    """Return the migrations of a folder in order. Raises MigrationError unless they are numbered 0001, 0002, ..."""
    migrations: list[Migration] = []
    for number, path in enumerate(sorted(folder.glob("*.sql")), start=1):
        named = _FILE_NAME.fullmatch(path.name)
        if not named or int(named[1]) != number:
            raise MigrationError(f"{path} has the wrong name: name it {number:04}_<what_it_does>.sql")
        migrations.append(Migration(number, path.stem, path.read_text("utf-8")))
    if not migrations:
        raise MigrationError(f"{folder} holds no migrations: install Fatura again")
    return migrations
