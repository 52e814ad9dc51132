"""The journal: a file in which the test gateway and the test merchants record what they did and received.

The engine cannot change this file, so a run can compare it with the engine's database.
"""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

_TABLES = """
CREATE TABLE IF NOT EXISTS charge (
    charge_id TEXT PRIMARY KEY, account_id TEXT, connection_id TEXT, invoice_id TEXT, attempt INTEGER,
    amount_cents INTEGER, due_date TEXT, state TEXT, created_at TEXT, visible_at TEXT, paid_at TEXT,
    record TEXT
);
CREATE INDEX IF NOT EXISTS charge_reference ON charge (invoice_id, attempt);
CREATE TABLE IF NOT EXISTS entry (
    charge_id TEXT, kind TEXT, reference TEXT, amount_cents INTEGER, occurred_at TEXT, refund_id TEXT
);
CREATE INDEX IF NOT EXISTS entry_charge ON entry (charge_id);
CREATE TABLE IF NOT EXISTS gateway_call (at TEXT, operation TEXT, invoice_id TEXT, outcome TEXT);
CREATE TABLE IF NOT EXISTS price_answer (
    at TEXT, request_id TEXT, subscription_ref TEXT, cycle INTEGER, status INTEGER, body TEXT, verified INTEGER
);
CREATE TABLE IF NOT EXISTS arrival (
    at TEXT, account_id TEXT, event_id TEXT, sequence INTEGER, invoice_id TEXT, body TEXT, status INTEGER,
    verified INTEGER
);
"""
JOURNAL_FILE = "journal.sqlite"


class Journal:
    """One SQLite file. A row survives when the process that wrote it is killed."""

    def __init__(self, path: Path) -> None:
        self._file = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._file.row_factory = sqlite3.Row
        self._file.execute("PRAGMA journal_mode = WAL")
        self._file.execute("PRAGMA synchronous = OFF")
        self._file.executescript(_TABLES)

    def write(self, table: str, **values: Any) -> None:
        columns, marks = ", ".join(values), ", ".join("?" * len(values))
        self._file.execute(f"INSERT INTO {table} ({columns}) VALUES ({marks})", tuple(values.values()))  # noqa: S608 - our own tables

    def change(self, statement: str, *values: Any) -> int:
        """Execute a statement, and return the number of changed rows."""
        return self._file.execute(statement, values).rowcount

    def read(self, query: str, *values: Any) -> Iterator[Mapping[str, Any]]:
        for row in self._file.execute(query, values):
            yield dict(row)

    def count(self, table: str, condition: str = "1") -> int:
        return self._file.execute(f"SELECT count(*) FROM {table} WHERE {condition}").fetchone()[0]  # noqa: S608 - our own tables

    def close(self) -> None:
        self._file.close()


def copy_journal(source: Path, target: Path) -> None:
    """Copy a journal that another process may change or close during the copy. Raises `sqlite3.Error`."""
    with closing(sqlite3.connect(source)) as read, closing(sqlite3.connect(target)) as written:
        read.backup(written)
