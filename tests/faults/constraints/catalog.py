"""Read all unique indexes, foreign keys, checks, triggers, policies and columns from PostgreSQL's catalog."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

UNIQUE, FOREIGN, CHECK, TRIGGER, POLICY = "unique index", "foreign key", "check", "trigger", "policy"

_CONSTRAINTS = """
    SELECT 'unique index' AS kind, c.relname AS name, i.indrelid AS on, 0::oid AS to, i.indkey::int2[] AS key,
        ARRAY[]::int2[] AS their_key, i.indisprimary AS is_primary
    FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
    WHERE i.indisunique AND c.relnamespace = 'public'::regnamespace
    UNION ALL
    SELECT CASE k.contype WHEN 'f' THEN 'foreign key' ELSE 'check' END, k.conname, k.conrelid, k.confrelid, k.conkey,
        k.confkey, false
    FROM pg_constraint k WHERE k.contype IN ('f', 'c') AND k.connamespace = 'public'::regnamespace
    UNION ALL
    SELECT 'trigger', t.tgname, t.tgrelid, 0, NULL, NULL, false FROM pg_trigger t WHERE NOT t.tgisinternal
    UNION ALL
    SELECT 'policy', p.polname, p.polrelid, 0, NULL, NULL, false FROM pg_policy p
"""
_NAMED = """
    SELECT w.kind, w.name, w.is_primary, w.on::regclass::text AS table,
        CASE WHEN w.to = 0 THEN '' ELSE w.to::regclass::text END AS target,
        ARRAY(SELECT a.attname::text FROM unnest(w.key) WITH ORDINALITY u (number, place)
            JOIN pg_attribute a ON a.attrelid = w.on AND a.attnum = u.number ORDER BY u.place) AS columns,
        ARRAY(SELECT a.attname::text FROM unnest(w.their_key) WITH ORDINALITY u (number, place)
            JOIN pg_attribute a ON a.attrelid = w.to AND a.attnum = u.number ORDER BY u.place) AS refers_to
    FROM (CONSTRAINTS) AS w ORDER BY 1, 4, 2
"""
_COLUMNS = """
    SELECT c.relname AS table, a.attname AS name, format_type(a.atttypid, NULL) AS type
    FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
    WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace AND a.attnum > 0 AND NOT a.attisdropped
        AND a.attgenerated = ''
    ORDER BY 1, a.attnum
"""


@dataclass(frozen=True, slots=True)
class Constraint:
    """A unique index, foreign key, check, trigger or policy.

    `columns` are the columns of an index, foreign key or check.

    A foreign key references the columns `refers_to` of `target`.
    """

    kind: str
    name: str
    table: str
    columns: tuple[str, ...] = ()
    target: str = ""
    refers_to: tuple[str, ...] = ()
    is_primary: bool = False

    def __str__(self) -> str:
        return f"{self.kind} {self.name} of {self.table}"


@dataclass(frozen=True, slots=True)
class Catalog:
    """All constraints of the tables that have an `account_id`, and the types of their columns.

    `columns` lacks generated columns, because PostgreSQL accepts no values for them.
    """

    constraints: Sequence[Constraint]
    columns: Mapping[str, Mapping[str, str]]

    @property
    def tables(self) -> list[str]:
        return list(self.columns)

    def of(self, kind: str) -> list[Constraint]:
        return [each for each in self.constraints if each.kind == kind]

    def get(self, kind: str, table: str, name: str) -> Constraint:
        """Return the constraint of this kind and name. If the database lacks it, return a placeholder.

        The run can then try the violations of the missing constraint, and report that PostgreSQL accepts them.
        """
        return next((each for each in self.of(kind) if each.name == name), Constraint(kind, name, table))


async def read(connection: Any) -> Catalog:
    columns: dict[str, dict[str, str]] = {}
    for row in await connection.fetch(_COLUMNS):
        columns.setdefault(row["table"], {})[row["name"]] = row["type"]
    columns = {table: types for table, types in columns.items() if "account_id" in types}
    found = await connection.fetch(_NAMED.replace("CONSTRAINTS", _CONSTRAINTS))
    constraints = [
        Constraint(
            row["kind"],
            row["name"],
            row["table"],
            tuple(row["columns"]),
            row["target"],
            tuple(row["refers_to"]),
            row["is_primary"],
        )
        for row in found
        if row["table"] in columns
    ]
    return Catalog(constraints, columns)
