"""The parts of Mercado Pago's JSON objects that the adapter reads. Decoding ignores all other fields.

Amounts are reais. They are decoded as Decimal from the text of the JSON number or string, never as a float.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, TypeVar, cast

import msgspec

from fatura.domain.calendar import ZONE
from fatura.gateways.answers import InvalidFieldError

T = TypeVar("T")
_OF_ITEM = {"value": "unit_price"}
_OF_PART = {"value": "amount"}
_OF_PAYMENT = {"value": "transaction_amount", "returned": "transaction_amount_refunded"}
"""Mercado Pago's names of the fields with amounts in reais."""


class Item(msgspec.Struct, frozen=True, rename=_OF_ITEM):
    title: str
    value: Decimal
    quantity: int = 1
    currency_id: str | None = None


class Preference(msgspec.Struct, frozen=True):
    """A link to the page on which the payer makes payments. `payment_methods` and `metadata` may be anything."""

    id: str
    items: list[Item]
    external_reference: str | None = None
    init_point: str | None = None
    date_created: str | None = None
    expires: bool | None = None
    expiration_date_to: str | None = None
    collector_id: int | str | None = None
    payment_methods: Any = None
    metadata: Any = None


class FoundPreference(msgspec.Struct, frozen=True):
    """A preference in a list, which leaves most fields out."""

    id: str
    external_reference: str | None = None


class FoundPreferences(msgspec.Struct, frozen=True):
    elements: list[FoundPreference]
    total: int = 0


class Fee(msgspec.Struct, frozen=True, rename=_OF_PART):
    value: Decimal
    fee_payer: str | None = None


class Refund(msgspec.Struct, frozen=True, rename=_OF_PART):
    id: int | str
    value: Decimal
    status: str
    date_created: str


class Payment(msgspec.Struct, frozen=True, rename=_OF_PAYMENT):
    """An attempt of the payer to pay, with its refunds as far as the answer shows them."""

    id: int | str
    status: str
    value: Decimal
    date_created: str
    currency_id: str
    external_reference: str | None = None
    collector_id: int | str | None = None
    status_detail: str | None = None
    date_approved: str | None = None
    date_last_updated: str | None = None
    returned: Decimal | None = None
    fee_details: list[Fee] | None = None
    refunds: list[Refund] | None = None
    metadata: Any = None


class Paging(msgspec.Struct, frozen=True):
    total: int


class FoundPayments(msgspec.Struct, frozen=True):
    paging: Paging
    results: list[Payment]


class User(msgspec.Struct, frozen=True):
    id: int | str
    site_id: str | None = None


class Cause(msgspec.Struct, frozen=True):
    code: int | str | None = None
    description: str | None = None


class ErrorBody(msgspec.Struct, frozen=True):
    """An error. `cause` is a list of Cause in most cases."""

    message: str | None = None
    error: str | None = None
    cause: Any = None


def read_as(raw: bytes, kind: type[T]) -> T:
    """Decode one JSON object. Raises InvalidFieldError."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidFieldError(f"a {kind.__name__} of Mercado Pago cannot be read: {error}") from None


def fields_of(metadata: Any) -> Mapping[str, Any]:
    """Return the fields of an object's metadata, which may be anything."""
    return cast("Mapping[str, Any]", metadata) if isinstance(metadata, dict) else {}


def text_of(metadata: Any, name: str) -> str | None:
    """Return a text of an object's metadata, or None."""
    found = fields_of(metadata).get(name)
    return found if isinstance(found, str) and found else None


def instant(text: str) -> datetime:
    """Convert an instant with its UTC offset. Raises InvalidFieldError."""
    try:
        found = datetime.fromisoformat(text)
        if found.tzinfo is not None:
            return found.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise InvalidFieldError("an instant of Mercado Pago cannot be read")


def timestamp(at: datetime) -> str:
    """Return an instant as Mercado Pago writes it, such as 2026-03-10T23:59:59.000-03:00."""
    return at.astimezone(ZONE).isoformat(timespec="milliseconds")


def refusal(body: bytes) -> tuple[str, str] | None:
    """Read the code and the text of an error answer: those of its first cause, if it has causes."""
    try:
        found = read_as(body, ErrorBody)
    except InvalidFieldError:
        return None
    try:
        cause = msgspec.convert(found.cause[0], Cause)
    except (TypeError, KeyError, IndexError, msgspec.MsgspecError):
        cause = Cause()
    return str(cause.code or found.error or ""), cause.description or found.message or ""
