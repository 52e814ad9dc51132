"""Capture the engine's log lines."""

import io
import logging
from collections.abc import Generator
from contextlib import contextmanager

import structlog

from fatura.observability import configure_logs, log


@contextmanager
def captured_logs(format_: str = "json") -> Generator[io.StringIO]:
    """Write logs to the yielded stream, by default as lines of JSON, and restore the configuration afterwards."""
    before = structlog.get_config()
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    vars(log).pop("bind", None)  # a cached logger would keep writing to its old stream
    configure_logs(format_=format_, level="info", stream=stream)
    structlog.configure(cache_logger_on_first_use=False)
    try:
        yield stream
    finally:
        structlog.configure(**before)
        root.handlers[:] = handlers
        root.setLevel(level)
