"""Failures are described in words, without names of exceptions."""

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
        f"{path.relative_to(SOURCE)}: {line.strip()}"
        for path in SOURCE.rglob("*.py")
        for line in path.read_text("utf-8").splitlines()
        if "type(error).__name__" in line or "type(failure).__name__" in line
    ]
    assert [
        each
        for each in found
        if "error=f" not in each and "dialing.py" not in each and "observability.py" not in each
    ] == []
