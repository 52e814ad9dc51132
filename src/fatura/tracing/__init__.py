"""Traces of OpenTelemetry (D-232). They are off unless the standard OTEL_ variables switch them on.

`span` wraps a piece of work, and `headers` continues the trace in a call to another server. While traces are off, both
do nothing, and OpenTelemetry's SDK is not imported.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from typing import Protocol
from urllib.parse import urlsplit

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_PROTOCOL = "http/protobuf"
_SAMPLER_ARG = "OTEL_TRACES_SAMPLER_ARG"
_RATIO_SAMPLERS = frozenset({"traceidratio", "parentbased_traceidratio"})


class TracingError(Exception):
    """The OTEL_ variables are invalid, or ask for something that is not installed; the message says what to do."""


class Kind(StrEnum):
    """The process that does the work of a span.

    SERVER: this process, for a client. INTERNAL: this process, for itself. CLIENT: another server that this process
    calls.
    """

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
    """The interface that `provider.OpenTelemetry` implements."""

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
            message = (
                f'traces need OpenTelemetry ({error}): install Fatura\'s extra otel, as the page "Trace requests" of '
                "the documentation says, or set OTEL_TRACES_EXPORTER=none"
            )
            raise TracingError(message) from error
        use(OpenTelemetry.exporting())


def use(tracer: Tracer | None) -> None:
    global _tracer  # noqa: PLW0603 - a process has one tracer, as OpenTelemetry has
    _tracer = tracer


def is_on() -> bool:
    return _tracer is not None


def is_asked_for(environ: Mapping[str, str]) -> bool:
    """Return whether the environment names an exporter or an endpoint, and does not switch traces off.

    Raises TracingError if the environment asks for traces, but one of its settings is invalid: the exporter, the
    protocol, the endpoint or the sampler's ratio.
    """
    exporter = environ.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    endpoint = _first_set(environ, _ENDPOINTS)
    is_off = environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true" or exporter == "none"
    if is_off or not (exporter or endpoint):
        return False
    if exporter not in {"", "otlp"}:
        raise TracingError(f"OTEL_TRACES_EXPORTER is {exporter!r}; it must be otlp or none")
    protocol = _first_set(environ, _PROTOCOLS)
    if protocol is not None and protocol[1] != _PROTOCOL:
        raise TracingError(f"{protocol[0]} is {protocol[1]!r}; it must be {_PROTOCOL}")
    if endpoint is not None and not _is_http_url(endpoint[1]):
        raise TracingError(f"{endpoint[0]} must be a URL that begins with http:// or https://")
    _check_sampler(environ)
    return True


def _first_set(environ: Mapping[str, str], names: tuple[str, ...]) -> tuple[str, str] | None:
    """Return the name and the value of the first of these variables that is set, or None if none is set."""
    return next(((name, environ[name].strip()) for name in names if environ.get(name, "").strip()), None)


def _is_http_url(text: str) -> bool:
    try:
        url = urlsplit(text)
    except ValueError:
        return False
    return url.scheme in {"http", "https"} and bool(url.hostname)


def _check_sampler(environ: Mapping[str, str]) -> None:
    """Raise TracingError if the ratio is invalid, because OpenTelemetry would then record all traces."""
    text = environ.get(_SAMPLER_ARG, "").strip()
    if not text or environ.get("OTEL_TRACES_SAMPLER", "").strip().lower() not in _RATIO_SAMPLERS:
        return
    try:
        is_ratio = 0 <= float(text) <= 1
    except ValueError:
        is_ratio = False
    if not is_ratio:
        raise TracingError(f"{_SAMPLER_ARG} is {text!r}; it must be a number from 0 to 1, such as 0.05")


def begin_trace(
    name: str, *, kind: Kind, client: str | None = None, **attributes: str | int
) -> AbstractContextManager[Span]:
    """Begin a new trace. If `client` has the `traceparent` of the client's trace, link the new trace to that trace."""
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
    """Return the current span, so that the caller can add attributes that become known later."""
    return _NOTHING if _tracer is None else _tracer.current()


def headers() -> Mapping[str, str]:
    """Return the headers with which another server can continue the current trace; none while traces are off."""
    return {} if _tracer is None else _tracer.headers()
