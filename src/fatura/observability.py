"""Structured logs with secrets redacted by name, and the metrics that `/metrics` serves."""

import logging
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TextIO, cast

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from structlog.typing import EventDict, ExcInfo, FilteringBoundLogger, Processor, WrappedLogger

SECRET_NAMES = frozenset(
    {"api_key", "apikey", "authorization", "cookie", "document", "email", "key", "password", "token"}
)
"""Names whose values are redacted in logs. Names that contain `secret` or `credential` are redacted too."""
BLANK = "[redacted]"

log: FilteringBoundLogger = structlog.get_logger()


def add_to_logs(**values: str) -> None:
    """Add values to all later log lines of this task. A task handles one request, or one batch of a lane."""
    structlog.contextvars.bind_contextvars(**values)


def redact(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Replace the value of each secret name with BLANK, and each exception with `logged(exception)`, at any depth.

    This is a structlog processor.
    """
    for name, value in event.items():
        if _is_secret(name):
            event[name] = BLANK
        elif name != "exc_info":
            event[name] = _redacted(value)
    return event


@lru_cache(maxsize=1024)
def _is_secret(name: str) -> bool:
    name = name.lower().replace("-", "_")
    return name in SECRET_NAMES or "secret" in name or "credential" in name


def _redacted(value: Any) -> Any:
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return {name: BLANK if _is_secret(str(name)) else _redacted(inner) for name, inner in items}
    if isinstance(value, (list, tuple)):
        return [_redacted(inner) for inner in cast("list[Any]", value)]
    return logged(value) if isinstance(value, BaseException) else value


def printable(text: str) -> str:
    r"""Return the text with every control, format and separator character escaped as in Python, such as `\x1b`.

    Use this function for a text that goes to a terminal, or to a log with one entry per line.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def logged(error: BaseException) -> str:
    """Return what logs show of an exception (D-231): its type, and up to three facts.

    The facts are the exception's `log_text`, the violated constraint, and the operating system's error. Other texts are
    left out, because they may contain data of customers. For example, the error of int("Ana") repeats its argument.
    """
    facts = (
        getattr(error, "log_text", None),
        getattr(error, "constraint_name", None),  # only errors of PostgreSQL have it
        os.strerror(error.errno) if isinstance(error, OSError) and error.errno is not None else None,
    )
    said = ", ".join(str(each) for each in facts if each)
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def traceback_of(error: BaseException) -> str:
    """Return the traceback of an exception, without texts of exceptions and without values of variables (D-231)."""
    return "\n".join(_traceback(error, set()))


def _traceback(error: BaseException, shown: set[int]) -> Iterator[str]:
    shown.add(id(error))
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if before is not None and id(before) not in shown:
        yield from _traceback(before, shown)
        caused = "This exception caused the following one:"
        yield caused if error.__cause__ else "While this exception was handled, the following one occurred:"
    yield "Traceback (most recent call last):"
    for frame in traceback.format_tb(error.__traceback__):
        yield from frame.rstrip("\n").split("\n")
    yield logged(error)
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        for number, each in enumerate(group.exceptions, start=1):
            yield f"Exception {number} of this group:"
            yield from _traceback(each, shown)


def _exception_of(exc_info: object) -> BaseException | None:
    """Return the exception that `exc_info` of a log call stands for, or None if there is none."""
    if exc_info is True:
        return sys.exc_info()[1]
    if isinstance(exc_info, tuple):
        exc_info = cast("tuple[object, ...]", exc_info)[1]
    return exc_info if isinstance(exc_info, BaseException) else None


def _format_exception(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Put the traceback of `exc_info` into `exception`. A structlog processor for JSON."""
    error = _exception_of(event.pop("exc_info", None))
    if error is not None:
        event["exception"] = traceback_of(error)
    return event


def _hide_texts_of_asyncio(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Keep only the beginning of asyncio's messages, which continue with the text of an exception or with arguments."""
    if event.get("logger") == "asyncio":
        event["event"] = str(event["event"]).partition("\n")[0].partition("(")[0]
    return event


def _escape(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Make every value printable. A structlog processor for text logs; the JSON renderer escapes values itself."""
    for name, value in event.items():
        if name != "exc_info":
            event[name] = printable(value if isinstance(value, str) else repr(value))
    return event


_SHARED: list[Processor] = [
    structlog.contextvars.merge_contextvars,
    structlog.processors.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    redact,
]
_JSON: list[Processor] = [
    _format_exception,
    structlog.processors.JSONRenderer(default=str),
]


TRACEBACK_MARK = "  | "
"""Stands at the beginning of each traceback line in text logs, so that no traceback line looks like a log line."""


def _write_traceback(out: TextIO, exc_info: ExcInfo) -> None:
    error = _exception_of(exc_info)
    if error is not None:
        lines = traceback_of(error).split("\n")
        out.write("".join(f"\n{TRACEBACK_MARK}{printable(line)}" for line in lines))


def _console(*, colors: bool) -> list[Processor]:
    """Return the renderers of text logs: one line for each event, and the lines of its traceback."""
    return [_escape, structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=_write_traceback)]


structlog.configure(processors=[*_SHARED, *_console(colors=False)])


def configure_logs(*, format_: str = "auto", level: str = "info", stream: TextIO | None = None) -> None:
    """Send all logs of the process, including those of libraries, to one stream (default: stderr).

    `format_` is `json`, `console` or `auto`, which means console on a terminal, else JSON.
    """
    out = sys.stderr if stream is None else stream
    is_console = format_ == "console" or (format_ == "auto" and out.isatty())
    renderers = _console(colors=out.isatty()) if is_console else _JSON
    numeric_level = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[*_SHARED, *renderers],
        wrapper_class=structlog.make_filtering_bound_logger(numeric_level),
        logger_factory=structlog.WriteLoggerFactory(out),
        cache_logger_on_first_use=True,
    )
    of_libraries = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[*_SHARED, structlog.stdlib.add_logger_name, _hide_texts_of_asyncio],
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderers],
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(of_libraries)
    logging.basicConfig(handlers=[handler], level=max(numeric_level, logging.INFO), force=True)


METRICS = CollectorRegistry()


@dataclass(frozen=True, slots=True)
class Described:
    """The description of a metric, for docs/reference/metrics.md."""

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str


DESCRIBED: list[Described] = []
"""All metrics, in the order in which their modules were imported."""


def counter(name: str, meaning: str, *labels: str) -> Counter:
    """Register a counter; its name must end in `_total`."""
    DESCRIBED.append(Described(name, "counter", labels, meaning))
    return Counter(name, meaning, labels, registry=METRICS)


def gauge(name: str, meaning: str, *labels: str, registry: CollectorRegistry = METRICS) -> Gauge:
    """Register a gauge, by default in the registry that `/metrics` serves."""
    DESCRIBED.append(Described(name, "gauge", labels, meaning))
    return Gauge(name, meaning, labels, registry=registry)


def histogram(
    name: str, meaning: str, *labels: str, buckets: Sequence[float] = Histogram.DEFAULT_BUCKETS
) -> Histogram:
    """Register a histogram of seconds; its name must end in `_seconds`."""
    DESCRIBED.append(Described(name, "histogram", labels, meaning))
    return Histogram(name, meaning, labels, registry=METRICS, buckets=buckets)
