"""What a price endpoint's response means, and when the next call is due (spec 4.7, D-29, D-30)."""

import json
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fatura.domain.pricing import (
    MAX_STORED_BYTES,
    OFFSETS,
    CallMode,
    next_attempt_at,
    read_answer,
    stored_body,
)
from fatura.views.price_calls import PricePeriodView, PriceReferenceView, PriceRequestView

CAP = 10_000


def read(body: bytes) -> tuple[str, int | None, str | None]:
    """Return the outcome, amount and description of a response, with a price cap of 10,000 cents."""
    answer = read_answer(body, cap_cents=CAP)
    return str(answer.outcome), answer.amount_cents, answer.description


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"amount": 0}', ("ok", 0, None)),
        (b' {"amount":10000 , "x": {"y": [1.5, null]}} ', ("ok", 10000, None)),
        ('{"amount": 1, "description": "Água ☕"}'.encode(), ("ok", 1, "Água ☕")),
        (b'{"amount": 1, "description": ""}', ("ok", 1, "")),
        (b'{"amount": 1, "skip": false}', ("ok", 1, None)),
        (b'{"skip": true}', ("skip", None, None)),
        (b'{"skip": true, "amount": "12", "description": "idle"}', ("skip", None, "idle")),
        (b'{"amount": 10001}', ("over_cap", None, None)),
        (b'{"amount": 99999999999999999999999999}', ("over_cap", None, None)),
    ],
)
def test_a_valid_answer_has_its_outcome(body: bytes, expected: tuple[str, int | None, str | None]) -> None:
    """[spec 4.2 outcome ok, spec 4.2 outcome skip, spec 4.2 outcome over_cap, D-30]"""
    assert read(body) == expected


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"12",
        b"[]",
        b'"amount"',
        b"{}",
        b'{"amount": null}',
        b'{"amount": -1}',
        b'{"amount": 1.0}',
        b'{"amount": 1e2}',
        b'{"amount": true}',
        b'{"amount": "12"}',
        b'{"amount": NaN}',
        b'{"amount": Infinity}',
        b'{"amount": 1, "amount": 1}',
        b'{"amount": 1, "skip": null}',
        b'{"amount": 1, "skip": 1}',
        b'{"amount": 1, "skip": "false"}',
        b'{"amount": 1, "description": null}',
        b'{"amount": 1, "description": ["x"]}',
        b'{"amount": 1, "description": "a\\u0000b"}',
        b'{"amount": 1, "description": "\\ud800"}',
        b'{"amount": 1, "description": "\xff"}',
        b'{"amount": 1} {}',
        b'{"amount": 1',
        b'{"amount": ' + b"9" * 5000 + b"}",
        b'{"amount": 1, "x": ' + b"[" * 20_000 + b"]" * 20_000 + b"}",
        "\ufeff{}".encode(),
        '{"amount": 1}'.encode("utf-16"),
        b"<html>502</html>",
    ],
)
def test_other_answers_are_invalid(body: bytes) -> None:
    """[spec 4.2 outcome invalid_response, D-30, D-107]"""
    assert read(body) == ("invalid_response", None, None)
    assert read_answer(body, cap_cents=CAP).problem


def test_a_long_description_is_cut() -> None:
    """[D-30]"""
    body = json.dumps({"amount": 1, "description": "é" * 301}).encode()
    assert read(body) == ("ok", 1, "é" * 300)


@given(st.binary(max_size=300))
def test_any_bytes_have_an_outcome_and_can_be_stored(body: bytes) -> None:
    """[D-30]"""
    outcome, amount, _ = read(body)
    assert (outcome == "ok") is (amount is not None)
    text = stored_body(body)
    assert "\x00" not in text
    assert len(text.encode()) <= MAX_STORED_BYTES


def test_a_stored_body_is_cut_at_64_kib_and_stays_text() -> None:
    """[D-30]"""
    assert stored_body("é".encode() * 40_000) == "é" * 32_768
    assert stored_body(b"\xff" * 70_000) == "\ufffd" * (MAX_STORED_BYTES // 3)
    assert stored_body(b"a\x00b") == "a\ufffdb"


FIRST = datetime(2026, 5, 1, tzinfo=UTC)


def test_failed_calls_are_retried_on_a_schedule() -> None:
    """[D-29, spec 4.7 rule 3, spec 8 price retry window]"""
    expected = (
        "0:00:00 0:00:30 0:01:30 0:03:30 0:07:30 0:15:30 0:30:30 1:00:30 2:00:30 4:00:30 8:00:30 12:30:30"
    )
    assert [str(offset) for offset in OFFSETS] == expected.split()
    for failures in range(1, 12):
        due = FIRST + OFFSETS[failures]
        interval = OFFSETS[failures] - OFFSETS[failures - 1]
        calls = [next_attempt_at(FIRST, failures, now=FIRST, jitter_permille=each) for each in (0, 500, 1000)]
        assert calls == [due, due + interval / 20, due + interval / 10]
    assert next_attempt_at(FIRST, 12, now=FIRST, jitter_permille=0) is None


def test_calls_missed_in_an_outage_are_made_one_by_one() -> None:
    """[D-29, D-106]"""
    now = FIRST + timedelta(hours=10)
    assert next_attempt_at(FIRST, 3, now=now, jitter_permille=0) == now + timedelta(seconds=30)


def test_the_request_has_the_fields_of_the_specification() -> None:
    """[spec 4.7 request, spec 9.3]"""
    request = PriceRequestView(
        version=1,
        mode=CallMode.LIVE,
        pricing_request_id="pr",
        product=PriceReferenceView(external_ref="p"),
        subscription=PriceReferenceView(external_ref="s"),
        customer=PriceReferenceView(external_ref="ç"),
        period=PricePeriodView(start=date(2026, 1, 28), end=date(2026, 2, 27)),
        cycle=3,
        currency="BRL",
    )
    assert request.json_text() == (
        '{"version":1,"mode":"live","pricingRequestId":"pr","product":{"externalRef":"p"},'
        '"subscription":{"externalRef":"s"},"customer":{"externalRef":"ç"},'
        '"period":{"start":"2026-01-28","end":"2026-02-27"},"cycle":3,"currency":"BRL"}'
    )


def test_unsafe_characters_of_a_description_are_replaced():
    """The price is valid, so an unsafe description must not hold the invoice. [D-30, D-218]"""
    body = json.dumps({"amount": 5, "description": "2 aulas\nsetembro \x1b[31m\u202e"}).encode()
    answer = read_answer(body, cap_cents=100)
    assert (str(answer.outcome), answer.description) == ("ok", "2 aulas setembro \ufffd[31m\ufffd")
