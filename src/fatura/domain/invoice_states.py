"""THE table of an invoice's life: which fact moves it where, what it stamps and tells (spec 3.3, D-24 to D-28).

Every writer of `invoice.status` asks `decide`; PostgreSQL refuses the same pairs; docs/reference/states.md is
printed from here.
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from fatura.domain.errors import INVOICE_NOT_CANCELABLE, Problem


class InvoiceStatus(StrEnum):
    """The states of an invoice (spec 3.3)."""

    DRAFT = "draft"
    AWAITING_VALUE = "awaiting_value"
    READY = "ready"
    ISSUED = "issued"
    PAID = "paid"
    OVERDUE = "overdue"
    CANCELED = "canceled"


class Fact(StrEnum):
    """What became known about an invoice, in the past tense."""

    VALUE_MISSED = "value_missed"
    VALUES_CLOSED = "values_closed"
    CHARGE_CONFIRMED = "charge_confirmed"
    PAYMENT_CONFIRMED = "payment_confirmed"
    PAYMENT_MISSED = "payment_missed"
    CANCEL_ASKED = "cancel_asked"
    CHARGE_CANCELED = "charge_canceled"
    REFUNDED = "refunded"
    DISPUTED = "disputed"


MEANINGS: dict[Fact, str] = {
    Fact.VALUE_MISSED: "a price call for a pending item failed",
    Fact.VALUES_CLOSED: "the last pending item was priced or skipped",
    Fact.CHARGE_CONFIRMED: "the gateway confirmed that the charge exists",
    Fact.PAYMENT_CONFIRMED: "the gateway says paid",
    Fact.PAYMENT_MISSED: "the gateway says refused, expired or overdue, or unpaid after the last day of payment",
    Fact.CANCEL_ASKED: "the merchant cancels, and no live charge stands in the way",
    Fact.CHARGE_CANCELED: "the gateway says that the charge is canceled",
    Fact.REFUNDED: "the gateway says that the payment was given back",
    Fact.DISPUTED: "the gateway says that the payment is disputed",
}


class OnlyIf(StrEnum):
    """A condition on the total that chooses between two rows of the same fact."""

    ALWAYS = "always"
    TOTAL_POSITIVE = "total > 0"
    TOTAL_ZERO = "total = 0"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table; where `to` equals `from_` the state stays, and the fact counts only once.

    `stamps` are the columns that it sets, `tells` the event it appends.
    """

    from_: InvoiceStatus
    fact: Fact
    only_if: OnlyIf
    to: InvoiceStatus
    stamps: tuple[str, ...]
    tells: str
    basis: str


_S, _F, _IF = InvoiceStatus, Fact, OnlyIf
_ISSUED = ("gateway_invoice_id", "issued_at")

TABLE: tuple[Row, ...] = (
    Row(_S.DRAFT, _F.VALUE_MISSED, _IF.ALWAYS, _S.AWAITING_VALUE, (), "invoice.held", "spec 3.3"),
    Row(_S.DRAFT, _F.VALUES_CLOSED, _IF.TOTAL_POSITIVE, _S.READY, (), "invoice.ready", "D-24"),
    Row(_S.DRAFT, _F.VALUES_CLOSED, _IF.TOTAL_ZERO, _S.PAID, ("paid_at",), "invoice.paid", "D-9"),
    Row(_S.DRAFT, _F.CANCEL_ASKED, _IF.ALWAYS, _S.CANCELED, (), "invoice.canceled", "D-27"),
    Row(_S.AWAITING_VALUE, _F.VALUES_CLOSED, _IF.TOTAL_POSITIVE, _S.READY, (), "invoice.ready", "spec 3.3"),
    Row(_S.AWAITING_VALUE, _F.VALUES_CLOSED, _IF.TOTAL_ZERO, _S.PAID, ("paid_at",), "invoice.paid", "D-9"),
    Row(_S.AWAITING_VALUE, _F.CANCEL_ASKED, _IF.ALWAYS, _S.CANCELED, (), "invoice.canceled", "D-27"),
    Row(_S.READY, _F.CHARGE_CONFIRMED, _IF.ALWAYS, _S.ISSUED, _ISSUED, "invoice.issued", "spec 3.3"),
    Row(_S.READY, _F.CANCEL_ASKED, _IF.ALWAYS, _S.CANCELED, (), "invoice.canceled", "D-27"),
    Row(_S.ISSUED, _F.PAYMENT_CONFIRMED, _IF.ALWAYS, _S.PAID, ("paid_at",), "invoice.paid", "spec 3.3"),
    Row(_S.ISSUED, _F.PAYMENT_MISSED, _IF.ALWAYS, _S.OVERDUE, (), "invoice.overdue", "D-26"),
    Row(_S.ISSUED, _F.CANCEL_ASKED, _IF.ALWAYS, _S.CANCELED, (), "invoice.canceled", "D-27"),
    Row(_S.ISSUED, _F.CHARGE_CANCELED, _IF.ALWAYS, _S.CANCELED, (), "invoice.canceled", "D-27"),
    Row(_S.OVERDUE, _F.PAYMENT_CONFIRMED, _IF.ALWAYS, _S.PAID, ("paid_at",), "invoice.paid", "D-26"),
    Row(_S.OVERDUE, _F.CANCEL_ASKED, _IF.ALWAYS, _S.CANCELED, (), "invoice.canceled", "D-27"),
    Row(_S.OVERDUE, _F.CHARGE_CANCELED, _IF.ALWAYS, _S.CANCELED, (), "invoice.canceled", "D-27"),
    Row(_S.PAID, _F.REFUNDED, _IF.ALWAYS, _S.PAID, ("refunded_at",), "invoice.refunded", "D-27"),
    Row(_S.PAID, _F.DISPUTED, _IF.ALWAYS, _S.PAID, ("disputed_at",), "invoice.disputed", "D-27"),
    Row(
        _S.CANCELED,
        _F.PAYMENT_CONFIRMED,
        _IF.ALWAYS,
        _S.CANCELED,
        ("unexpected_payment_at",),
        "invoice.payment_unexpected",
        "D-27",
    ),
)
"""What happens. A pair that has no row here changes nothing and tells nothing."""

REFUSALS: dict[tuple[InvoiceStatus, Fact], Problem] = {
    (_S.PAID, _F.CANCEL_ASKED): INVOICE_NOT_CANCELABLE,
    (_S.CANCELED, _F.CANCEL_ASKED): INVOICE_NOT_CANCELABLE,
}
"""Pairs that a client asked for and must be told about (D-27)."""

BIRTHS: frozenset[InvoiceStatus] = frozenset({_S.DRAFT, _S.READY, _S.PAID})
"""The states in which generation may create an invoice (D-24)."""


def decide(
    status: InvoiceStatus, fact: Fact, *, total_cents: int | None, stamped: Collection[str] = ()
) -> Row | None:
    """Return the row that applies, or None when the fact changes nothing in this state (D-28).

    `stamped` are the columns already set, by which a repeated refund or dispute is known.
    """
    for row in TABLE:
        if row.from_ is status and row.fact is fact and _holds(row.only_if, total_cents):
            repeated = row.to is row.from_ and all(stamp in stamped for stamp in row.stamps)
            return None if repeated else row
    return None


def _holds(only_if: OnlyIf, total_cents: int | None) -> bool:
    if only_if is OnlyIf.ALWAYS:
        return True
    assert total_cents is not None, "a fact about closed values needs the total"
    return (total_cents > 0) is (only_if is OnlyIf.TOTAL_POSITIVE)


def moves() -> frozenset[tuple[InvoiceStatus, InvoiceStatus]]:
    """Return the pairs of states that PostgreSQL lets pass; it refuses every other one (D-28)."""
    return frozenset((row.from_, row.to) for row in TABLE if row.from_ is not row.to)
