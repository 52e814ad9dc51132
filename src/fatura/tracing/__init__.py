"""Traces of OpenTelemetry (D-232). They are off unless the standard OTEL_ variables switch them on.

`span` wraps a piece of work, and `headers` continues the trace in a call to another server. While traces are off, both
do nothing, and OpenTelemetry's SDK is not imported.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from typing import Protocol

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_PROTOCOL = "http/protobuf"


class TracingError(Exception):
    """The OTEL_ variables ask for something that is not installed or not supported; the message says what to do."""


class Kind(StrEnum):
    """Who does a span's work: this process for a client (SERVER), this process alone, or another server (CLIENT)."""

    SERVER = "SERVER"
    INTERNAL = "INTERNAL"
    CLIENT = "CLIENT"


class Span(Protocol):
    def set(self, **attributes: str | int) -> None:
        """Set attributes. A double underscore in a name stands for a dot."""
        ...

    def rename(self, name: str) -> None: ...


class _NoSpan:
    def set(self, **attributes: str | int) -> None: ...

    def rename(self, name: str) -> None: ...


class Tracer(Protocol):
    """What `provider.OpenTelemetry` implements."""

    def begin_trace(
        self, name: str, *, kind: Kind, client: str | None, attributes: Mapping[str, str | int]
    ) -> AbstractContextManager[Span]: ...

    def begin_span(
        self, name: str, *, kind: Kind, attributes: Mapping[str, str | int]
    ) -> AbstractContextManager[Span]: ...

    def headers(self) -> Mapping[str, str]: ...

    def current(self) -> Span: ...


_NOTHING = _NoSpan()
_OFF: AbstractContextManager[Span] = nullcontext(_NOTHING)
_tracer: Tracer | None = None


def switch_on(environ: Mapping[str, str]) -> None:
    """Switch traces on if the environment asks for them; later calls do nothing. Raises TracingError."""
    if _tracer is None and is_asked_for(environ):
        try:
            from fatura.tracing.provider import OpenTelemetry  # noqa: PLC0415 - an optional dependency
        except ImportError as error:
            message = f"traces need OpenTelemetry ({error}): run `pip install 'fatura[otel]'`, or unset {_ENDPOINTS[0]}"
            raise TracingError(message) from error
        use(OpenTelemetry.exporting())


def use(tracer: Tracer | None) -> None:
    global _tracer  # noqa: PLW0603 - a process has one tracer, as OpenTelemetry has
    _tracer = tracer


def is_on() -> bool:
    return _tracer is not None


def is_asked_for(environ: Mapping[str, str]) -> bool:
    """Return whether the environment names an exporter or an endpoint, and does not switch traces off.

    Raises TracingError if it names an exporter or a protocol that is not supported.
    """
    exporter = environ.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    is_off = environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true" or exporter == "none"
    if is_off or not (exporter or any(environ.get(name, "").strip() for name in _ENDPOINTS)):
        return False
    if exporter not in {"", "otlp"}:
        raise TracingError(f"OTEL_TRACES_EXPORTER is {exporter!r}; it must be otlp or none")
    protocol = next(
        (environ[name].strip() for name in _PROTOCOLS if environ.get(name, "").strip()), _PROTOCOL
    )
    if protocol != _PROTOCOL:
        raise TracingError(f"{_PROTOCOLS[1]} is {protocol!r}; it must be {_PROTOCOL}")
    return True


def begin_trace(
    name: str, *, kind: Kind, client: str | None = None, **attributes: str | int
) -> AbstractContextManager[Span]:
    """Begin a new trace. If a client sent the `traceparent` `client`, link the new trace to the client's trace."""
    if _tracer is None:
        return _OFF
    return _tracer.begin_trace(name, kind=kind, client=client, attributes=attributes)


def span(name: str, *, kind: Kind = Kind.INTERNAL, **attributes: str | int) -> AbstractContextManager[Span]:
    """Begin a part of the current trace; outside a trace, do nothing.

    A double underscore in an attribute's name stands for a dot.
    """
    if _tracer is None:
        return _OFF
    return _tracer.begin_span(name, kind=kind, attributes=attributes)


def current() -> Span:
    """Return the current span, to set attributes that are known only later."""
    return _NOTHING if _tracer is None else _tracer.current()


def headers() -> Mapping[str, str]:
    """Return the headers with which another server can continue the current trace; none while traces are off."""
    return {} if _tracer is None else _tracer.headers()
