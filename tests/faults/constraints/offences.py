"""What every wall has to refuse: the hand-written rows, and those that follow from what a key is for."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from tests.faults.constraints.catalog import CHECK, FOREIGN, TRIGGER, UNIQUE, Catalog, Wall
from tests.faults.constraints.rows import CHECKS, FROZEN, KEPT, LEAD_NOWHERE, ONCE
from tests.faults.constraints.trials import Offence, Statement
from tests.support import invoice_table

_COPY = """
    INSERT INTO TABLE SELECT copied.* FROM (SELECT x FROM TABLE x WHERE account_id = $2 ORDER BY x LIMIT 1) AS sample,
        jsonb_populate_record(sample.x, $1::jsonb) AS copied
"""
_VALUES: Mapping[str, tuple[str, str]] = {
    "uuid": ("00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"),
    "smallint": ("29001", "29002"),
    "integer": ("29001", "29002"),
    "bigint": ("29001", "29002"),
    "text": ("one", "other"),
    "date": ("2034-01-01", "2034-01-02"),
    "timestamp with time zone": ("2034-01-01", "2034-01-02"),
    "boolean": ("false", "true"),
    "bytea": (r"\x01", r"\x02"),
    "jsonb": ('{"n": 1}', '{"n": 2}'),
    "text[]": ("{one}", "{other}"),
    "interval": ("1 s", "2 s"),
}
"""Two values of every type that a column has, which no sample row has."""
_NOT_IN_JSON = frozenset({"jsonb", "text[]"})
"""Types whose text cannot stand for them in a JSON object."""


@dataclass(frozen=True, slots=True)
class Offenders:
    """Whose rows are copied, and a row of every table of another account, which they are pointed at."""

    catalog: Catalog
    mine: UUID
    theirs: Mapping[str, Mapping[str, Any]]

    def all(self) -> Iterator[Offence]:
        """Yield everything that has to be refused."""
        yield from self._once()
        yield from self._keys()
        for name, table, changed in CHECKS:
            yield Offence(
                self.catalog.get(CHECK, table, name), changed, self._copy(table, json.loads(f"{{{changed}}}"))
            )
        for name, table, when, columns in FROZEN:
            wall = self.catalog.get(TRIGGER, table, name)
            every = list(self.catalog.columns[table]) if columns == "*" else columns.split()
            yield from (self._change(wall, column, when=when) for column in every)
        for name, table in KEPT:
            yield Offence(self.catalog.get(TRIGGER, table, name), "a DELETE", (f"DELETE FROM {table}", ()))  # noqa: S608 - written by hand
        yield from self._invoice_moves(self.catalog.get(TRIGGER, "invoice", "invoice_moves"))

    def _once(self) -> Iterator[Offence]:
        for name, table, once, where in ONCE:
            yield self._again(self.catalog.get(UNIQUE, table, name), once.split(), where=where)
        by_hand = {name for name, *_ in ONCE}
        for table in self.catalog.tables:
            keys = [each for each in self.catalog.of(UNIQUE) if each.table == table and each.is_primary]
            wall = keys[0] if keys else Wall(UNIQUE, f"{table}_pk", table)
            if wall.name not in by_hand:
                yield self._again(wall, wall.columns[1:])

    def _again(self, wall: Wall, once: Sequence[str], *, where: str = "") -> Offence:
        """A second row that is like the first in what stands once, and differs in all else."""
        types = self.catalog.columns[wall.table]
        same = json.loads(f"{{{where}}}")
        same = {column: _VALUES[types[column]][0] for column in once} | same
        other = {
            column: _VALUES[type_][1]
            for column, type_ in types.items()
            if column not in {"account_id", *same} and type_ not in _NOT_IN_JSON
        }
        before = [self._copy(wall.table, same)] if once else []
        says = f"a second row with the same {' and '.join(once) or 'account'}"
        return Offence(wall, says, self._copy(wall.table, other | same), before)

    def _keys(self) -> Iterator[Offence]:
        """Rows of nobody and of others, for every foreign key and every column that ought to have one."""
        for wall in self.catalog.of(FOREIGN):
            yield from self._strangers(wall)
        whose = {
            each.columns[1]: each.table
            for each in self.catalog.of(UNIQUE)
            if each.is_primary and len(each.columns) == 2 and each.columns[1].endswith("_id")
        }
        led = {(each.table, column) for each in self.catalog.of(FOREIGN) for column in each.columns}
        meant = {(table, column) for table, column in (each[0].split(".") for each in LEAD_NOWHERE)}
        for table in self.catalog.tables:
            for column in self.catalog.columns[table]:
                target = "account" if column == "account_id" else whose.get(column, table)
                if target != table and not {(table, column)} & (led | meant):
                    wall = Wall(FOREIGN, column, table, (column,))
                    stranger = {column: str(uuid4())}
                    yield Offence(wall, f"a {column} of no {target}", self._copy(table, stranger))

    def _strangers(self, wall: Wall) -> Iterator[Offence]:
        types = self.catalog.columns[wall.table]
        own = wall.columns[1:] or wall.columns
        nobody = {column: _VALUES[types[column]][0] for column in own if types[column] != "text"}
        yield Offence(wall, f"{' and '.join(own)} of nobody", self._copy(wall.table, nobody))
        if any(types[column] == "uuid" for column in wall.columns[1:]):
            row = self.theirs[wall.target]
            stolen = {
                mine: str(row[theirs]) if types[mine] == "uuid" else row[theirs]
                for mine, theirs in zip(wall.columns[1:], wall.refers_to[1:], strict=True)
            }
            yield Offence(wall, f"another account's {' and '.join(stolen)}", self._copy(wall.table, stolen))
        pointed = ", ".join(
            f"{mine} = t.{theirs}" for mine, theirs in zip(wall.columns, wall.refers_to, strict=True)
        )
        whose = "(x.account_id, t.account_id) = ($1, $1)"
        leads = f"UPDATE {wall.table} x SET {pointed} FROM {wall.target} t WHERE {whose}"  # noqa: S608 - from the catalog
        gone = f"DELETE FROM {wall.target} WHERE account_id = $1"  # noqa: S608 - from the catalog
        yield Offence(wall, f"a DELETE of {wall.target}", (gone, (self.mine,)), [(leads, (self.mine,))])

    def _change(self, wall: Wall, column: str, *, when: str) -> Offence:
        one, other = _VALUES[self.catalog.columns[wall.table][column]]
        update = f"UPDATE {wall.table} SET "  # noqa: S608 - from the catalog, and written by hand
        before = [(update + when, ())] if when else []
        if not when.startswith(f"{column} "):
            before.append((f"{update}{column} = '{one}'", ()))
        return Offence(wall, f"{column} changes", (f"{update}{column} = '{other}'", ()), before)

    def _invoice_moves(self, wall: Wall) -> Iterator[Offence]:
        update = "UPDATE invoice SET status = $1"
        for was, moves in invoice_table.MOVES.items():
            for to in (state for state, may in moves.items() if may == "no"):
                yield Offence(
                    wall, f"an invoice moves from {was} to {to}", (update, (to,)), [(update, (was,))]
                )
        for state in invoice_table.STATES:
            born = {"status": state, "gateway_invoice_id": "ch" if state in invoice_table.BIRTHS else None}
            yield Offence(wall, f"an invoice is born as {born}", self._copy("invoice", born))

    def _copy(self, table: str, changed: Mapping[str, object]) -> Statement:
        return _COPY.replace("TABLE", table), (json.dumps(changed), self.mine)
