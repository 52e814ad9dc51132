"""The files of the migrations: their order, checksums and statements. `store.migrations.runner` applies them."""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

_NO_TRANSACTION = "-- no transaction"
_FILE_NAME = re.compile(r"(\d{4})_[a-z0-9_]+\.sql")
_TOKEN = re.compile(
    r"""
    [eE]'(?:[^'\\]|\\.|'')*' | '(?:[^']|'')*'  # strings
    | "(?:[^"]|"")*"                           # names
    | \$(\w*)\$.*?\$\1\$                       # bodies of functions
    | --[^\n]* | /\*.*?\*/                     # comments
    | ;
    """,
    re.DOTALL | re.VERBOSE,
)
_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)


class MigrationError(Exception):
    """The database could not be brought to the code's version; the message tells the next step."""


@dataclass(frozen=True, slots=True)
class Migration:
    """One file: its number, its name without the ending, and what is in it."""

    version: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        """What the file is recognised by, whatever its line ends."""
        return hashlib.sha256(self.sql.encode()).hexdigest()

    @property
    def in_transaction(self) -> bool:
        """Whether it is applied whole or not at all, as all are but those whose first line forbids it."""
        return self.sql.partition("\n")[0].strip() != _NO_TRANSACTION

    def statements(self) -> list[str]:
        """Cut the file at the semicolons that end statements, and leave out what is comment only."""
        ends = [token.end() for token in _TOKEN.finditer(self.sql) if token[0] == ";"]
        parts = [
            self.sql[begin:end].strip() for begin, end in zip([0, *ends], [*ends, len(self.sql)], strict=True)
        ]
        return [part for part in parts if _COMMENT.sub("", part).strip("; \n\t")]


def read(folder: Path) -> list[Migration]:
    """Return the migrations of a folder in order. Raises MigrationError unless they are numbered 0001, 0002, ..."""
    migrations: list[Migration] = []
    for number, path in enumerate(sorted(folder.glob("*.sql")), start=1):
        named = _FILE_NAME.fullmatch(path.name)
        if not named or int(named[1]) != number:
            raise MigrationError(
                f"{path} breaks the row of migrations: name it {number:04}_<what_it_does>.sql"
            )
        migrations.append(Migration(number, path.stem, path.read_text("utf-8")))
    if not migrations:
        raise MigrationError(f"{folder} holds no migrations: install Fatura again")
    return migrations
