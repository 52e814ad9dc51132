"""The field types of bodies and queries: accepted values, error messages and documentation."""

from datetime import UTC, date, datetime
from typing import Annotated, Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as some
from pydantic import TypeAdapter, ValidationError

from fatura.api.http.fields import (
    Cents,
    Count,
    Day,
    Email,
    EndpointUrl,
    ExternalRef,
    Flag,
    Id,
    Instant,
    IntRange,
    IntText,
    PeriodMonths,
    PositiveCents,
    StrictBool,
    Text,
)
from fatura.api.http.validation_errors import listed
from fatura.domain.text import unsafe_character
from tests.support.merchant_clients import rules

Url = Annotated[str, EndpointUrl()]
Number = Annotated[int, IntRange(1, 100), IntText()]
Note = Annotated[str, Text(0, 5)]
CONTEXT = rules(["localhost:9000"])


def read(kind: Any, value: Any) -> Any:
    """Return the value that a type parses. If the type refuses it, return a ValueError with the message."""
    try:
        return TypeAdapter(kind).validate_python(value, context=CONTEXT)
    except ValidationError as error:
        ((path, message),) = listed(error, value)
        assert path == ""
        return ValueError(message)


def refuses(kind: Any, value: Any) -> bool:
    return isinstance(read(kind, value), ValueError)


NOT_INTEGERS = [True, False, 10.0, 1e3, "10", "", None, [], {}, [10]]


@pytest.mark.parametrize("kind", [Cents, PositiveCents, Count, PeriodMonths, Annotated[int, IntRange(1, 28)]])
@pytest.mark.parametrize("value", NOT_INTEGERS)
def test_only_json_integers_are_integers(kind, value):
    """[D-8, spec 2.1 money]"""
    assert refuses(kind, value)


@pytest.mark.parametrize(
    ("kind", "least", "most"),
    [
        (Cents, 0, 999_999_999_999),
        (PositiveCents, 1, 999_999_999_999),
        (Annotated[int, IntRange(1, 28)], 1, 28),
        (Number, 1, 100),
    ],
)
def test_integers_have_their_bounds(kind, least, most):
    """[D-8]"""
    assert (read(kind, least), read(kind, most)) == (least, most)
    for value in (least - 1, most + 1, -1, 10**30):
        assert str(read(kind, value)) == f"must be an integer from {least} to {most}"


@pytest.mark.parametrize(
    ("value", "taken"), [(1, True), (3, True), (6, True), (12, True), (0, False), (2, False)]
)
def test_a_period_is_1_3_6_or_12_months(value, taken):
    """[spec 8 periodMonths]"""
    assert refuses(PeriodMonths, value) is not taken
    assert str(read(PeriodMonths, 24)) == "must be 1, 3, 6 or 12"


@pytest.mark.parametrize("value", ["1", "01", "100", "00100"])
def test_integers_of_a_query_are_digits(value):
    assert read(Number, value) == int(value)


@pytest.mark.parametrize(
    "value", ["", " 1", "1 ", "+1", "1.0", "1e1", "0x1", "1_0", "\u0661", "true", "9" * 30, "-"]
)
def test_other_text_of_a_query_is_no_integer(value):
    """Python's `int()` accepts some of these values; the API accepts none. [D-16]"""
    assert str(read(Number, value)) == "must be an integer from 1 to 100"


@pytest.mark.parametrize(
    ("value", "taken"),
    [
        ("x", True),
        ("x" * 120, True),
        ("x" * 121, False),
        ("\U0001f600" * 120, True),
        ("\U0001f600" * 121, False),
        ("e\u0301" * 60, True),
        ("e\u0301" * 61, False),
        ("", False),
        (" ", False),
        ("\u00a0\u2003", False),
        (" x ", True),
        (1, False),
        (None, False),
        (["x"], False),
    ],
)
def test_text_counts_code_points_and_is_not_blank(value, taken):
    """[D-11]"""
    found = read(ExternalRef, value)
    assert (found == value) is taken
    if not taken:
        assert str(found) == "must be text of 1 to 120 characters, and not blank"


@pytest.mark.parametrize("value", ["", "  ", "12345"])
def test_text_without_a_minimum_may_be_empty_or_blank(value):
    """[D-11]"""
    assert read(Note, value) == value
    assert str(read(Note, "123456")) == "must be text of at most 5 characters"


@pytest.mark.parametrize(
    ("value", "shown"), [("a\nb", "U+000A"), ("\x1b[31m", "U+001B"), ("a\u202eb", "U+202E")]
)
def test_text_with_unsafe_characters_is_refused(value, shown):
    """[D-218]"""
    for kind in (ExternalRef, Note):
        assert str(read(kind, value)) == f"must not contain control or invisible characters, such as {shown}"


@given(some.text(min_size=1, max_size=120).filter(lambda text: text.strip() and not unsafe_character(text)))
def test_text_is_kept_exactly_as_sent(text):
    """[D-11]"""
    assert read(ExternalRef, text) == text


CANONICAL = "019a2f6e-1c3b-7d52-9f0a-6b1c2d3e4f50"


@pytest.mark.parametrize("value", [CANONICAL, CANONICAL.upper(), "00000000-0000-0000-0000-000000000000"])
def test_canonical_uuids_are_accepted(value):
    """[D-11]"""
    assert read(Id, value) == UUID(value)


@pytest.mark.parametrize(
    "value",
    [
        CANONICAL.replace("-", ""),
        "{" + CANONICAL + "}",
        "urn:uuid:" + CANONICAL,
        " " + CANONICAL,
        CANONICAL + "\n",
        "+19a2f6e-1c3b-7d52-9f0a-6b1c2d3e4f50",
        "0x9a2f6e-1c3b-7d52-9f0a-6b1c2d3e4f50",
        "\uff10" + CANONICAL[1:],
        CANONICAL[:-1] + "g",
        "019a2f6e1-c3b-7d52-9f0a-6b1c2d3e4f50",
        "",
        None,
        1,
    ],
)
def test_other_spellings_of_uuids_are_refused(value):
    """Python's `uuid.UUID` and PostgreSQL accept most of these values; the API accepts none. [D-11]"""
    assert str(read(Id, value)) == "must be a UUID of 36 characters"


@pytest.mark.parametrize("value", ["2026-02-28", "2024-02-29", "0001-01-01", "9999-12-31"])
def test_dates_are_year_month_day(value):
    """[spec 2.1 dates]"""
    assert read(Day, value) == date.fromisoformat(value)


@pytest.mark.parametrize(
    "value",
    [
        "2026-02-29",
        "2026-13-01",
        "2026-00-10",
        "0000-01-01",
        "20260210",
        "2026-W07-2",
        "2026-2-10",
        "2026-02-10T00:00:00Z",
        " 2026-02-10",
        "2026-02-10\n",
        "26-02-10",
        "\u0662026-02-10",
        1_700_000_000,
        None,
    ],
)
def test_other_spellings_of_dates_are_refused(value):
    """Python and pydantic accept some of these values; the API accepts none. [spec 2.1 dates]"""
    assert str(read(Day, value)) == "must be a date as YYYY-MM-DD"


@pytest.mark.parametrize(
    ("value", "instant"),
    [
        ("2026-12-10T03:00:00Z", datetime(2026, 12, 10, 3, tzinfo=UTC)),
        ("2026-12-10T03:00:00.123Z", datetime(2026, 12, 10, 3, 0, 0, 123_000, tzinfo=UTC)),
        ("2026-12-10", datetime(2026, 12, 10, 3, tzinfo=UTC)),
        ("2018-11-04", datetime(2018, 11, 4, 3, tzinfo=UTC)),
    ],
)
def test_instants_are_in_utc(value, instant):
    """A date stands for its first instant in Sao Paulo. [spec 2.1 instants]"""
    assert read(Instant, value) == instant


@pytest.mark.parametrize(
    "value",
    ["2026-12-10T03:00:00", "2026-12-10T03:00:00+00:00", "2026-12-10 03:00:00Z", "2026-12-10T25:00:00Z", 0],
)
def test_instants_without_a_zone_are_refused(value):
    assert refuses(Instant, value)


@pytest.mark.parametrize(
    "value", ["ana@example.com", "Ana.Souza+x@Mail.Example.ORG", "jo\u00e3o@exemplo.com.br", "a@b.test"]
)
def test_emails_are_kept_as_sent(value):
    """[D-11]"""
    assert read(Email, value) == value


@pytest.mark.parametrize(
    "value",
    ["", "ana", "ana@", "@example.com", "ana@example", "a b@example.com", "Ana <ana@example.com>", " ana@example.com",
     "ana@example.com\n", "a@b..com", "a@-b.com", "x" * 65 + "@example.com", "a@" + "b" * 250 + ".com", 1, None],
)  # fmt: skip
def test_invalid_emails_are_refused(value):
    assert str(read(Email, value)) == "must be an e-mail address of at most 254 characters"


@pytest.mark.parametrize(
    ("value", "taken"), [("true", True), ("false", True), ("1", False), ("True", False), ("", False)]
)
def test_flags_of_a_query_are_true_or_false(value, taken):
    """[D-16]"""
    assert read(Flag, value) == (value == "true") if taken else refuses(Flag, value)


@pytest.mark.parametrize("value", [0, 1, "true", None, 1.0])
def test_booleans_of_a_body_are_json_booleans(value):
    assert [read(StrictBool, flag) for flag in (True, False)] == [True, False]
    assert str(read(StrictBool, value)) == "must be true or false"


@pytest.mark.parametrize("value", ["https://merchant.example/price?x=1", "http://localhost:9000/price"])
def test_urls_of_public_names_over_https_are_accepted(value):
    """[D-47]"""
    assert read(Url, value) == value


@pytest.mark.parametrize(
    "value",
    ["http://merchant.example/", "https://localhost/", "https://127.0.0.1/", "ftp://x.example/", "x", "", 1],
)
def test_other_urls_are_refused(value):
    """[D-47]"""
    assert refuses(Url, value)
