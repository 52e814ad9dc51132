"""Each log event is one line of JSON and contains no secrets."""

import json
import logging

import pytest
import structlog

from fatura.observability import BLANK, log, redact
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
