"""Rules that keep every SQL statement within one account. Citus can then spread accounts over nodes.

The rule numbers are those of docs/explanation/scaling.md; `migration_rules` checks the tables.
"""

from collections.abc import Iterator
from typing import Any

from pglast import ast
from pglast.enums import CTEMaterialize

from tests.tidy.sql_statements import conjuncts, function_names, nodes, walk_level

SYSTEM_TABLES = ("pg_", "schema_migration", "opened_account", "tag_key")
"""Prefixes of tables that belong to no account: PostgreSQL's catalogs, and three tables of Fatura."""
UNSTEADY = {
    "now", "clock_timestamp", "statement_timestamp", "transaction_timestamp", "timeofday", "random", "random_normal",
    "gen_random_uuid", "uuidv4", "uuidv7", "uuid_generate_v4", "nextval", "current_date", "current_time",
    "current_timestamp", "localtime", "localtimestamp", "setseed",
}  # fmt: skip
ELSEWHERE = (ast.MergeStmt, ast.TruncateStmt, ast.LockStmt, ast.CopyStmt, ast.CallStmt, ast.DeclareCursorStmt)
COMPUTING = (ast.FuncCall, ast.SubLink, ast.SQLValueFunction, ast.CoalesceExpr, ast.MinMaxExpr)


def on_own_account(tree: Any) -> Iterator[str]:
    """Rule 2: every table in a statement has its own condition `account_id = $1`.

    Statements other than SELECT, INSERT, UPDATE and DELETE are refused too, because they cannot run on many nodes.
    """
    named = {cte.ctename for cte in nodes(tree, ast.CommonTableExpr)}
    for query in nodes(tree, ast.SelectStmt, ast.UpdateStmt, ast.DeleteStmt):
        yield from _level_on_own_account(query, named)
    for insert in nodes(tree, ast.InsertStmt):
        yield from _insert_on_own_account(insert)
    for other in nodes(tree, *ELSEWHERE):
        yield f"{type(other).__name__} cannot run on many nodes: use SELECT, INSERT, UPDATE or DELETE"


def _level_on_own_account(query: Any, named: set[str]) -> Iterator[str]:
    parts = tuple(getattr(query, name, None) for name in ("relation", "fromClause", "usingClause"))
    tables = [node for node in walk_level(parts) if isinstance(node, ast.RangeVar)]
    tables = [table for table in tables if table.relname not in named and not _is_system(table)]
    conditions = [query.whereClause]
    conditions += [node.quals for node in walk_level(parts) if isinstance(node, ast.JoinExpr)]
    bound = {_bound_alias(part) for condition in conditions for part in conjuncts(condition)}
    for table in tables:
        alias = table.alias.aliasname if table.alias else table.relname
        if alias not in bound and not (len(tables) == 1 and "" in bound):
            yield f"{table.relname} is read without its own `{alias}.account_id = $1`"


def _insert_on_own_account(query: Any) -> Iterator[str]:
    columns = [column.name for column in query.cols or ()]
    if _is_system(query.relation):
        return
    if "account_id" not in columns:
        yield f"a row of {query.relation.relname} is inserted without naming its account_id"
        return
    place = columns.index("account_id")
    if query.selectStmt.valuesLists:
        if not all(_is_account(row[place]) for row in query.selectStmt.valuesLists):
            yield f"account_id of a new {query.relation.relname} is something else than $1"
    elif not _is_column_of_account(query.selectStmt.targetList[place].val):
        yield (
            f"account_id of new {query.relation.relname} rows is not read from a table: read it as in "
            "`FROM account o CROSS JOIN unnest(...)`, because Citus would copy rows with a parameter through one node"
        )


def account_stays(tree: Any) -> Iterator[str]:
    """Rule 1: a row's account never changes."""
    for query in nodes(tree, ast.UpdateStmt):
        if any(target.name == "account_id" for target in query.targetList):
            yield "account_id is updated: a row never changes its account"


def deterministic(tree: Any) -> Iterator[str]:
    """Rule 5: a statement gets instants, random values and counters as parameters. UPDATE and DELETE may use now()."""
    if not any(nodes(tree, ast.RangeVar)):
        return
    allowed = {"now"} if isinstance(tree, ast.UpdateStmt | ast.DeleteStmt) else set[str]()
    for name in function_names(tree):
        if name in UNSTEADY - allowed:
            yield f"{name} is called in a statement: pass the value as a parameter"


def plain_conflict(tree: Any) -> Iterator[str]:
    """Rule 6: ON CONFLICT DO UPDATE uses columns, EXCLUDED and parameters only. RETURNING computes nothing."""
    for clause in nodes(tree, ast.OnConflictClause):
        for node in nodes((clause.targetList, clause.whereClause), *COMPUTING):
            yield f"{type(node).__name__} in ON CONFLICT DO UPDATE: columns, EXCLUDED and parameters only"
    for clause in nodes(tree, ast.ReturningClause):
        if not all(isinstance(target.val, ast.ColumnRef) for target in clause.exprs):
            yield "RETURNING computes: return plain columns and compute in Python"


def no_insert_inside(tree: Any) -> Iterator[str]:
    """Rule 7: no CTE contains an INSERT."""
    for cte in nodes(tree, ast.CommonTableExpr):
        if isinstance(cte.ctequery, ast.InsertStmt):
            yield f"INSERT in the CTE {cte.ctename}: write a separate statement"


def claims_once(tree: Any) -> Iterator[str]:
    """Rule 4: a claim chooses its rows in a materialized CTE, because PostgreSQL may run a sub-select once per row."""
    chosen = [
        cte.ctequery
        for cte in nodes(tree, ast.CommonTableExpr)
        if cte.ctematerialized == CTEMaterialize.CTEMaterializeAlways
    ]
    for query in nodes(tree, ast.SelectStmt):
        if query is not tree and query.lockingClause and query.limitCount and query not in chosen:
            yield "LIMIT and a lock in a sub-select: choose in `WITH due AS MATERIALIZED (...)`"


def local_settings(tree: Any) -> Iterator[str]:
    """Rule 12: statements change settings by SET LOCAL only, so that each change ends with its transaction."""
    if "set_config" in function_names(tree):
        yield "set_config: use SET LOCAL"
    if isinstance(tree, ast.VariableSetStmt) and not tree.is_local and tree.name != "TRANSACTION":
        yield f"SET {tree.name} outlives its transaction: use SET LOCAL"


def plain_changes(tree: Any) -> Iterator[str]:
    """Rule 5: UPDATE and DELETE use no `CASE x WHEN` and no column as an array index.

    They also add no interval to a column or a parameter, and subtract none.
    """
    if not isinstance(tree, ast.UpdateStmt | ast.DeleteStmt):
        return
    for sum_ in nodes(tree, ast.A_Expr):
        if sum_.name[0].sval in {"+", "-"} and any(map(_is_interval, nodes(sum_, ast.TypeCast))):
            others = [
                node for node in nodes(sum_, ast.ColumnRef, ast.ParamRef) if node not in _cast_params(sum_)
            ]
            if others:
                yield "an interval is added to a column or parameter: compute the instant in Python"
    if any(case.arg for case in nodes(tree, ast.CaseExpr)):
        yield "`CASE x WHEN y` reaches the nodes as `CASE x WHEN x = y`: write CASE WHEN x = y"
    for element in nodes(tree, ast.A_Indices):
        if any(nodes(element, ast.ColumnRef)):
            yield "a column is used as an array index: join unnest(...) WITH ORDINALITY"


def discovery_reads(tree: Any) -> Iterator[str]:
    """Rule 4: a discovery statement writes and locks nothing, and a Citus node can run it for the node's accounts."""
    if any(nodes(tree, ast.InsertStmt, ast.UpdateStmt, ast.DeleteStmt)):
        yield "a statement over all accounts writes: claim account by account"
    if any(nodes(tree, ast.LockingClause)):
        yield "a statement over all accounts locks: claim account by account"
    if any(nodes(tree, ast.CommonTableExpr)):
        yield "a CTE over all accounts is gathered on one node: use a sub-select with GROUP BY account_id"
    if any(
        not inner.subquery.targetList for inner in nodes(tree, ast.RangeSubselect) if not inner.subquery.larg
    ):
        yield "a sub-select in FROM returns no column: its rows cannot be gathered"
    tables = [table for table in nodes(tree, ast.RangeVar) if not _is_system(table)]
    tied = {alias for part in nodes(tree, ast.A_Expr) for alias in _tied_aliases(part)}
    for table in tables if len(tables) > 1 else ():
        alias = table.alias.aliasname if table.alias else table.relname
        if alias not in tied:
            yield f"{table.relname} is not tied to the others by `{alias}.account_id = ...account_id`"


ALWAYS = (
    account_stays,
    deterministic,
    plain_changes,
    plain_conflict,
    no_insert_inside,
    claims_once,
    local_settings,
)


def _is_system(table: Any) -> bool:
    return table.relname.startswith(SYSTEM_TABLES)


def _is_account(value: Any) -> bool:
    while isinstance(value, ast.TypeCast):
        value = value.arg
    return isinstance(value, ast.ParamRef) and value.number == 1


def _is_column_of_account(value: Any) -> bool:
    return isinstance(value, ast.ColumnRef) and _names(value)[-1] == "account_id"


def _is_interval(cast: Any) -> bool:
    return cast.typeName.names[-1].sval == "interval"


def _cast_params(tree: Any) -> list[Any]:
    return [
        node for cast in nodes(tree, ast.TypeCast) if _is_interval(cast) for node in nodes(cast, ast.ParamRef)
    ]


def _names(column: Any) -> list[str | None]:
    return [getattr(name, "sval", None) for name in column.fields or ()]


def _tied_aliases(part: Any) -> list[str | None]:
    """Return both aliases of a condition `a.account_id = b.account_id`, and none for any other condition."""
    sides = [part.lexpr, part.rexpr]
    if part.name[0].sval != "=" or not all(isinstance(side, ast.ColumnRef) for side in sides):
        return []
    named = [_names(side) for side in sides]
    return [names[0] for names in named] if all(names[-1] == "account_id" for names in named) else []


def _bound_alias(part: Any) -> str | None:
    """Return `alias` of a condition `alias.account_id = $1`, "" for `account_id = $1`, None for other conditions."""
    match part:
        case ast.A_Expr(name=(ast.String(sval="="),), lexpr=ast.ColumnRef(fields=names), rexpr=value):
            pass
        case ast.A_Expr(name=(ast.String(sval="="),), lexpr=value, rexpr=ast.ColumnRef(fields=names)):
            pass
        case _:
            return None
    match [getattr(name, "sval", None) for name in names or ()]:
        case [*qualified, "account_id"] if _is_account(value):
            return qualified[-1] if qualified else ""
        case _:
            return None
