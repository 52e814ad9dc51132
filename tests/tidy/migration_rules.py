"""The rules on migrations: accounts lead every key, constraints have names, triggers stay at home, rows have walls."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from pglast import ast, parse_plpgsql, parse_sql
from pglast.enums import AlterTableType, ConstrType, ObjectType
from pglast.stream import RawStream

from tests.tidy.sql_rules import UNSTEADY
from tests.tidy.sql_statements import function_names, nodes

MAX_NAME_CHARS = 40
WALL = "account_id = nullif(current_setting('app.account', true), '')::uuid"
"""Compared once a statement, with the account_id that it gives itself."""
WALL_BESIDE_DISCOVERY = (
    "CASE account_id::text WHEN current_setting('app.account', true) THEN 'seen' END <> 'unseen'"
)
"""Where another policy opens the table, too, PostgreSQL asks of each row: text is the cheaper comparison."""
DISCOVERY = "CASE current_setting('app.discover', true) WHEN 'on' THEN 'seen' END <> 'unseen'"
AT_HOME = {"block", "if", "case", "assign", "return", "raise", "exit", "loop", "while"}
"""The PL/pgSQL statements that touch nothing but the row at hand."""

_BEFORE, _ROW_KINDS = 2, (ConstrType.CONSTR_NOTNULL, ConstrType.CONSTR_NULL, ConstrType.CONSTR_DEFAULT)
_KEYS = (ConstrType.CONSTR_PRIMARY, ConstrType.CONSTR_UNIQUE)

Statements = Sequence[Any]


def tables(statements: Statements) -> Iterator[Any]:
    """Yield every CREATE TABLE."""
    return nodes(tuple(statements), ast.CreateStmt)


def account_leads(statements: Statements) -> Iterator[str]:
    """Every table has an account, which leads its primary key, unique keys, unique indexes and foreign keys."""
    for table in tables(statements):
        name = table.relation.relname
        columns = {each.colname: each for each in nodes(table.tableElts, ast.ColumnDef)}
        if not _is_account_column(columns.get("account_id")):
            yield f"{name} has no account_id uuid NOT NULL"
        if not any(each.contype == ConstrType.CONSTR_PRIMARY for each in nodes(table, ast.Constraint)):
            yield f"{name} has no primary key"
    for constraint in nodes(tuple(statements), ast.Constraint):
        if constraint.contype in _KEYS and not _leads(constraint.keys):
            yield f"the key {constraint.conname} does not begin with account_id"
        sides = (constraint.fk_attrs, constraint.pk_attrs)
        if constraint.contype == ConstrType.CONSTR_FOREIGN and not all(map(_leads, sides)):
            yield f"the foreign key {constraint.conname} does not begin with account_id on both sides"
    for index in nodes(tuple(statements), ast.IndexStmt):
        if index.unique and index.indexParams[0].name != "account_id":
            yield f"the unique index {index.idxname} does not begin with account_id"


def names_of_constraints(statements: Statements) -> Iterator[str]:
    """Every constraint and index has a name that is short and used once; none is deferrable or sets null."""
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


def steady_defaults(statements: Statements) -> Iterator[str]:
    """No default, check or index asks for the time or draws chance."""
    for node in nodes(tuple(statements), ast.Constraint, ast.IndexStmt):
        for name in UNSTEADY & set(function_names(node)):
            yield f"{name}() in {RawStream()(node)}: the value is a parameter of the INSERT"


def triggers_at_home(statements: Statements) -> Iterator[str]:
    """Triggers are row-level and BEFORE, and their functions look at NEW, OLD and constants only."""
    for trigger in nodes(tuple(statements), ast.CreateTrigStmt):
        if not trigger.row or trigger.timing != _BEFORE or trigger.transitionRels or trigger.isconstraint:
            yield f"{trigger.trigname} is not a plain BEFORE ... FOR EACH ROW"
    for function in nodes(tuple(statements), ast.CreateFunctionStmt):
        name = function.funcname[-1].sval
        kinds, expressions = _plpgsql(parse_plpgsql(RawStream()(function)))
        abroad = sorted(set(kinds) - AT_HOME)
        if abroad:
            yield f"{name} says {', '.join(abroad).upper()}: a trigger looks at its own row only"
        elif any(nodes(tuple(map(_expression, expressions)), ast.RangeVar, ast.SubLink)):
            yield f"{name} reads a table: a trigger looks at its own row only"


def small_steps(statements: Statements) -> Iterator[str]:
    """One subcommand per ALTER; a column first, its named constraint after; parents first; no renamed constraint."""
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


def walled(statements: Statements) -> Iterator[str]:
    """Every table has Row Level Security, forced, with the account's policy; any other policy only discovers."""
    enabled, forced, policies = set[str](), set[str](), set[str]()
    for alter in nodes(tuple(statements), ast.AlterTableStmt):
        kinds, table = {command.subtype for command in alter.cmds}, {alter.relation.relname}
        enabled |= table if AlterTableType.AT_EnableRowSecurity in kinds else set()
        enabled -= table if AlterTableType.AT_DisableRowSecurity in kinds else set()
        forced |= table if AlterTableType.AT_ForceRowSecurity in kinds else set()
        forced -= table if AlterTableType.AT_NoForceRowSecurity in kinds else set()
    altered = {each.policy_name: each.qual for each in nodes(tuple(statements), ast.AlterPolicyStmt)}
    yield from _torn_down(statements)
    created = list(nodes(tuple(statements), ast.CreatePolicyStmt))
    discovered = {each.table.relname for each in created if each.cmd_name == "select"}
    for policy in created:
        says = _normal(altered.get(policy.policy_name, policy.qual))
        wall = WALL_BESIDE_DISCOVERY if policy.table.relname in discovered else WALL
        if says == _normal(_expression(wall)) and policy.cmd_name == "all":
            policies.add(policy.table.relname)
        elif says != _normal(_expression(DISCOVERY)) or policy.cmd_name != "select":
            yield f"the policy {policy.policy_name} is neither `{wall}` nor `FOR SELECT` and `{DISCOVERY}`"
    for name in sorted({table.relation.relname for table in tables(statements)}):
        for has, what in ((enabled, "ENABLE"), (forced, "FORCE"), (policies, "a policy of")):
            if name not in has:
                yield f"{name} lacks {what} ROW LEVEL SECURITY"


RULES = (account_leads, names_of_constraints, steady_defaults, triggers_at_home, small_steps, walled)


def _torn_down(statements: Statements) -> Iterator[str]:
    """Yield what a wall would not be seen to lose: a policy is altered by its USING alone, and never dropped."""
    for policy in nodes(tuple(statements), ast.CreatePolicyStmt, ast.AlterPolicyStmt):
        if policy.with_check or [each.rolename for each in policy.roles or ()] not in ([], [None]):
            yield f"the policy {policy.policy_name} says more than USING"
        if isinstance(policy, ast.CreatePolicyStmt) and not policy.permissive:
            yield f"the policy {policy.policy_name} is RESTRICTIVE"
    for drop in nodes(tuple(statements), ast.DropStmt):
        if drop.removeType == ObjectType.OBJECT_POLICY:
            yield "a policy is dropped"


def _small_alter(statement: Any) -> Iterator[str]:
    if len(statement.cmds) > 1:
        yield f"ALTER TABLE {statement.relation.relname} does {len(statement.cmds)} things: one each"
    for command in statement.cmds:
        if command.subtype == AlterTableType.AT_AddColumn:
            for constraint in nodes(command, ast.Constraint):
                if constraint.contype not in _ROW_KINDS:
                    yield f"{command.def_.colname} is added with a constraint: ADD CONSTRAINT afterwards, named"


def _is_account_column(column: Any) -> bool:
    if column is None or column.typeName.names[-1].sval != "uuid":
        return False
    return any(each.contype == ConstrType.CONSTR_NOTNULL for each in column.constraints or ())


def _leads(keys: Any) -> bool:
    return bool(keys) and keys[0].sval == "account_id"


def _plpgsql(tree: Any) -> tuple[list[str], list[str]]:
    """Return the kinds of statements and the expressions in a function's body."""
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
    """Return the parse tree of an expression, or of what an assignment assigns."""
    select: Any = parse_sql("SELECT " + re.sub(r"^[\w.]+\s*:=", "", text))[0].stmt
    return select.targetList[0].val


def _normal(expression: Any) -> str:
    return RawStream()(expression) if expression is not None else ""
