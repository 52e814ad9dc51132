"""Capture the engine's log lines, whatever logging configuration the process had before."""

import io
import logging
from collections.abc import Generator
from contextlib import contextmanager

import structlog

from fatura.observability import configure_logs, log


@contextmanager
def captured_logs() -> Generator[io.StringIO]:
    """Write logs as lines of JSON to the yielded stream, and restore the configuration afterwards."""
    before = structlog.get_config()
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    vars(log).pop("bind", None)  # a cached logger would keep writing to its old stream
    configure_logs(format_="json", level="info", stream=stream)
    structlog.configure(cache_logger_on_first_use=False)
    try:
        yield stream
    finally:
        structlog.configure(**before)
        root.handlers[:] = handlers
        root.setLevel(level)
