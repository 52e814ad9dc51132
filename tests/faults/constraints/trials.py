"""How a wall is tried: all others are taken down, hand-written rows lean on it, and it has to refuse each by itself."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.faults.constraints.catalog import FOREIGN, POLICY, TRIGGER, UNIQUE, Catalog, Wall
from tests.support.populated import wall as refused_by

Statement = tuple[str, Sequence[object]]


@dataclass(frozen=True, slots=True)
class Offence:
    """What a wall has to refuse, in words and as a statement; `before` is done without triggers and keys."""

    wall: Wall
    says: str
    statement: Statement
    before: Sequence[Statement] = ()


@dataclass(slots=True)
class Tally:
    """Which walls refused all that leaned on them and which did not, how often, and what went through."""

    offences: int = 0
    held: set[Wall] = field(default_factory=set[Wall])
    failed: set[Wall] = field(default_factory=set[Wall])
    problems: list[str] = field(default_factory=list[str])


async def lean(connection: Any, catalog: Catalog, offences: Sequence[Offence], tally: Tally) -> None:
    """Take down all but one wall, commit the offences that it has to refuse, and put everything back.

    The connection is a superuser's, whom no policy binds.
    """
    wall = offences[0].wall
    transaction = connection.transaction()
    await transaction.start()
    try:
        await connection.execute(";".join(_down(wall, catalog)))
        found = [problem for each in offences if (problem := await _commit(connection, each))]
    finally:
        await transaction.rollback()
    tally.offences += len(offences)
    tally.problems += found
    (tally.failed if found else tally.held).add(wall)


async def _commit(connection: Any, offence: Offence) -> str | None:
    """Commit an offence and undo it; return what is wrong when it was not this wall that refused."""
    savepoint = connection.transaction()
    await savepoint.start()
    try:
        await connection.execute("SET LOCAL session_replication_role = replica")
        for statement, values in offence.before:
            await connection.execute(statement, *values)
        await connection.execute("SET LOCAL session_replication_role = origin")
        statement, values = offence.statement
        said = await refused_by(connection, statement, *values)
    finally:
        await savepoint.rollback()
    if said == "yes":
        return f"{offence.wall} let it: {offence.says}"
    if offence.wall.kind != TRIGGER and said != offence.wall.name:
        return f"{offence.wall} was not tried: {said} refused {offence.says}"
    return None


def _down(wall: Wall, catalog: Catalog) -> Iterator[str]:
    """Take down all that stands around a wall, on its own table and on the one that it leads to."""
    for each in catalog.walls:
        own, led_to = each.table == wall.table, bool(wall.target) and wall.target in {each.table, each.target}
        if each == wall or each.kind == POLICY or not (own or led_to):
            continue
        if each.kind == TRIGGER:
            yield f"ALTER TABLE {each.table} DISABLE TRIGGER {each.name}"
        elif own or each.kind == FOREIGN:
            yield f"ALTER TABLE {each.table} DROP CONSTRAINT IF EXISTS {each.name} CASCADE"
            if each.kind == UNIQUE:
                yield f"DROP INDEX IF EXISTS {each.name}"
