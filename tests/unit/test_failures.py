"""Every response has a request id. Internal errors reveal nothing about their cause. [D-13]"""

import json

import pytest
import structlog

from fatura.domain.errors import (
    GATEWAY_CHOICE_REQUIRED,
    INTERNAL,
    UNAVAILABLE,
)
from tests.unit.test_problems import check
from tests.unit.tiny_api import SECRET, UNKNOWN_ID

TOO_LONG = "x" * 129


@pytest.mark.parametrize(
    ("failure", "problem", "retry_after"),
    [
        ("bug", INTERNAL, None),
        ("database", UNAVAILABLE, "1"),
        ("deadlock", UNAVAILABLE, "1"),
        ("lock", UNAVAILABLE, "1"),
        ("choice", GATEWAY_CHOICE_REQUIRED, None),
    ],
)
async def test_failures_reveal_no_internals(client, failure, problem, retry_after):
    """[spec 7 problem+json, D-12]"""
    with structlog.testing.capture_logs() as logs:
        answer = await client.get(f"/v1/failures/{failure}")
    check(answer, problem)
    assert SECRET not in answer.text
    assert answer.headers.get("retry-after") == retry_after
    assert answer.json().get("meta") == ({"options": []} if failure == "choice" else None)
    logged = [entry["event"] for entry in logs]
    expected = {"bug": ["request.failed"], "choice": []}.get(failure, ["request.database_failed"])
    assert logged == [*expected, "request"]


@pytest.mark.parametrize("path", ["/v1/things", "/v1/nothing", "/v1/failures/bug", "/health", "/docs"])
@pytest.mark.parametrize(
    ("sent", "taken"),
    [("x", True), ("a~!" + "x" * 125, True), (TOO_LONG, False), ("a b", False), ("", False)],
)
async def test_the_request_id_is_returned_or_created(client, path, sent, taken):
    """[D-13]"""
    answer = await client.get(path, headers={"X-Request-Id": sent})
    assert (answer.headers["x-request-id"] == sent) is taken
    assert len(answer.headers["x-request-id"]) == len(sent if taken else UNKNOWN_ID)
    if answer.status_code >= 400:
        assert answer.json()["requestId"] == answer.headers["x-request-id"]


async def test_head_is_get_without_a_body(client):
    """Some monitoring tools send HEAD. [spec 4.1 GET /health 200, D-102]"""
    assert (await client.head("/v1/things")).status_code == 200
    assert (await client.head("/health")).status_code == 200
    assert (await client.get("/health")).json() == {"status": "ok"}


async def test_one_line_is_logged_for_each_request(client):
    """[D-13]"""
    with structlog.testing.capture_logs(processors=[structlog.contextvars.merge_contextvars]) as logs:
        await client.get(f"/v1/things/{UNKNOWN_ID}", headers={"X-Request-Id": "mine"})
        await client.get("/v1/nothing")
    first, second = logs
    assert first.pop("latency_ms") > 0
    assert first == {
        "event": "request",
        "log_level": "info",
        "method": "GET",
        "route": "/v1/things/{thingId}",
        "status": 200,
        "request_id": "mine",
        "account_id": "00000000-0000-0000-0000-000000000001",
    }
    assert (second["route"], second["status"], "account_id" in second) == ("unmatched", 404, False)


async def test_unusual_characters_in_a_path_are_escaped_in_the_answer(client):
    answer = await client.get("/v1/things/%22%3C%0A%E2%80%A8")
    assert json.loads(answer.content)["detail"] == 'No thing has the id "<\n\u2028.'
