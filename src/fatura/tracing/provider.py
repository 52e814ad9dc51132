"""The tracer that records spans with OpenTelemetry's SDK. Only `tracing.switch_on` imports this module."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import structlog
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Link, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from fatura import __version__
from fatura.tracing import Kind

_PROPAGATOR = TraceContextTextMapPropagator()
_NOTHING_BEFORE = Context()
Attributes = Mapping[str, str | int]


@dataclass(frozen=True, slots=True)
class RecordedSpan:
    """A span of OpenTelemetry, with the interface of `tracing.Span`."""

    span: trace.Span

    def set(self, **attributes: str | int) -> None:
        self.span.set_attributes(_dotted(attributes))

    def rename(self, name: str) -> None:
        self.span.update_name(name)


class OpenTelemetry:
    """Records spans, and gives them to a processor, which exports them in another thread."""

    def __init__(self, processor: SpanProcessor) -> None:
        self._provider = TracerProvider(
            resource=Resource.create({"service.version": __version__}).merge(_named())
        )
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("fatura", __version__)

    @classmethod
    def exporting(cls) -> "OpenTelemetry":
        """Return a tracer that exports over HTTP, to the collector that the OTEL_ variables name."""
        return cls(BatchSpanProcessor(OTLPSpanExporter()))

    @contextmanager
    def begin_trace(
        self, name: str, *, kind: Kind, client: str | None, attributes: Attributes
    ) -> Generator[RecordedSpan]:
        """Begin a trace, and add its id to the log lines of this task.

        The client's trace is only linked. If it were the parent, its id would be the id of this trace, and its sampled
        flag would decide whether this trace is recorded.
        """
        links: list[Link] = []
        if client is not None:
            context = _PROPAGATOR.extract({"traceparent": client}, context=_NOTHING_BEFORE)
            caller = trace.get_current_span(context).get_span_context()
            links = [Link(caller)] if caller.is_valid else []
        with self._span(name, kind, attributes, context=_NOTHING_BEFORE, links=links) as begun:
            trace_id = trace.format_trace_id(begun.span.get_span_context().trace_id)
            structlog.contextvars.bind_contextvars(trace_id=trace_id)
            yield begun

    @contextmanager
    def begin_span(self, name: str, *, kind: Kind, attributes: Attributes) -> Generator[RecordedSpan]:
        """Begin a part of the current trace; outside a trace, record nothing.

        Lanes poll outside of traces, all the time. If a span could begin a trace, each poll would become a trace.
        """
        current = trace.get_current_span()
        if not current.get_span_context().is_valid:
            yield RecordedSpan(current)
            return
        with self._span(name, kind, attributes) as begun:
            yield begun

    @contextmanager
    def _span(
        self,
        name: str,
        kind: Kind,
        attributes: Attributes,
        *,
        context: Context | None = None,
        links: list[Link] | None = None,
    ) -> Generator[RecordedSpan]:
        """Record a span. Of an exception, only the class is recorded, because the message may contain personal data."""
        with self._tracer.start_as_current_span(
            name,
            context=context,
            kind=SpanKind[kind],
            attributes=_dotted(attributes),
            links=links,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield RecordedSpan(span)
            except BaseException as error:
                span.set_status(StatusCode.ERROR)
                span.set_attribute("error.type", type(error).__qualname__)
                raise

    def headers(self) -> Mapping[str, str]:
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier)
        return {"traceparent": carrier["traceparent"]} if "traceparent" in carrier else {}

    def current(self) -> RecordedSpan:
        return RecordedSpan(trace.get_current_span())

    def shut_down(self) -> None:
        """Send the remaining spans."""
        self._provider.shutdown()


def _named() -> Resource:
    """Return a resource with the `service.name` that the OTEL_ variables set or, if they set none, `fatura`."""
    own = Resource.create()
    is_named = not str(own.attributes.get("service.name", "")).startswith("unknown_service")
    return own if is_named else own.merge(Resource({"service.name": "fatura"}))


def _dotted(attributes: Attributes) -> dict[str, str | int]:
    return {name.replace("__", "."): value for name, value in attributes.items()}
