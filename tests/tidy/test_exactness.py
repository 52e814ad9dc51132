"""House rules on exactness: money is never a float, and the domain reads no clock."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.tidy.sources import Finding, Source, none, repository

EXACT_PACKAGES = ("src/fatura/domain/", "src/fatura/store/")
SECONDS_AND_PATHS = {
    "src/fatura/postgres/": "starts a process: waits seconds and joins paths",
    "src/fatura/store/migrations/": "joins paths, waits seconds",
    "src/fatura/store/notify.py": "waits fractions of a second",
}
"""Files and folders that may contain floats and `/`, with the reason.

The rule cannot tell a joined path from a division.
"""
MONEY = re.compile(r"cents|amount|price|total|money", re.IGNORECASE)
AMBIENT = {"datetime", "date", "time", "uuid", "os", "random", "secrets", "uuid_utils"}
HARMLESS = {"combine", "fromisoformat", "fromtimestamp", "fromordinal", "fromisocalendar", "strptime", "UUID"}


def inexact(node: ast.AST) -> str | None:
    """If a node can make a number inexact, return the name of its construct, otherwise None."""
    match node:
        case ast.Constant(value=float()):
            return "a float"
        case ast.Name(id="float" | "Decimal" as name) | ast.Attribute(attr="Decimal" as name):
            return name
        case ast.BinOp(op=ast.Div()) | ast.AugAssign(op=ast.Div()):
            return "true division"
        case ast.Call(func=ast.Name(id="round")):
            return "round"
        case _:
            return None


def floats(source: Source) -> Iterator[Finding]:
    """Refuse floats and other inexact numbers anywhere in a file. The packages that handle money must pass."""
    for node in ast.walk(source.tree):
        if what := inexact(node):
            line = getattr(node, "lineno", 1)
            yield Finding(
                source.path,
                line,
                f"{what} in a package of money: use integers, and round by // after adding half",
            )


def inexact_money(source: Source) -> Iterator[Finding]:
    """Refuse inexact numbers in a Python statement that also contains a word for money, such as `price`."""
    lines = source.lines
    for statement in ast.walk(source.tree):
        if not isinstance(statement, ast.stmt) or hasattr(statement, "body"):
            continue
        text = "\n".join(lines[statement.lineno - 1 : statement.end_lineno])
        whats = list(filter(None, map(inexact, ast.walk(statement))))
        if whats and MONEY.search(text):
            yield Finding(
                source.path,
                statement.lineno,
                f"{whats[0]} beside money: use integer cents, and round by // after adding half",
            )


def clocks_and_randomness(source: Source) -> Iterator[Finding]:
    """Refuse calls that read a clock or random numbers. The domain takes such values as arguments."""
    for node in ast.walk(source.tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=of) | ast.Attribute(attr=of), attr=asked)):
                if of in AMBIENT and asked not in HARMLESS:
                    yield Finding(source.path, node.lineno, f"{of}.{asked}(): take the value as an argument")
            case _:
                pass


def needs_exactness(path: str) -> bool:
    """Return whether the rule `floats` applies to the file."""
    return path.startswith(EXACT_PACKAGES) and not path.startswith(tuple(SECONDS_AND_PATHS))


def test_domain_and_store_use_no_floats():
    """[spec 2.1 money, D-7]"""
    sources = [source for source in repository(".py", under="src/") if needs_exactness(source.path)]
    assert sources
    assert none(finding for source in sources for finding in floats(source))


def test_no_statement_mixes_money_and_floats():
    assert none(finding for source in repository(".py", under="src/") for finding in inexact_money(source))


def test_the_domain_reads_no_clock_and_no_random_number():
    assert none(
        finding
        for source in repository(".py", under="src/fatura/domain/")
        for finding in clocks_and_randomness(source)
    )


@pytest.mark.parametrize(
    ("rule", "bad"),
    [
        (floats, "HALF = 0.5"),
        (floats, "def half(percent: float): ..."),
        (floats, "share = whole / 2"),
        (floats, "whole /= 2"),
        (floats, "from decimal import Decimal\nx = Decimal(1)"),
        (floats, "x = round(y)"),
        (inexact_money, "total_cents = monthly * 0.9"),
        (inexact_money, "return price_cents / 100"),
        (inexact_money, "class A:\n    amount: float"),
        (clocks_and_randomness, "datetime.now(UTC)"),
        (clocks_and_randomness, "datetime.date.today()"),
        (clocks_and_randomness, "uuid.uuid4()"),
    ],
)
def test_a_bad_sample_is_found(rule, bad):
    assert list(rule(Source("a.py", bad)))


def test_seconds_may_be_fractions():
    assert not list(inexact_money(Source("a.py", "timeout_seconds = 0.5")))
