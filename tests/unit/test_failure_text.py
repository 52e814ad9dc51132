"""Failures are described in words, without names of exceptions."""

import ast
import errno
import re
import socket
import ssl
from pathlib import Path

import pytest

import fatura
from fatura.failure_text import reason_of

SOURCE = Path(fatura.__file__).parent
REFUSED = OSError(
    "Multiple exceptions: [Errno 111] Connect call failed ('::1', 9, 0, 0), [Errno 111] Connect call"
)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (
            ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 9)"),
            "nothing answers at 127.0.0.1 port 9",
        ),
        (REFUSED, "nothing answers at ::1 port 9"),
        (ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"), "closed by the other side"),
        (socket.gaierror(-2, "Name or service not known"), "host name is unknown"),
        (TimeoutError(), "no answer in time"),
        (ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number"), "TLS failed"),
        (ValueError("the port is missing"), "the port is missing"),
        (ValueError(), "try again"),
    ],
)
def test_a_failure_is_described_in_words(error: Exception, says: str) -> None:
    """[D-253]"""
    text = reason_of(error)
    assert says in text
    assert not re.search(r"Error\b|Exception", text)


def test_only_logs_name_exceptions() -> None:
    """[D-253]"""
    found = [
        f"{path.relative_to(SOURCE)}: {line}"
        for path in SOURCE.rglob("*.py")
        if path.name not in {"dialing.py", "observability.py", "provider.py"}  # these write logs and spans
        for line in named_exceptions(path.read_text("utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("raise X(f'{type(error).__name__}')", True),
        ("raise X(error.__class__.__qualname__)", True),
        ("raise X(repr(error))", True),
        ("raise X(f'{error!r}')", True),
        ("raise X('%r' % error)", True),
        ("raise X(traceback.format_exc())", True),
        ("log.warning('x', error=repr(error))", False),
        ("raise X(f'{name!r} is unknown')", False),
        ("raise X(str(error))", False),
    ],
)
def test_each_way_to_name_an_exception_is_found(text: str, *, is_found: bool) -> None:
    """[D-253]"""
    assert bool(named_exceptions(f"try: x()\nexcept OSError as error: {text}")) is is_found


def named_exceptions(text: str) -> list[str]:
    """Return the expressions that contain the name of an exception, except the arguments of `log`."""
    tree = ast.parse(text)
    caught = {each.name for each in ast.walk(tree) if isinstance(each, ast.ExceptHandler) and each.name}
    caught |= {
        each.arg
        for each in ast.walk(tree)
        if isinstance(each, ast.arg)
        and each.annotation is not None
        and re.search(r"Exception|Error", ast.unparse(each.annotation))
    }
    logged = {
        id(inner)
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and ast.unparse(call.func).startswith("log.")
        for inner in ast.walk(call)
    }
    names = "|".join(map(re.escape, sorted(caught))) or r"(?!)"
    ways = re.compile(
        rf"(?:type\((?:{names})\)|\b(?:{names})\.__class__)\.__(?:qual)?name__|repr\((?:{names})\)"
        rf"|\{{(?:{names})!r\}}|%r.* % \(?(?:{names})\b|\bformat_exc\(|\bformat_exception\w*\("
    )
    return [
        ast.unparse(each)
        for each in ast.walk(tree)
        if isinstance(each, ast.Attribute | ast.Call | ast.JoinedStr | ast.BinOp)
        and id(each) not in logged
        and ways.search(ast.unparse(each))
    ]
