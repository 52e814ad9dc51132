"""What is known of one request while it runs: its correlation id (D-13), and what logs and metrics say of it."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

import uuid_utils
from starlette.types import Scope

HEADER = "X-Request-Id"
_KEY = "fatura.trace"
_ACCEPTED = re.compile(rb"[\x21-\x7e]{1,128}")


@dataclass(slots=True)
class Trace:
    """One request; `route` is its path's template, once it is matched."""

    request_id: str
    route: str | None = None
    status: int | None = None


def begin(scope: Scope) -> Trace:
    """Start a request's trace and keep it in its scope."""
    trace = scope[_KEY] = Trace(_request_id(scope["headers"]))
    return trace


def trace_of(scope: Scope) -> Trace:
    """Return the trace of a request that was begun."""
    trace = scope[_KEY]
    assert isinstance(trace, Trace), "every request goes through the observer"
    return trace


def _request_id(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the caller's X-Request-Id when it is one of 1..128 visible ASCII characters, else a new id (D-13)."""
    sent = values(headers, b"x-request-id")
    if len(sent) == 1 and _ACCEPTED.fullmatch(sent[0]):
        return sent[0].decode()
    return str(uuid_utils.uuid7())


def values(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> list[bytes]:
    """Return all values of a header, by its name in lower case; blanks around a value are none of it."""
    return [value.strip(b" \t") for each, value in headers if each == name]
