"""Find and parse the SQL statements in the Python code."""

import ast as python
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pglast import ast, parse_sql
from pglast.enums import BoolExprType
from pglast.parser import ParseError

from tests.tidy.sources import Source

_STATEMENT = re.compile(
    r"(\s|\(|--[^\n]*\n)*"
    r"(SELECT|INSERT INTO|UPDATE|DELETE FROM|WITH|MERGE INTO|TRUNCATE|SET|LOCK TABLE|COPY|CALL|DECLARE|VALUES)\s+\S"
)
_ANY_STATEMENT = re.compile(
    r"\b(SELECT\b.*\bFROM|INSERT INTO|UPDATE \w+( \w+)? SET|DELETE FROM)\b", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Statement:
    """A parsed SQL literal and its place. `owner` is the enclosing function or constant."""

    path: str
    line: int
    owner: str
    tree: Any

    @property
    def discovers(self) -> bool:
        """Whether the owner's name begins with `discover`. Such a statement may read rows of all accounts."""
        return self.owner.startswith("discover")


class NotSqlError(Exception):
    """A literal begins like an SQL statement but is not exactly one valid statement."""


def literals(source: Source) -> Iterator[tuple[int, str, str]]:
    """Yield the line, the owner and the text of every string that begins like an SQL statement."""
    for node, owner in _owned(source.tree, ""):
        if isinstance(node, python.Constant) and isinstance(node.value, str) and _STATEMENT.match(node.value):
            yield node.lineno, owner, node.value


def concatenated(source: Source) -> Iterator[int]:
    """Yield the lines where an f-string, `%`, `+` or `format` builds SQL from parts."""
    for node in python.walk(source.tree):
        match node:
            case python.JoinedStr(values=parts):
                text = " ".join(str(part.value) for part in parts if isinstance(part, python.Constant))
            case python.BinOp(left=python.Constant(value=str(text)), op=python.Add() | python.Mod()):
                pass
            case python.Call(func=python.Attribute(value=python.Constant(value=str(text)), attr="format")):
                pass
            case _:
                continue
        if _ANY_STATEMENT.search(text):
            yield node.lineno


def statements(source: Source) -> Iterator[Statement]:
    """Parse every SQL literal of a file with the grammar of PostgreSQL. Raises NotSqlError."""
    for line, owner, text in literals(source):
        try:
            parsed = parse_sql(text)
        except ParseError as error:
            raise NotSqlError(f"{source.path}:{line}: {error}") from error
        if len(parsed) != 1:
            raise NotSqlError(f"{source.path}:{line}: {len(parsed)} statements in one literal")
        yield Statement(source.path, line, owner, parsed[0].stmt)


def _owned(node: python.AST, owner: str) -> Iterator[tuple[python.AST, str]]:
    yield node, owner
    match node:
        case python.FunctionDef(name=name) | python.AsyncFunctionDef(name=name):
            owner = name
        case python.Assign(targets=[python.Name(id=name)]) | python.AnnAssign(target=python.Name(id=name)):
            owner = owner or name.lower()
        case _:
            pass
    if not isinstance(node, python.JoinedStr):
        for child in python.iter_child_nodes(node):
            yield from _owned(child, owner)


def walk(node: Any, *, skip: tuple[type[ast.Node], ...] = ()) -> Iterator[Any]:
    """Yield a node and all nodes below it. A field that holds a node of a type in `skip` is left out."""
    if isinstance(node, tuple):
        for each in node:
            yield from walk(each, skip=skip)
    elif isinstance(node, ast.Node):
        yield node
        for name in node:
            if not isinstance(inner := getattr(node, name), skip):
                yield from walk(inner, skip=skip)


def nodes(tree: Any, *kinds: type[ast.Node]) -> Iterator[Any]:
    return (node for node in walk(tree) if isinstance(node, kinds))


def walk_level(node: Any) -> Iterator[Any]:
    """Yield the nodes of a query, but not the nodes of its sub-queries."""
    return walk(node, skip=(ast.SelectStmt, ast.WithClause))


def function_names(tree: Any) -> Iterator[str]:
    """Yield the names of the called functions, including those without parentheses, such as CURRENT_DATE."""
    yield from (call.funcname[-1].sval for call in nodes(tree, ast.FuncCall))
    yield from (
        value.op.name.removeprefix("SVFOP_").lower().removesuffix("_n")
        for value in nodes(tree, ast.SQLValueFunction)
    )


def conjuncts(condition: Any) -> Iterator[Any]:
    """Split a condition at its ANDs, and yield the parts. A condition without AND is yielded whole."""
    if isinstance(condition, ast.BoolExpr) and condition.boolop == BoolExprType.AND_EXPR:
        for part in condition.args or ():
            yield from conjuncts(part)
    elif condition is not None:
        yield condition
