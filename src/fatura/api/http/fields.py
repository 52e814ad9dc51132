"""Types for the fields of request bodies and queries. Each refuses values of a wrong type or outside its limits.

The classes are metadata for `Annotated`. Each class checks a value and adds the value's limits to the OpenAPI document.
The error message of a refused value says what is expected.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Annotated, Any, cast
from uuid import UUID

from email_validator import EmailNotValidError, validate_email
from pydantic import AfterValidator, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from fatura.domain import endpoint_url, pay_page, tax_document
from fatura.domain.audit import ActorKind
from fatura.domain.calendar import EARLIEST_INSTANT, start_of_day
from fatura.domain.endpoint_url import UrlRules
from fatura.domain.money import MAX_CENTS
from fatura.domain.text import NOT_BLANK_PATTERN, SAFE_PATTERN, unsafe_character

MAX_EMAIL_CHARS = 254
MAX_COUNT = 2_147_483_647
"""PostgreSQL's largest `integer`. It limits numbers of cycles and versions, which the specification does not limit."""
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII | re.IGNORECASE)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_INSTANT = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,3})?Z", re.ASCII)
_WHOLE = re.compile(r"-?\d{1,18}", re.ASCII)
_DOCUMENTED_INSTANT = r"^[2-9]\d{3}-\d{2}-\d{2}T\d{2}:\d{2}:[0-5]\d(\.\d{1,3})?Z$"
_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_PUBLIC_URL = (
    rf"^https://(?:{_LABEL}\.)+"
    r"(?!(?:local|internal|localhost|arpa)(?:[/?:]|$))[A-Za-z](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])"
    r"(?::443)?(?:[/?](?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*)?$"
)
"""Pattern of an endpoint's URL in the OpenAPI document. The operator may allow other URLs as well (D-47, D-215)."""


def refusal(message: str) -> PydanticCustomError:
    """Return the error that refuses a value; the message completes the sentence "the field ..."."""
    return PydanticCustomError("refused", "{message}", {"message": message})


def refusals(*places: tuple[str, str]) -> PydanticCustomError:
    """Return the error that refuses several parts of a value, each given as `(path inside the value, message)`."""
    return PydanticCustomError("refused_inside", "several places", {"places": list(places)})


def _expecting(message: str, schema: CoreSchema) -> CoreSchema:
    """Return a schema that reports every error with `message`, which says what is expected."""
    return core_schema.custom_error_schema(
        schema,
        custom_error_type="refused",
        custom_error_message="{message}",
        custom_error_context={"message": message},
    )


@dataclass(frozen=True, slots=True)
class IntRange:
    """An integer from `least` to `most`; 10.0, 1e3, true and "10" are refused (D-8)."""

    least: int
    most: int

    def __get_pydantic_core_schema__(self, _source: Any, _handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = core_schema.int_schema(strict=True, ge=self.least, le=self.most)
        return _expecting(f"must be an integer from {self.least} to {self.most}", schema)


@dataclass(frozen=True, slots=True)
class OneOfInts:
    """One of a few integers. `Literal` would accept `true` for 1 (D-8)."""

    allowed: tuple[int, ...]

    def __get_pydantic_core_schema__(self, _source: Any, _handler: GetCoreSchemaHandler) -> CoreSchema:
        one_of = core_schema.literal_schema(list(self.allowed))
        schema = core_schema.chain_schema([core_schema.int_schema(strict=True), one_of])
        *others, last = map(str, self.allowed)
        return _expecting(f"must be {', '.join(others)} or {last}", schema)

    def __get_pydantic_json_schema__(
        self, _schema: CoreSchema, _handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"type": "integer", "enum": list(self.allowed)}


@dataclass(frozen=True, slots=True)
class OneOf:
    allowed: tuple[str, ...]

    def __get_pydantic_core_schema__(self, _source: Any, _handler: GetCoreSchemaHandler) -> CoreSchema:
        return _expecting(
            f"must be one of {', '.join(self.allowed)}", core_schema.literal_schema(list(self.allowed))
        )


class Distinct:
    """An array without equal elements."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(_distinct, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {**handler(schema), "uniqueItems": True}


def _distinct(elements: Any) -> Any:
    if len(set(elements)) < len(elements):
        raise refusal("must not contain an element twice")
    return elements


@dataclass(frozen=True, slots=True)
class Text:
    """Text of `least` to `most` code points, stored unchanged. Blank text is refused if `least` is above 0 (D-11).

    Control characters and invisible characters are refused (D-218).
    """

    least: int
    most: int

    def __get_pydantic_json_schema__(
        self, _schema: CoreSchema, _handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        if not self.least:
            return {"type": "string", "maxLength": self.most, "pattern": SAFE_PATTERN}
        return {
            "type": "string",
            "minLength": self.least,
            "maxLength": self.most,
            "pattern": NOT_BLANK_PATTERN,
        }

    def __get_pydantic_core_schema__(self, _source: Any, _handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = core_schema.str_schema(strict=True, min_length=self.least or None, max_length=self.most)
        message = f"must be text of at most {self.most} characters"
        if self.least:
            schema = core_schema.no_info_after_validator_function(_filled, schema)
            message = f"must be text of {self.least} to {self.most} characters, and not blank"
        return core_schema.no_info_after_validator_function(_safe, _expecting(message, schema))


@dataclass(frozen=True, slots=True)
class FileText:
    """The text of a file: 1 to `most` code points, of any kind. Fatura reads the text, but does not store it."""

    most: int

    def __get_pydantic_core_schema__(self, _source: Any, _handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = core_schema.str_schema(strict=True, min_length=1, max_length=self.most)
        return _expecting(f"must be text of 1 to {self.most} characters", schema)


def _filled(text: str) -> str:
    if not text.strip():
        raise ValueError(text)
    return text


def _safe(text: str) -> str:
    unsafe = unsafe_character(text)
    if unsafe is not None:
        raise refusal(f"must not contain control or invisible characters, such as U+{ord(unsafe):04X}")
    return text


@dataclass(frozen=True, slots=True, eq=False)
class _Read:
    """Text that `read` converts to the value of a field. If `read` raises ValueError, the text is refused.

    `message` says what is expected. `schema` describes the field in the OpenAPI document.
    """

    read: Callable[[str], Any]
    message: str
    schema: JsonSchemaValue

    def __get_pydantic_core_schema__(self, _source: Any, _handler: GetCoreSchemaHandler) -> CoreSchema:
        text = core_schema.str_schema(strict=True)
        return _expecting(self.message, core_schema.no_info_after_validator_function(self.read, text))

    def __get_pydantic_json_schema__(
        self, _schema: CoreSchema, _handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return self.schema.copy()


def read_uuid(text: str) -> UUID:
    """Read a UUID of 36 characters (D-11). Raises ValueError for any other text, even if `uuid.UUID` accepts it."""
    if not _UUID.fullmatch(text):
        raise ValueError(text)
    return UUID(text)


def _read_actor(text: str) -> ActorKind | UUID:
    return ActorKind(text) if text in set(ActorKind) else read_uuid(text)


def _read_date(text: str) -> date:
    if not _DATE.fullmatch(text):
        raise ValueError(text)
    return date.fromisoformat(text)


def _read_instant(text: str) -> datetime:
    """Return the instant in a text, in UTC. A date stands for the first instant of that day in America/Sao_Paulo.

    Raises ValueError for other texts, and for instants before EARLIEST_INSTANT.
    """
    if _DATE.fullmatch(text):
        instant = start_of_day(_read_date(text))
    elif _INSTANT.fullmatch(text):
        instant = datetime.fromisoformat(text).astimezone(UTC)
    else:
        raise ValueError(text)
    if instant < EARLIEST_INSTANT:
        raise ValueError(text)
    return instant


def _check_email(text: str) -> str:
    """Return an e-mail address unchanged if its form is valid. Domains under `.test` are accepted.

    Raises ValueError if the form is invalid, or the address is longer than MAX_EMAIL_CHARS.
    """
    if len(text) > MAX_EMAIL_CHARS:
        raise ValueError(text)
    try:
        validate_email(text, check_deliverability=False, test_environment=True, strict=True)
    except EmailNotValidError as error:
        raise ValueError(text) from error
    return text


def _read_whole(value: Any) -> Any:
    return int(value) if isinstance(value, str) and _WHOLE.fullmatch(value) else value


class IntText:
    """Converts a query parameter, which always arrives as text, to an integer.

    In `Annotated`, write IntText after `IntRange`: the later entry runs first, and `IntRange` must get an integer.
    """

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(_read_whole, handler(source))


def _read_flag(text: str) -> bool:
    if text not in {"true", "false"}:
        raise ValueError(text)
    return text == "true"


Cents = Annotated[int, IntRange(0, MAX_CENTS)]
PositiveCents = Annotated[int, IntRange(1, MAX_CENTS)]
Count = Annotated[int, IntRange(1, MAX_COUNT)]
PeriodMonths = Annotated[int, OneOfInts((1, 3, 6, 12))]
ExternalRef = Annotated[str, Text(1, 120)]
Flag = Annotated[bool, _Read(_read_flag, "must be true or false", {"type": "boolean"})]
"""A boolean query parameter."""
Id = Annotated[
    UUID,
    _Read(
        read_uuid,
        "must be a UUID of 36 characters",
        {"type": "string", "format": "uuid", "examples": ["019a2f6e-1c3b-7d52-9f0a-6b1c2d3e4f50"]},
    ),
]
ActorRef = Annotated[
    ActorKind | UUID,
    _Read(
        _read_actor,
        f"must be one of {', '.join(ActorKind)}, or the id of an API key or user",
        {
            "anyOf": [
                {"type": "string", "enum": [str(kind) for kind in ActorKind]},
                {"type": "string", "format": "uuid"},
            ],
            "examples": ["operator", "019a2f6e-1c3b-7d52-9f0a-6b1c2d3e4f50"],
        },
    ),
]
Day = Annotated[
    date,
    _Read(
        _read_date,
        "must be a date as YYYY-MM-DD",
        {"type": "string", "format": "date", "examples": ["2026-12-10"]},
    ),
]
Email = Annotated[
    str,
    _Read(
        _check_email,
        f"must be an e-mail address of at most {MAX_EMAIL_CHARS} characters",
        {"type": "string", "format": "email", "maxLength": MAX_EMAIL_CHARS, "examples": ["ana@example.com"]},
    ),
]
Color = Annotated[
    str,
    _Read(
        pay_page.read_color,
        "must be a color as #rrggbb",
        {"type": "string", "maxLength": 7, "pattern": pay_page.COLOR_PATTERN, "examples": ["#0b6bcb"]},
    ),
]
Logo = Annotated[
    bytes,
    _Read(
        pay_page.read_logo,
        f"must be a PNG file of at most {pay_page.MAX_LOGO_BYTES // 1024} KiB and {pay_page.MAX_LOGO_PIXELS} x "
        f"{pay_page.MAX_LOGO_PIXELS} pixels, in base64",
        {"type": "string", "maxLength": pay_page.MAX_LOGO_CHARS, "contentEncoding": "base64"},
    ),
]
StrictBool = Annotated[bool, Field(strict=True)]
Instant = Annotated[
    datetime,
    _Read(
        _read_instant,
        "must be an instant in UTC as 2026-12-10T03:00:00.000Z, or a date as YYYY-MM-DD, from the year 2000 on",
        {
            "anyOf": [
                {"type": "string", "format": "date-time", "pattern": _DOCUMENTED_INSTANT},
                {"type": "string", "format": "date", "pattern": r"^[2-9]\d{3}-\d{2}-\d{2}$"},
            ],
            "examples": ["2026-12-10T03:00:00.000Z", "2026-12-10"],
        },
    ),
]
"""An instant from the year 2000 on. A date stands for the first instant of that day in America/Sao_Paulo."""


def _check_tax_document(text: str) -> str:
    refused = tax_document.refusal(text)
    if refused is not None:
        raise refusal(refused)
    return text


TaxDocument = Annotated[str, Text(11, 18), AfterValidator(_check_tax_document)]
TAX_DOCUMENT = (
    "Tax id: a CPF or CNPJ, with or without punctuation, whose check digits must be right. Write a tax id of another "
    "country with the code of the country and a space."
)


class EndpointUrl:
    """A URL that Fatura may call (D-47).

    The validation context must be the UrlRules of the account.
    """

    def __get_pydantic_core_schema__(self, _source: Any, _handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_after_validator_function(_check_url, core_schema.str_schema(strict=True))

    def __get_pydantic_json_schema__(
        self, _schema: CoreSchema, _handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {
            "type": "string",
            "format": "uri",
            "maxLength": endpoint_url.MAX_CHARS,
            "pattern": _PUBLIC_URL,
            "examples": ["https://merchant.example/prices"],
        }


def _check_url(url: str, info: ValidationInfo) -> str:
    refused = endpoint_url.refusal(url, cast("UrlRules", info.context))
    if refused is not None:
        raise refusal(refused)
    return url
