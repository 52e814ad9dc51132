"""The parts of Stripe's JSON objects that the adapter reads. Decoding ignores all other fields.

Amounts are whole cents, and instants are seconds since 1970.
"""

from datetime import UTC, datetime
from typing import TypeVar

import msgspec

from fatura.gateways.answers import InvalidFieldError

T = TypeVar("T")
Metadata = dict[str, str]


class Source(msgspec.Struct, frozen=True):
    """What paid an invoice: a payment intent, a charge, or a payment outside Stripe."""

    type: str
    payment_intent: str | None = None
    charge: str | None = None


class PaymentTimes(msgspec.Struct, frozen=True):
    paid_at: int | None = None


class InvoicePayment(msgspec.Struct, frozen=True):
    """A payment of an invoice, or of a part of it."""

    id: str
    status: str
    payment: Source
    status_transitions: PaymentTimes
    created: int
    amount_paid: int | None = None


class Payments(msgspec.Struct, frozen=True):
    data: list[InvoicePayment]
    has_more: bool = False


class Line(msgspec.Struct, frozen=True):
    amount: int
    metadata: Metadata | None = None


class Lines(msgspec.Struct, frozen=True):
    data: list[Line]
    has_more: bool = False


class InvoiceTimes(msgspec.Struct, frozen=True):
    paid_at: int | None = None


class NamedInvoice(msgspec.Struct, frozen=True):
    """What says whether an invoice belongs to the engine, and when it was created."""

    id: str
    metadata: Metadata | None = None
    status: str | None = None
    created: int = 0


class Invoice(msgspec.Struct, frozen=True):
    id: str
    status: str | None
    currency: str
    total: int
    amount_due: int
    amount_paid: int
    created: int
    lines: Lines
    status_transitions: InvoiceTimes
    starting_balance: int = 0
    ending_balance: int | None = None
    due_date: int | None = None
    hosted_invoice_url: str | None = None
    metadata: Metadata | None = None
    payments: Payments | None = None


class Refund(msgspec.Struct, frozen=True):
    id: str
    amount: int
    currency: str
    created: int
    status: str | None = None
    failure_reason: str | None = None
    payment_intent: str | None = None
    charge: str | None = None
    metadata: Metadata | None = None


class Dispute(msgspec.Struct, frozen=True):
    id: str
    amount: int
    currency: str
    created: int
    status: str


class Customer(msgspec.Struct, frozen=True):
    id: str
    name: str | None = None
    metadata: Metadata | None = None


class Named(msgspec.Struct, frozen=True):
    """An object of which only the id is used."""

    id: str


class Deleted(msgspec.Struct, frozen=True):
    id: str
    deleted: bool = False


class Page(msgspec.Struct, frozen=True):
    """A page of a list, newest first. Each object is decoded on its own, so that an invalid one hides no others."""

    data: list[msgspec.Raw]
    has_more: bool = False


class EventObject(msgspec.Struct, frozen=True):
    object: str | None = None
    id: str | None = None
    status: str | None = None
    metadata: Metadata | None = None


class EventData(msgspec.Struct, frozen=True):
    object: EventObject


class Event(msgspec.Struct, frozen=True):
    """An event of a webhook. `account` is set if the event is about another account, which is connected to this one."""

    id: str
    type: str
    livemode: bool
    data: EventData
    account: str | None = None


class ErrorDetails(msgspec.Struct, frozen=True):
    type: str
    code: str | None = None
    param: str | None = None
    message: str | None = None


class Errors(msgspec.Struct, frozen=True):
    error: ErrorDetails


def read_as(raw: bytes | msgspec.Raw, kind: type[T]) -> T:
    """Decode one JSON object. Raises InvalidFieldError."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidFieldError(f"a {kind.__name__} of Stripe cannot be read: {error}") from None


def instant(seconds: int) -> datetime:
    """Convert seconds since 1970. Raises InvalidFieldError."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        raise InvalidFieldError("an instant of Stripe cannot be read") from None


def refusal(body: bytes) -> tuple[str, str] | None:
    """Read the code and the text of an error answer. If the error has no code, name the parameter, or the type."""
    try:
        error = read_as(body, Errors).error
    except InvalidFieldError:
        return None
    return error.code or (f"invalid_{error.param}" if error.param else error.type), error.message or ""
