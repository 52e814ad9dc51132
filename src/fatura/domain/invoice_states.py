"""The invoice's state machine: for each fact the next state, the columns to set and the event (spec 3.3, D-24 to D-28).

Only `decide` chooses a new `invoice.status`; PostgreSQL refuses transitions that TABLE does not contain.
The page docs/reference/states.md is generated from TABLE.
"""

from dataclasses import dataclass
from enum import StrEnum

from fatura.domain.errors import INVOICE_NOT_CANCELABLE, INVOICE_NOT_REISSUABLE, Problem


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
    PAID_IN_PART = "paid_in_part"
    PAID_IN_FULL = "paid_in_full"
    OVERPAID = "overpaid"
    PAYMENT_UNEXPECTED = "payment_unexpected"
    PAYMENT_MISSED = "payment_missed"
    CANCEL_REQUESTED = "cancel_requested"
    CHARGE_CANCELED = "charge_canceled"
    REISSUE_REQUESTED = "reissue_requested"
    REFUNDED_IN_PART = "refunded_in_part"
    REFUNDED_IN_FULL = "refunded_in_full"
    DISPUTED = "disputed"
    DISPUTE_WON = "dispute_won"
    DISPUTE_LOST = "dispute_lost"


ENTRY_FACTS = frozenset(
    {
        Fact.PAID_IN_PART,
        Fact.PAID_IN_FULL,
        Fact.OVERPAID,
        Fact.PAYMENT_UNEXPECTED,
        Fact.REFUNDED_IN_PART,
        Fact.REFUNDED_IN_FULL,
        Fact.DISPUTED,
        Fact.DISPUTE_WON,
        Fact.DISPUTE_LOST,
    }
)
"""Facts that follow from an entry of the ledger (D-50). The ledger has each entry once, so these facts never repeat."""


MEANINGS: dict[Fact, str] = {
    Fact.VALUE_MISSED: "a price call for a pending item failed",
    Fact.VALUES_CLOSED: "the last pending item was priced or skipped",
    Fact.CHARGE_CONFIRMED: "the gateway confirmed that the charge exists",
    Fact.PAID_IN_PART: "a payment arrived, and a part of the total is still open",
    Fact.PAID_IN_FULL: "the payments cover the total",
    Fact.OVERPAID: "a payment arrived, and the payments exceed the total",
    Fact.PAYMENT_UNEXPECTED: "a payment arrived on a canceled invoice, or on another charge than the invoice's own",
    Fact.PAYMENT_MISSED: "the charge is refused, expired or overdue, or is unpaid after the last day of payment",
    Fact.CANCEL_REQUESTED: "the merchant cancels the invoice, and no open charge prevents it",
    Fact.CHARGE_CANCELED: "the gateway says that the charge is canceled",
    Fact.REISSUE_REQUESTED: "the merchant wants another charge, and no charge of the invoice can be paid any more",
    Fact.REFUNDED_IN_PART: "a refund was made, and payments that were not refunded remain",
    Fact.REFUNDED_IN_FULL: "a refund was made, and the refunds cover what was paid",
    Fact.DISPUTED: "a payment is disputed",
    Fact.DISPUTE_WON: "a dispute was won, and no other dispute is open or lost",
    Fact.DISPUTE_LOST: "a dispute was lost, or was won while another one is open or lost",
}


class OnlyIf(StrEnum):
    """A condition on the total that chooses between two transitions of the same fact."""

    ALWAYS = "always"
    TOTAL_POSITIVE = "total > 0"
    TOTAL_ZERO = "total = 0"


@dataclass(frozen=True, slots=True)
class Transition:
    """One row of the table of states.

    `stamps` are the columns that the transition sets. It replaces their values, but not those of `refunded_at`,
    `disputed_at` and `unexpected_payment_at`, which keep their first value. `clears` are the columns that the
    transition sets to null. `emits` is the type of the emitted event.
    `basis` is the clause that requires the transition. If `to` equals `from_`, the state does not change.
    """

    from_: InvoiceStatus
    fact: Fact
    only_if: OnlyIf
    to: InvoiceStatus
    stamps: tuple[str, ...]
    emits: str
    basis: str
    clears: tuple[str, ...] = ()


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
    *(
        Transition(state, _F.REISSUE_REQUESTED, _IF.ALWAYS, _S.READY, (), "invoice.reissued", "D-51")
        for state in (_S.READY, _S.ISSUED, _S.OVERDUE)
    ),
    Transition(_S.READY, _F.PAID_IN_FULL, _IF.ALWAYS, _S.PAID, ("paid_at",), "invoice.paid", "D-52"),
    Transition(_S.ISSUED, _F.PAID_IN_FULL, _IF.ALWAYS, _S.PAID, ("paid_at",), "invoice.paid", "spec 3.3"),
    Transition(_S.ISSUED, _F.PAYMENT_MISSED, _IF.ALWAYS, _S.OVERDUE, (), "invoice.overdue", "D-26"),
    Transition(
        _S.ISSUED, _F.CANCEL_REQUESTED, _IF.ALWAYS, _S.CANCELED, _CANCELED, "invoice.canceled", "D-27"
    ),
    Transition(_S.ISSUED, _F.CHARGE_CANCELED, _IF.ALWAYS, _S.CANCELED, _CANCELED, "invoice.canceled", "D-27"),
    Transition(_S.OVERDUE, _F.PAID_IN_FULL, _IF.ALWAYS, _S.PAID, ("paid_at",), "invoice.paid", "D-26"),
    Transition(
        _S.OVERDUE, _F.CANCEL_REQUESTED, _IF.ALWAYS, _S.CANCELED, _CANCELED, "invoice.canceled", "D-27"
    ),
    Transition(
        _S.OVERDUE, _F.CHARGE_CANCELED, _IF.ALWAYS, _S.CANCELED, _CANCELED, "invoice.canceled", "D-27"
    ),
    *(
        Transition(state, _F.PAID_IN_PART, _IF.ALWAYS, state, (), "invoice.partially_paid", "D-50")
        for state in (_S.READY, _S.ISSUED, _S.OVERDUE)
    ),
    Transition(_S.PAID, _F.OVERPAID, _IF.ALWAYS, _S.PAID, (), "invoice.overpaid", "D-50"),
    *(
        Transition(state, fact, _IF.ALWAYS, state, stamps, emits, "D-50", clears)
        for fact, stamps, emits, clears in (
            (_F.PAYMENT_UNEXPECTED, ("unexpected_payment_at",), "invoice.payment_unexpected", ()),
            (_F.REFUNDED_IN_PART, (), "invoice.refunded", ()),
            (_F.REFUNDED_IN_FULL, ("refunded_at",), "invoice.refunded", ()),
            (_F.DISPUTED, ("disputed_at",), "invoice.disputed", ()),
            (_F.DISPUTE_WON, (), "invoice.dispute_closed", ("disputed_at",)),
            (_F.DISPUTE_LOST, (), "invoice.dispute_closed", ()),
        )
        for state in InvoiceStatus
    ),
)
"""If the current state has no transition for a fact, the fact changes nothing and emits nothing."""

REFUSALS: dict[tuple[InvoiceStatus, Fact], Problem] = {
    (_S.PAID, _F.CANCEL_REQUESTED): INVOICE_NOT_CANCELABLE,
    (_S.CANCELED, _F.CANCEL_REQUESTED): INVOICE_NOT_CANCELABLE,
    **{
        (state, _F.REISSUE_REQUESTED): INVOICE_NOT_REISSUABLE
        for state in (_S.DRAFT, _S.AWAITING_VALUE, _S.PAID, _S.CANCELED)
    },
}
"""The error for a request to cancel or reissue that the current state does not allow (D-27)."""

INITIAL_STATES: frozenset[InvoiceStatus] = frozenset({_S.DRAFT, _S.READY, _S.PAID})
"""The states in which generation can create an invoice (D-24)."""


def decide(status: InvoiceStatus, fact: Fact, *, total_cents: int | None) -> Transition | None:
    """Return the transition that applies, or None when the fact changes nothing in this state (D-28)."""
    for each in TABLE:
        if each.from_ is status and each.fact is fact and _holds(each.only_if, total_cents):
            return each
    return None


def _holds(only_if: OnlyIf, total_cents: int | None) -> bool:
    if only_if is OnlyIf.ALWAYS:
        return True
    assert total_cents is not None, "a fact about closed values needs the total"
    return (total_cents > 0) is (only_if is OnlyIf.TOTAL_POSITIVE)


def moves() -> frozenset[tuple[InvoiceStatus, InvoiceStatus]]:
    """Return the pairs of states between which PostgreSQL allows a transition (D-28)."""
    return frozenset((each.from_, each.to) for each in TABLE if each.from_ is not each.to)
