"""The OpenAPI schemas of field types describe exactly the values that the types accept."""

import re
from typing import Annotated

import pytest
from pydantic import TypeAdapter

from fatura.api.http.fields import (
    Cents,
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
    Text,
)
from fatura.domain.text import NOT_BLANK_PATTERN, SAFE_PATTERN
from tests.unit.test_fields import refuses

Url = Annotated[str, EndpointUrl()]
Number = Annotated[int, IntRange(1, 100), IntText()]
Note = Annotated[str, Text(0, 5)]


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (Cents, {"type": "integer", "minimum": 0, "maximum": 999_999_999_999}),
        (PeriodMonths, {"type": "integer", "enum": [1, 3, 6, 12]}),
        (
            ExternalRef,
            {"type": "string", "minLength": 1, "maxLength": 120, "pattern": NOT_BLANK_PATTERN},
        ),
        (Note, {"type": "string", "maxLength": 5, "pattern": SAFE_PATTERN}),
        (Number, {"type": "integer", "minimum": 1, "maximum": 100}),
        (Flag, {"type": "boolean"}),
        (Id, {"type": "string", "format": "uuid"}),
        (Day, {"type": "string", "format": "date"}),
        (Email, {"type": "string", "format": "email", "maxLength": 254}),
    ],
)
def test_types_document_their_limits(kind, schema):
    """[spec 4.6 GET /docs-json 200]"""
    documented = TypeAdapter(kind).json_schema()
    documented.pop("examples", None)
    assert documented == schema


@pytest.mark.parametrize(
    ("kind", "value", "is_documented"),
    [
        (Url, "https://merchant.example/price?x=%20&y=a,b", True),
        (Url, "https://xn--bcher-kva.example:443", True),
        (Url, "https://merchant.example:8443/", False),
        (Url, "https://merchant.example/#fragment", False),
        (Url, "https://user@merchant.example/", False),
        (Url, "https://printer.local/", False),
        (Url, "https://10.0.0.1/", False),
        (Url, "http://merchant.example/", False),
        (ExternalRef, "Café \N{GREEK SMALL LETTER ALPHA}", True),
        (ExternalRef, "a\N{ZERO WIDTH SPACE}", False),
        (ExternalRef, "a\tb", False),
        (ExternalRef, " \N{NO-BREAK SPACE}", False),
        (Note, " ", True),
        (Note, "\x1b[1m", False),
        (Note, "\N{RIGHT-TO-LEFT OVERRIDE}", False),
        (Instant, "2026-12-10T03:00:00.000Z", True),
        (Instant, "2026-12-10T23:59:60Z", False),
        (Instant, "2026-12-10T03:00:00+03:00", False),
    ],
)
def test_documented_patterns_accept_the_same_values(kind, value, is_documented):
    """[spec 4.6 GET /docs-json kept, D-47]"""
    schema = TypeAdapter(kind).json_schema()
    patterns = [each["pattern"] for each in schema.get("anyOf", [schema]) if "pattern" in each]
    assert any(re.search(pattern, value) for pattern in patterns) is is_documented
    assert refuses(kind, value) is not is_documented
