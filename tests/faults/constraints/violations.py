"""The statements that each constraint must refuse. Some are hand-written (`rows`), others derived from the catalog."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from tests.faults.constraints.catalog import CHECK, FOREIGN, TRIGGER, UNIQUE, Catalog, Constraint
from tests.faults.constraints.rows import CHECKS, DELETE_REFUSED, FROZEN, NO_FOREIGN_KEY, UNIQUE_ROWS
from tests.faults.constraints.trials import Statement, Violation
from tests.support import invoice_table

_COPY = """
    INSERT INTO TABLE (COLUMNS)
    SELECT COLUMNS FROM (SELECT x FROM TABLE x WHERE account_id = $2 ORDER BY x LIMIT 1) AS sample,
        jsonb_populate_record(sample.x, $1::jsonb)
"""
_VALUES: Mapping[str, tuple[str, str]] = {
    "uuid": ("00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"),
    "smallint": ("29001", "29002"),
    "integer": ("29001", "29002"),
    "bigint": ("29001", "29002"),
    "numeric": ("29001", "29002"),
    "text": ("one", "other"),
    "date": ("2034-01-01", "2034-01-02"),
    "timestamp with time zone": ("2034-01-01", "2034-01-02"),
    "boolean": ("false", "true"),
    "bytea": (r"\x01", r"\x02"),
    "jsonb": ('{"n": 1}', '{"n": 2}'),
    "text[]": ("{one}", "{other}"),
    "timestamp with time zone[]": ("{2034-01-01}", "{2034-01-02}"),
    "interval": ("1 s", "2 s"),
}
"""Two different values for each column type. Except for the booleans, no sample row contains these values."""
_NOT_IN_JSON = frozenset({"jsonb", "text[]", "timestamp with time zone[]"})
"""Types whose values `_copy` cannot set from a JSON string."""


@dataclass(frozen=True, slots=True)
class Violations:
    """Creates violations from rows of account `mine`. `theirs` maps each table to a row of another account."""

    catalog: Catalog
    mine: UUID
    theirs: Mapping[str, Mapping[str, Any]]

    def all(self) -> Iterator[Violation]:
        yield from self._duplicates()
        yield from self._bad_references()
        for name, table, changed in CHECKS:
            yield Violation(
                self.catalog.get(CHECK, table, name), changed, self._copy(table, json.loads(f"{{{changed}}}"))
            )
        for name, table, when, columns in FROZEN:
            constraint = self.catalog.get(TRIGGER, table, name)
            every = list(self.catalog.columns[table]) if columns == "*" else columns.split()
            yield from (self._change(constraint, column, when=when) for column in every)
        for name, table in DELETE_REFUSED:
            yield Violation(self.catalog.get(TRIGGER, table, name), "a DELETE", (f"DELETE FROM {table}", ()))  # noqa: S608 - written by hand
        yield from self._invoice_moves(self.catalog.get(TRIGGER, "invoice", "invoice_moves"))

    def _duplicates(self) -> Iterator[Violation]:
        for name, table, unique, where in UNIQUE_ROWS:
            yield self._duplicate(self.catalog.get(UNIQUE, table, name), unique.split(), where=where)
        by_hand = {name for name, *_ in UNIQUE_ROWS}
        for table in self.catalog.tables:
            keys = [each for each in self.catalog.of(UNIQUE) if each.table == table and each.is_primary]
            constraint = keys[0] if keys else Constraint(UNIQUE, f"{table}_pk", table)
            if constraint.name not in by_hand:
                yield self._duplicate(constraint, constraint.columns[1:])

    def _duplicate(self, constraint: Constraint, unique: Sequence[str], *, where: str = "") -> Violation:
        """Return a violation of a unique index: a statement that inserts a copy of a row.

        The copy and the row have the same values in the columns `unique`, and differ in most other columns.
        """
        types = self.catalog.columns[constraint.table]
        same = json.loads(f"{{{where}}}")
        same = {column: _VALUES[types[column]][0] for column in unique} | same
        other = {
            column: _VALUES[type_][1]
            for column, type_ in types.items()
            if column not in {"account_id", *same} and type_ not in _NOT_IN_JSON
        }
        before = [self._copy(constraint.table, same)] if unique else []
        description = f"a second row with the same {' and '.join(unique) or 'account'}"
        return Violation(constraint, description, self._copy(constraint.table, other | same), before)

    def _bad_references(self) -> Iterator[Violation]:
        """Yield violations of foreign keys: unknown ids, ids of another account, and DELETEs of referenced rows.

        Also yield a violation with an unknown id for each column that has the name of another table's key, but no
        foreign key.
        """
        for constraint in self.catalog.of(FOREIGN):
            yield from self._unknown_and_foreign(constraint)
        referencing = {(each.table, column) for each in self.catalog.of(FOREIGN) for column in each.columns}
        key_tables = {
            each.columns[1]: each.table
            for each in self.catalog.of(UNIQUE)
            if each.is_primary
            and len(each.columns) == 2
            and each.columns[1].endswith("_id")
            and (each.table, each.columns[1]) not in referencing
        }
        exempt = {(table, column) for table, column in (each[0].split(".") for each in NO_FOREIGN_KEY)}
        for table in self.catalog.tables:
            for column in self.catalog.columns[table]:
                target = "account" if column == "account_id" else key_tables.get(column, table)
                if target != table and not {(table, column)} & (referencing | exempt):
                    constraint = Constraint(FOREIGN, column, table, (column,))
                    unknown = {column: str(uuid4())}
                    yield Violation(constraint, f"a {column} of no {target}", self._copy(table, unknown))

    def _unknown_and_foreign(self, constraint: Constraint) -> Iterator[Violation]:
        types = self.catalog.columns[constraint.table]
        own = constraint.columns[1:] or constraint.columns
        unknown = {column: _VALUES[types[column]][0] for column in own if types[column] != "text"}
        yield Violation(constraint, f"{' and '.join(own)} of no row", self._copy(constraint.table, unknown))
        if any(types[column] == "uuid" for column in constraint.columns[1:]):
            row = self.theirs[constraint.target]
            foreign = {
                mine: str(row[theirs]) if types[mine] == "uuid" else row[theirs]
                for mine, theirs in zip(constraint.columns[1:], constraint.refers_to[1:], strict=True)
            }
            yield Violation(
                constraint,
                f"another account's {' and '.join(foreign)}",
                self._copy(constraint.table, foreign),
            )
        pointed = ", ".join(
            f"{mine} = t.{theirs}"
            for mine, theirs in zip(constraint.columns, constraint.refers_to, strict=True)
        )
        accounts = "(x.account_id, t.account_id) = ($1, $1)"
        point = f"UPDATE {constraint.table} x SET {pointed} FROM {constraint.target} t WHERE {accounts}"  # noqa: S608 - from the catalog
        delete = f"DELETE FROM {constraint.target} WHERE account_id = $1"  # noqa: S608 - from the catalog
        yield Violation(
            constraint, f"a DELETE of {constraint.target}", (delete, (self.mine,)), [(point, (self.mine,))]
        )

    def _change(self, constraint: Constraint, column: str, *, when: str) -> Violation:
        one, other = _VALUES[self.catalog.columns[constraint.table][column]]
        if when == f"{column} = {other}":
            one, other = other, one
        update = f"UPDATE {constraint.table} SET "  # noqa: S608 - from the catalog, and written by hand
        before = [(update + when, ())] if when else []
        if not when.startswith(f"{column} "):
            before.append((f"{update}{column} = '{one}'", ()))
        return Violation(constraint, f"{column} changes", (f"{update}{column} = '{other}'", ()), before)

    def _invoice_moves(self, constraint: Constraint) -> Iterator[Violation]:
        update = "UPDATE invoice SET status = $1"
        for was, moves in invoice_table.MOVES.items():
            for to in (state for state, may in moves.items() if may == "no"):
                yield Violation(
                    constraint, f"an invoice moves from {was} to {to}", (update, (to,)), [(update, (was,))]
                )
        for state in invoice_table.STATES:
            inserted = {
                "status": state,
                "gateway_invoice_id": "ch" if state in invoice_table.INITIAL_STATES else None,
            }
            yield Violation(
                constraint, f"an invoice is inserted as {inserted}", self._copy("invoice", inserted)
            )

    def _copy(self, table: str, changed: Mapping[str, object]) -> Statement:
        columns = ", ".join(self.catalog.columns[table])
        return _COPY.replace("TABLE", table).replace("COLUMNS", columns), (json.dumps(changed), self.mine)
