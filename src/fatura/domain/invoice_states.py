"""The invoice's state machine: for each fact the next state, the columns to set and the event (spec 3.3, D-24 to D-28).

Only `decide` chooses a new `invoice.status`; PostgreSQL refuses transitions that are not in this table.
docs/reference/states.md is generated from it.
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
    """Something that happened to an invoice."""

    VALUE_MISSED = "value_missed"
    VALUES_CLOSED = "values_closed"
    CHARGE_CONFIRMED = "charge_confirmed"
    PAYMENT_CONFIRMED = "payment_confirmed"
    PAYMENT_MISSED = "payment_missed"
    CANCEL_REQUESTED = "cancel_requested"
    CHARGE_CANCELED = "charge_canceled"
    REFUNDED = "refunded"
    DISPUTED = "disputed"


MEANINGS: dict[Fact, str] = {
    Fact.VALUE_MISSED: "a price call for a pending item failed",
    Fact.VALUES_CLOSED: "the last pending item was priced or skipped",
    Fact.CHARGE_CONFIRMED: "the gateway confirmed that the charge exists",
    Fact.PAYMENT_CONFIRMED: "the gateway says that the charge is paid",
    Fact.PAYMENT_MISSED: "the charge is refused, expired or overdue, or is unpaid after the last day of payment",
    Fact.CANCEL_REQUESTED: "the merchant cancels the invoice, and no open charge prevents it",
    Fact.CHARGE_CANCELED: "the gateway says that the charge is canceled",
    Fact.REFUNDED: "the gateway says that the payment was refunded",
    Fact.DISPUTED: "the gateway says that the payment is disputed",
}


class OnlyIf(StrEnum):
    """A condition on the total that chooses between two transitions of the same fact."""

    ALWAYS = "always"
    TOTAL_POSITIVE = "total > 0"
    TOTAL_ZERO = "total = 0"


@dataclass(frozen=True, slots=True)
class Transition:
    """One row of the table. If `to` equals `from_`, the state does not change and a repeated fact is ignored.

    `stamps` are the columns that it sets, `emits` is the type of its event, `basis` is the clause that demands it.
    """

    from_: InvoiceStatus
    fact: Fact
    only_if: OnlyIf
    to: InvoiceStatus
    stamps: tuple[str, ...]
    emits: str
    basis: str


_S, _F, _IF = InvoiceStatus, Fact, OnlyIf
_ISSUED = ("gateway_invoice_id", "issued_at")
_CANCELED = ("canceled_at",)

TABLE: tuple[Transition, ...] = (
    Transition(_S.DRAFT, _F.VALUE_MISSED, _IF.ALWAYS, _S.AWAITING_VALUE, (), "invoice.held", "spec 3.3"),
    Transition(_S.DRAFT, _F.VALUES_CLOSED, _IF.TOTAL_POSITIVE, _S.READY, (), "invoice.ready", "D-24"),
    Transition(_S.DRAFT, _F.VALUES_CLOSED, _IF.TOTAL_ZERO, _S.PAID, ("paid_at",), "invoice.paid", "D-9"),
    Transition(_S.DRAFT, _F.CANCEL_REQUESTED, _IF.ALWAYS, _S.CANCELED, _CANCELED, "invoice.canceled", "D-27"),
    Transition(
        _S.AWAITING_VALUE, _F.VALUES_CLOSED, _IF.TOTAL_POSITIVE, _S.READY, (), "invoice.ready", "spec 3.3"
    ),
    Transition(
        _S.AWAITING_VALUE, _F.VALUES_CLOSED, _IF.TOTAL_ZERO, _S.PAID, ("paid_at",), "invoice.paid", "D-9"
    ),
    Transition(
        _S.AWAITING_VALUE, _F.CANCEL_REQUESTED, _IF.ALWAYS, _S.CANCELED, _CANCELED, "invoice.canceled", "D-27"
    ),
    Transition(_S.READY, _F.CHARGE_CONFIRMED, _IF.ALWAYS, _S.ISSUED, _ISSUED, "invoice.issued", "spec 3.3"),
    Transition(_S.READY, _F.CANCEL_REQUESTED, _IF.ALWAYS, _S.CANCELED, _CANCELED, "invoice.canceled", "D-27"),
    Transition(
        _S.ISSUED, _F.PAYMENT_CONFIRMED, _IF.ALWAYS, _S.PAID, ("paid_at",), "invoice.paid", "spec 3.3"
    ),
    Transition(_S.ISSUED, _F.PAYMENT_MISSED, _IF.ALWAYS, _S.OVERDUE, (), "invoice.overdue", "D-26"),
    Transition(
        _S.ISSUED, _F.CANCEL_REQUESTED, _IF.ALWAYS, _S.CANCELED, _CANCELED, "invoice.canceled", "D-27"
    ),
    Transition(_S.ISSUED, _F.CHARGE_CANCELED, _IF.ALWAYS, _S.CANCELED, _CANCELED, "invoice.canceled", "D-27"),
    Transition(_S.OVERDUE, _F.PAYMENT_CONFIRMED, _IF.ALWAYS, _S.PAID, ("paid_at",), "invoice.paid", "D-26"),
    Transition(
        _S.OVERDUE, _F.CANCEL_REQUESTED, _IF.ALWAYS, _S.CANCELED, _CANCELED, "invoice.canceled", "D-27"
    ),
    Transition(
        _S.OVERDUE, _F.CHARGE_CANCELED, _IF.ALWAYS, _S.CANCELED, _CANCELED, "invoice.canceled", "D-27"
    ),
    Transition(_S.PAID, _F.REFUNDED, _IF.ALWAYS, _S.PAID, ("refunded_at",), "invoice.refunded", "D-27"),
    Transition(_S.PAID, _F.DISPUTED, _IF.ALWAYS, _S.PAID, ("disputed_at",), "invoice.disputed", "D-27"),
    Transition(
        _S.CANCELED,
        _F.PAYMENT_CONFIRMED,
        _IF.ALWAYS,
        _S.CANCELED,
        ("unexpected_payment_at",),
        "invoice.payment_unexpected",
        "D-27",
    ),
)
"""A fact without a transition from the current state changes nothing and emits nothing."""

REFUSALS: dict[tuple[InvoiceStatus, Fact], Problem] = {
    (_S.PAID, _F.CANCEL_REQUESTED): INVOICE_NOT_CANCELABLE,
    (_S.CANCELED, _F.CANCEL_REQUESTED): INVOICE_NOT_CANCELABLE,
}
"""Client requests that are refused with an error when there is no transition (D-27)."""

INITIAL_STATES: frozenset[InvoiceStatus] = frozenset({_S.DRAFT, _S.READY, _S.PAID})
"""The states in which generation may create an invoice (D-24)."""


def decide(
    status: InvoiceStatus, fact: Fact, *, total_cents: int | None, stamped: Collection[str] = ()
) -> Transition | None:
    """Return the transition that applies, or None when the fact changes nothing in this state (D-28).

    `stamped` has the columns that are set already, so that a repeated refund, for example, is ignored.
    """
    for each in TABLE:
        if each.from_ is status and each.fact is fact and _holds(each.only_if, total_cents):
            repeated = each.to is each.from_ and all(stamp in stamped for stamp in each.stamps)
            return None if repeated else each
    return None


def _holds(only_if: OnlyIf, total_cents: int | None) -> bool:
    if only_if is OnlyIf.ALWAYS:
        return True
    assert total_cents is not None, "a fact about closed values needs the total"
    return (total_cents > 0) is (only_if is OnlyIf.TOTAL_POSITIVE)


def moves() -> frozenset[tuple[InvoiceStatus, InvoiceStatus]]:
    """Return the pairs of states between which PostgreSQL allows a transition (D-28)."""
    return frozenset((each.from_, each.to) for each in TABLE if each.from_ is not each.to)
