"""Try violations of one constraint while the other constraints of the same tables are disabled."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.faults.constraints.catalog import FOREIGN, POLICY, TRIGGER, UNIQUE, Catalog, Constraint
from tests.support.populated import refused_by

Statement = tuple[str, Sequence[object]]


@dataclass(frozen=True, slots=True)
class Violation:
    """A statement that `constraint` must refuse.

    The statements `before` prepare rows. Triggers and foreign keys are off while `before` runs.
    """

    constraint: Constraint
    description: str
    statement: Statement
    before: Sequence[Statement] = ()


@dataclass(slots=True)
class Tally:
    """The results of the run. `violations` counts tried statements.

    `enforced` contains the constraints that refused all their violations. `failed` contains the other constraints that
    were tried. `problems` describes the statements that the expected constraint did not refuse.
    """

    violations: int = 0
    enforced: set[Constraint] = field(default_factory=set[Constraint])
    failed: set[Constraint] = field(default_factory=set[Constraint])
    problems: list[str] = field(default_factory=list[str])


async def try_violations(
    connection: Any, catalog: Catalog, violations: Sequence[Violation], tally: Tally
) -> None:
    """Try to violate one constraint while all other constraints of its table are disabled. Roll everything back.

    `connection` must belong to a superuser, so that no policy applies.
    """
    constraint = violations[0].constraint
    transaction = connection.transaction()
    await transaction.start()
    try:
        await connection.execute(";".join(_disable_others(constraint, catalog)))
        found = [problem for each in violations if (problem := await _commit(connection, each))]
    finally:
        await transaction.rollback()
    tally.violations += len(violations)
    tally.problems += found
    (tally.failed if found else tally.enforced).add(constraint)


async def _commit(connection: Any, violation: Violation) -> str | None:
    """Try a violation and roll it back. Return a problem if the expected constraint did not refuse it."""
    savepoint = connection.transaction()
    await savepoint.start()
    try:
        await connection.execute("SET LOCAL session_replication_role = replica")
        for statement, values in violation.before:
            await connection.execute(statement, *values)
        await connection.execute("SET LOCAL session_replication_role = origin")
        statement, values = violation.statement
        refusal = await refused_by(connection, statement, *values)
    finally:
        await savepoint.rollback()
    if refusal == "yes":
        return f"{violation.constraint} allowed  {violation.description}"
    if violation.constraint.kind != TRIGGER and refusal != violation.constraint.name:
        return f"{violation.constraint} was not reached: {refusal} refused {violation.description}"
    return None


def _disable_others(constraint: Constraint, catalog: Catalog) -> Iterator[str]:
    """Yield statements that disable all other constraints of the constraint's table.

    If `constraint` is a foreign key, also disable the triggers of the referenced table, and the foreign keys from and
    to the referenced table.
    """
    for each in catalog.constraints:
        own, target = (
            each.table == constraint.table,
            bool(constraint.target) and constraint.target in {each.table, each.target},
        )
        if each == constraint or each.kind == POLICY or not (own or target):
            continue
        if each.kind == TRIGGER:
            yield f"ALTER TABLE {each.table} DISABLE TRIGGER {each.name}"
        elif own or each.kind == FOREIGN:
            yield f"ALTER TABLE {each.table} DROP CONSTRAINT IF EXISTS {each.name} CASCADE"
            if each.kind == UNIQUE:
                yield f"DROP INDEX IF EXISTS {each.name}"
