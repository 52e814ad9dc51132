"""Each log event is one line, and contains no secrets and no personal data."""

import asyncio
import errno
import gc
import json
import logging

import pytest
import structlog

from fatura import cli
from fatura.domain.errors import INTERNAL, EngineError
from fatura.failure_text import OwnTextError
from fatura.gateways.port import TransientError
from fatura.observability import BLANK, TRACEBACK_MARK, log, printable, redact
from fatura.store.db import DatabaseUnavailableError
from tests.support.captured_logs import captured_logs


@pytest.fixture
def lines():
    """A function that returns the logged lines as JSON.

    The logging configuration is restored after the test.
    """
    with captured_logs() as stream:
        yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]


@pytest.mark.parametrize(
    "name",
    ["authorization", "Authorization", "key", "api_key", "Api-Key", "secret", "integration_secret", "credentials",
     "credentials_sealed", "document", "email", "password", "token"],
)  # fmt: skip
def test_secrets_are_blanked_by_their_names(name):
    assert redact(None, "info", {name: "x"}) == {name: BLANK}
    assert redact(None, "info", {"a": [{"b": {name: {"c": 1}}}]}) == {"a": [{"b": {name: BLANK}}]}


@pytest.mark.parametrize("name", ["event", "request_id", "idempotent", "keys", "documents_count", "route"])
def test_other_names_are_kept(name):
    assert redact(None, "info", {name: ["x", 1]}) == {name: ["x", 1]}


def test_logged_text_cannot_forge_a_second_line(lines):
    log.info("x", text='a\n{"event":"forged"}\r\x1b[31m', odd="\ud800", other=object)
    (line,) = lines()
    assert (line["event"], line["level"], line["odd"]) == ("x", "info", "\ud800")


def test_failures_are_logged_with_their_traceback(lines):
    def fail(canary: str) -> None:
        raise KeyError(len(canary))

    try:
        fail("canary")
    except KeyError:
        log.exception("failed")
    (line,) = lines()
    assert line["exception"].startswith("Traceback")
    assert "raise KeyError(len(canary))" in line["exception"]
    assert line["exception"].endswith("\nKeyError")


def test_libraries_log_the_same_way(lines):
    structlog.contextvars.bind_contextvars(request_id="r")
    try:
        int("odd")
    except ValueError:
        logging.getLogger("library").exception("went %s", "wrong")
    logging.getLogger("library").debug("not shown")
    structlog.contextvars.clear_contextvars()
    (line,) = lines()
    assert (line["event"], line["logger"], line["level"], line["request_id"]) == (
        "went wrong",
        "library",
        "error",
        "r",
    )
    assert line["exception"].endswith("\nValueError")


CANARY = "Ana Souza"


def _fail_with_data() -> None:
    """Raise an exception group with a cause and a context. All texts of these exceptions contain CANARY."""
    try:
        try:
            raise KeyError(CANARY)  # noqa: TRY301 - the exception is the context of the next one
        except KeyError:
            int(CANARY)
    except ValueError as error:
        failed = [
            OSError(errno.ENOENT, CANARY),
            TransientError(CANARY, http_status=503),
            EngineError(INTERNAL, CANARY),
        ]
        failed[0].add_note(CANARY)
        raise ExceptionGroup(CANARY, failed) from error


@pytest.mark.parametrize("format_", ["json", "console"])
def test_logs_show_only_texts_of_exceptions_that_fatura_writes(format_):
    """[D-231]"""
    with captured_logs(format_) as stream:
        try:
            _fail_with_data()
        except ExceptionGroup as error:
            log.exception("failed", error=error, nested=[error])
            logging.getLogger("library").exception("failed")
        log.error("own", error=DatabaseUnavailableError("the database is unavailable"))
    written = stream.getvalue()
    assert CANARY not in written
    for shown in (
        "KeyError",
        "ValueError",
        "FileNotFoundError: No such file or directory",
        "TransientError: HTTP 503",
        "EngineError: engine.internal",
        "ExceptionGroup",
        "raise KeyError(CANARY)",
        "DatabaseUnavailableError: the database is unavailable",
    ):
        assert shown in written


async def test_the_event_loop_logs_no_texts_of_exceptions(lines):
    """[D-231]"""

    async def fail() -> None:
        raise ValueError(CANARY)

    def fail_later(_name: str) -> None:
        raise ValueError(CANARY)

    loop = asyncio.get_running_loop()
    task = loop.create_task(fail(), name="lost")
    loop.call_soon(fail_later, CANARY)
    await asyncio.sleep(0.01)
    del task
    gc.collect()
    logged = lines()
    assert [line["event"].partition(" <")[0] for line in logged] == [
        "Exception in callback",
        "Task exception was never retrieved",
    ]
    assert CANARY not in json.dumps(logged)
    assert all(line["exception"].endswith("\nValueError") for line in logged)


def test_a_command_that_fails_unexpectedly_prints_no_text_of_the_exception(monkeypatch, capsys):
    """[D-231]"""

    def fail() -> None:
        raise ValueError(CANARY)

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    printed = capsys.readouterr().err
    assert ended.value.code == 1
    assert CANARY not in printed
    assert printed.endswith("\nValueError\n")


HOSTILE = "a\n2026-11-24T00:00:00Z [error    ] forged\r\x1b[2J\x9b31m\u202e\u2028\ud800"


def _fail() -> None:
    raise OwnTextError(HOSTILE)


def _log_hostile_text() -> None:
    log.info(HOSTILE, name=HOSTILE, several=[HOSTILE])
    logging.getLogger("library").warning("said %s", HOSTILE)
    try:
        _fail()
    except OwnTextError as error:
        log.exception("failed", error=error)


@pytest.mark.parametrize("format_", ["json", "console"])
def test_logs_have_no_raw_control_characters_and_one_line_for_each_event(format_):
    """In text logs, each line of a traceback begins with TRACEBACK_MARK. [D-219]"""
    with captured_logs(format_) as stream:
        _log_hostile_text()
    written = stream.getvalue()
    lines = written.removesuffix("\n").split("\n")
    assert "".join(lines).isprintable()
    records = [line for line in lines if not line.startswith(TRACEBACK_MARK)]
    assert len(records) == 3
    assert not any(line.startswith("2026-11-24T00") for line in lines)
    marked = [line for line in lines if line.startswith(TRACEBACK_MARK)]
    assert bool(marked) is (format_ == "console")
    assert written.count("OwnTextError: a") == 2


def test_printable_text_is_kept():
    """[D-219]"""
    assert printable("Ana São João 川 50%") == "Ana São João 川 50%"
    assert printable("\x1b[1m\u202e\U000e0041") == "\\x1b[1m\\u202e\\U000e0041"
