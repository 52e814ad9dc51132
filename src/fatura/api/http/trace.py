"""The state of a running request: its correlation id (D-13), and the route and status for logs and metrics."""

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
    """One request; `route` is the path template, set when a route matches."""

    request_id: str
    route: str | None = None
    status: int | None = None


def begin(scope: Scope) -> Trace:
    trace = scope[_KEY] = Trace(_request_id(scope["headers"]))
    return trace


def trace_of(scope: Scope) -> Trace:
    trace = scope[_KEY]
    assert isinstance(trace, Trace), "the observer starts every trace"
    return trace


def _request_id(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the client's X-Request-Id, or a new id if it is missing, repeated or malformed (D-13)."""
    sent = values(headers, b"x-request-id")
    if len(sent) == 1 and _ACCEPTED.fullmatch(sent[0]):
        return sent[0].decode()
    return str(uuid_utils.uuid7())


def trace_parent(scope: Scope) -> str | None:
    """Return the client's `traceparent`, or None if it is missing or repeated. The tracer ignores a malformed one."""
    sent = values(scope["headers"], b"traceparent")
    return sent[0].decode("latin-1") if len(sent) == 1 else None


def values(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> list[bytes]:
    """Return all values of a header, without surrounding blanks; `name` is in lower case."""
    return [value.strip(b" \t") for each, value in headers if each == name]
