"""Each log event is one line of JSON and contains no secrets."""

import json
import logging

import pytest
import structlog

from fatura.observability import BLANK, TRACEBACK_MARK, log, printable, redact
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
    assert "KeyError: 6" in line["exception"]
    assert "Traceback" in line["exception"]


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
    assert "ValueError: invalid literal" in line["exception"]


HOSTILE = "a\n2026-11-24T00:00:00Z [error    ] forged\r\x1b[2J\x9b31m\u202e\u2028\ud800"


def _fail() -> None:
    raise ValueError(HOSTILE)


def _log_hostile_text() -> None:
    log.info(HOSTILE, name=HOSTILE, several=[HOSTILE])
    logging.getLogger("library").warning("said %s", HOSTILE)
    try:
        _fail()
    except ValueError as error:
        error.add_note(HOSTILE)
        log.exception("failed", error=str(error))


@pytest.mark.parametrize("format_", ["json", "console"])
def test_logs_have_no_raw_control_characters_and_one_line_for_each_event(format_):
    """The lines of a traceback in text logs are marked. [D-219]"""
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
    assert written.count("ValueError: a") == 1


def test_printable_text_is_kept():
    """[D-219]"""
    assert printable("Ana São João 川 50%") == "Ana São João 川 50%"
    assert printable("\x1b[1m\u202e\U000e0041") == "\\x1b[1m\\u202e\\U000e0041"
