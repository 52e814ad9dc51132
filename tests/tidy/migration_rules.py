"""The rules on migrations: account_id leads every key, constraints have names, triggers read their own row only.

tests/integration/test_row_security.py checks the policies that the migrations create.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from pglast import ast, parse_plpgsql, parse_sql
from pglast.enums import AlterTableType, ConstrType, ObjectType
from pglast.stream import RawStream

from tests.tidy.sql_rules import UNSTEADY
from tests.tidy.sql_statements import function_names, nodes

MAX_NAME_CHARS = 40
LOCAL = {"block", "if", "case", "assign", "return", "raise", "exit", "loop", "while"}
"""The PL/pgSQL statements that a trigger may contain, because they neither read nor write a table."""

OF_NO_ACCOUNT = frozenset({"opened_account", "tag_key"})
"""The tables in the migrations that belong to no account. They stay on the coordinator of Citus."""

_BEFORE = 2
_ROW_KINDS = (
    ConstrType.CONSTR_NOTNULL,
    ConstrType.CONSTR_NULL,
    ConstrType.CONSTR_DEFAULT,
    ConstrType.CONSTR_GENERATED,
)
_KEYS = (ConstrType.CONSTR_PRIMARY, ConstrType.CONSTR_UNIQUE)

Statements = Sequence[Any]


def tables(statements: Statements) -> Iterator[Any]:
    return nodes(tuple(statements), ast.CreateStmt)


def account_leads(statements: Statements) -> Iterator[str]:
    """Rule 1: every table but OF_NO_ACCOUNT has account_id, which leads all keys and unique indexes of the table."""
    for table in tables(statements):
        name = table.relation.relname
        if name in OF_NO_ACCOUNT:
            continue
        columns = {each.colname: each for each in nodes(table.tableElts, ast.ColumnDef)}
        if not _is_account_column(columns.get("account_id")):
            yield f"{name} has no account_id uuid NOT NULL"
        if not any(each.contype == ConstrType.CONSTR_PRIMARY for each in nodes(table, ast.Constraint)):
            yield f"{name} has no primary key"
    for constraint in nodes(tuple(statements), ast.Constraint):
        has_no_account = constraint.conname in {f"{name}_pk" for name in OF_NO_ACCOUNT}
        if constraint.contype in _KEYS and not _leads(constraint.keys) and not has_no_account:
            yield f"the key {constraint.conname} does not begin with account_id"
        sides = (constraint.fk_attrs, constraint.pk_attrs)
        if constraint.contype == ConstrType.CONSTR_FOREIGN and not all(map(_leads, sides)):
            yield f"the foreign key {constraint.conname} does not begin with account_id on both sides"
    for index in nodes(tuple(statements), ast.IndexStmt):
        if index.unique and index.indexParams[0].name != "account_id":
            yield f"the unique index {index.idxname} does not begin with account_id"


def names_of_constraints(statements: Statements) -> Iterator[str]:
    """Rule 8: every index, and every constraint but NOT NULL, DEFAULT and GENERATED, has a short, unique name.

    No constraint is deferrable, and no foreign key sets null or a default.
    """
    seen: set[str] = set()
    for node in nodes(tuple(statements), ast.Constraint, ast.IndexStmt):
        is_index = isinstance(node, ast.IndexStmt)
        if not is_index and node.contype in _ROW_KINDS:
            continue
        name = node.idxname if is_index else node.conname
        if not name:
            yield f"unnamed: {RawStream()(node)}"
        elif len(name) > MAX_NAME_CHARS:
            yield f"{name} has {len(name)} characters, {MAX_NAME_CHARS} at most"
        elif name in seen:
            yield f"{name} is used twice"
        seen.add(name or "")
        if not is_index and (node.deferrable or node.initdeferred):
            yield f"{name} is deferrable: store parents before children"
        if not is_index and {node.fk_del_action, node.fk_upd_action} & {"n", "d"}:
            yield f"{name} sets null or a default: update the child explicitly"


def deterministic_defaults(statements: Statements) -> Iterator[str]:
    """Rule 5: no default, check or index uses the clock or random numbers."""
    for node in nodes(tuple(statements), ast.Constraint, ast.IndexStmt):
        for name in UNSTEADY & set(function_names(node)):
            yield f"{name}() in {RawStream()(node)}: the value is a parameter of the INSERT"


def triggers_read_their_row(statements: Statements) -> Iterator[str]:
    """Rule 9: triggers are BEFORE ... FOR EACH ROW, and their functions read only NEW, OLD and constants."""
    for trigger in nodes(tuple(statements), ast.CreateTrigStmt):
        if not trigger.row or trigger.timing != _BEFORE or trigger.transitionRels or trigger.isconstraint:
            yield f"{trigger.trigname} is not a plain BEFORE ... FOR EACH ROW"
    for function in nodes(tuple(statements), ast.CreateFunctionStmt):
        name = function.funcname[-1].sval
        kinds, expressions = _plpgsql(parse_plpgsql(RawStream()(function)))
        other = sorted(set(kinds) - LOCAL)
        if other:
            yield f"{name} contains {', '.join(other).upper()}: a trigger reads its own row only"
        elif any(nodes(tuple(map(_expression, expressions)), ast.RangeVar, ast.SubLink)):
            yield f"{name} reads a table: a trigger reads its own row only"


def small_steps(statements: Statements) -> Iterator[str]:
    """Rule 11: each ALTER has one subcommand. Columns precede their constraints. Parent tables precede children.

    No constraint is renamed.
    """
    known: set[str] = set()
    for statement in statements:
        if isinstance(statement, ast.AlterTableStmt):
            yield from _small_alter(statement)
        for rename in nodes(statement, ast.RenameStmt):
            if rename.renameType == ObjectType.OBJECT_TABCONSTRAINT:
                yield "RENAME CONSTRAINT: add the new one, drop the old one"
        known |= {table.relation.relname for table in tables([statement])}
        for constraint in nodes(statement, ast.Constraint):
            if constraint.pktable and constraint.pktable.relname not in known:
                yield f"{constraint.conname} refers to {constraint.pktable.relname}, which is created later"


RULES = (account_leads, names_of_constraints, deterministic_defaults, triggers_read_their_row, small_steps)


def _small_alter(statement: Any) -> Iterator[str]:
    if len(statement.cmds) > 1:
        yield f"ALTER TABLE {statement.relation.relname} does {len(statement.cmds)} things: write one ALTER for each"
    for command in statement.cmds:
        if command.subtype == AlterTableType.AT_AddColumn:
            for constraint in nodes(command, ast.Constraint):
                if constraint.contype not in _ROW_KINDS:
                    yield f"{command.def_.colname} is added with a constraint: add a named constraint afterwards"


def _is_account_column(column: Any) -> bool:
    if column is None or column.typeName.names[-1].sval != "uuid":
        return False
    return any(each.contype == ConstrType.CONSTR_NOTNULL for each in column.constraints or ())


def _leads(keys: Any) -> bool:
    return bool(keys) and keys[0].sval == "account_id"


def _plpgsql(tree: Any) -> tuple[list[str], list[str]]:
    """Return the kinds of all statements, and all expressions, in the parse tree of a PL/pgSQL function."""
    kinds, expressions = list[str](), list[str]()
    pending = [tree]
    while pending:
        each = pending.pop()
        if isinstance(each, list):
            pending += each
        elif isinstance(each, dict):
            kinds += [
                match[1]
                for match in map(re.compile(r"PLpgSQL_stmt_(\w+)").fullmatch, map(str, each))
                if match
            ]
            expressions += [str(each["query"])] if "query" in each else []
            pending += each.values()
    return kinds, expressions


def _expression(text: str) -> Any:
    """Return the parse tree of an expression or, if it is an assignment, of the assigned expression."""
    select: Any = parse_sql("SELECT " + re.sub(r"^[\w.]+\s*:=", "", text))[0].stmt
    return select.targetList[0].val
