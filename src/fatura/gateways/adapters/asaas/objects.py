"""The parts of Asaas' JSON objects that the adapter reads. Decoding ignores all other fields.

Amounts are reais. They are decoded as Decimal from the text of the JSON number, never as a float.
"""

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import TypeVar

import msgspec

from fatura.domain.calendar import ZONE
from fatura.gateways.answers import InvalidFieldError

T = TypeVar("T")


class Refund(msgspec.Struct, rename="camel", frozen=True):
    """A refund of a payment. Asaas gives refunds no id."""

    status: str
    value: Decimal
    date_created: str
    description: str | None = None


class Chargeback(msgspec.Struct, rename="camel", frozen=True):
    """A dispute of a card payment."""

    status: str | None = None
    value: Decimal | None = None
    dispute_start_date: date | None = None


class Payment(msgspec.Struct, rename="camel", frozen=True):
    """A charge without installments, or one installment of a charge."""

    id: str
    status: str
    value: Decimal
    billing_type: str
    date_created: date
    due_date: date | None = None
    external_reference: str | None = None
    installment: str | None = None
    net_value: Decimal | None = None
    original_value: Decimal | None = None
    payment_date: date | None = None
    client_payment_date: date | None = None
    confirmed_date: date | None = None
    invoice_url: str | None = None
    deleted: bool | None = None
    refunds: list[Refund] | None = None
    chargeback: Chargeback | None = None


class Page(msgspec.Struct, rename="camel", frozen=True):
    """A page of a list. Each object is decoded on its own, so that one invalid object does not hide the others."""

    data: list[msgspec.Raw]
    has_more: bool = False
    total_count: int = 0


class Customer(msgspec.Struct, rename="camel", frozen=True):
    id: str
    name: str | None = None
    email: str | None = None
    cpf_cnpj: str | None = None
    external_reference: str | None = None
    deleted: bool | None = None
    notification_disabled: bool | None = None


class Wallet(msgspec.Struct, frozen=True):
    id: str


class Deleted(msgspec.Struct, frozen=True):
    deleted: bool | None = None


class PixCode(msgspec.Struct, rename="camel", frozen=True):
    payload: str | None = None
    expiration_date: str | None = None


class BoletoLine(msgspec.Struct, rename="camel", frozen=True):
    identification_field: str | None = None


class NamedPayment(msgspec.Struct, rename="camel", frozen=True):
    id: str
    installment: str | None = None
    external_reference: str | None = None


class WebhookEvent(msgspec.Struct, frozen=True):
    event: str
    id: object = None
    payment: NamedPayment | None = None


class ErrorItem(msgspec.Struct, frozen=True):
    code: str | None = None
    description: str | None = None


class Errors(msgspec.Struct, frozen=True):
    errors: list[ErrorItem]


def read_as(raw: bytes | msgspec.Raw, kind: type[T]) -> T:
    """Decode one JSON object. Raises InvalidFieldError."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidFieldError(f"a {kind.__name__} of Asaas cannot be read: {error}") from None


def instant(text: str) -> datetime:
    """Convert a date, or a date and time without a zone, which are local times in Sao Paulo.

    Raises InvalidFieldError.
    """
    try:
        local = datetime.fromisoformat(text)
        return (local if local.tzinfo else local.replace(tzinfo=ZONE)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidFieldError("a date and time of Asaas cannot be read") from None


def end_of_day(day: date) -> datetime:
    return datetime.combine(day, time(23, 59, 59), ZONE).astimezone(UTC)


def refusal(body: bytes) -> tuple[str, str] | None:
    """Read the code and the text of an error answer. Asaas names only the first error in most cases."""
    try:
        first = read_as(body, Errors).errors[0]
    except (InvalidFieldError, IndexError):
        return None
    return first.code or "", first.description or ""
