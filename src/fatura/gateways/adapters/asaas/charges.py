"""Convert payments of Asaas to charges of the port: states, entries of the ledger, and refunds (D-261)."""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, cast
from uuid import UUID

import msgspec

from fatura.domain.calendar import local_date, start_of_day
from fatura.domain.charge import PayData
from fatura.domain.payments import EntryKind
from fatura.gateways import port
from fatura.gateways.adapters.asaas.objects import Chargeback, NamedPayment, Payment, Refund, instant, read_as
from fatura.gateways.answers import InvalidFieldError
from fatura.gateways.port import ChargeState, RefundState
from fatura.gateways.reais import cents, reais, rounded_cents

CURRENCY = "BRL"
STATES: Mapping[str, ChargeState] = {
    "PENDING": ChargeState.OPEN,
    "AWAITING_RISK_ANALYSIS": ChargeState.OPEN,
    "AUTHORIZED": ChargeState.OPEN,
    "OVERDUE": ChargeState.OPEN,
    "DUNNING_REQUESTED": ChargeState.OPEN,
    "CONFIRMED": ChargeState.PAID,
    "RECEIVED": ChargeState.PAID,
    "RECEIVED_IN_CASH": ChargeState.PAID,
    "DUNNING_RECEIVED": ChargeState.PAID,
    "REFUND_REQUESTED": ChargeState.PAID,
    "REFUND_IN_PROGRESS": ChargeState.PAID,
    "REFUNDED": ChargeState.PAID,
    "CHARGEBACK_REQUESTED": ChargeState.PAID,
    "CHARGEBACK_DISPUTE": ChargeState.PAID,
    "AWAITING_CHARGEBACK_REVERSAL": ChargeState.PAID,
}
"""The state of a charge by the status at Asaas. An overdue charge can still be paid, so it is open."""
PAID_STATUSES = frozenset(status for status, state in STATES.items() if state is ChargeState.PAID)
REFUND_STATUSES = frozenset({"REFUND_REQUESTED", "REFUND_IN_PROGRESS", "REFUNDED"})
_REFUND_STATES: Mapping[str, RefundState] = {"DONE": RefundState.DONE, "CANCELLED": RefundState.FAILED}
"""The state of a refund by its status. With any other status, no money has moved."""
_DISPUTE_ENDS: Mapping[str | None, EntryKind] = {
    "REVERSED": EntryKind.DISPUTE_WON,
    "DISPUTE_LOST": EntryKind.DISPUTE_LOST,
    "DONE": EntryKind.DISPUTE_LOST,
}
_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_REFERENCE = re.compile(rf"({_UUID}):([0-9]{{1,9}})")
_OWN_REFUND = re.compile(rf"\[({_UUID})\]")
CHARGE_ID = re.compile("[A-Za-z0-9_-]{1,80}")
"""The id of a charge: that of its payment, or that of its installments."""
PAYMENT_PREFIX = "pay_"
"""How the id of a payment begins. An id of installments begins otherwise."""
MAX_DESCRIPTION = 500
_MAX_REFUND_DESCRIPTION = 140
"""Maximum length of a refund's description: that of the message of a Pix, so that Asaas need not shorten it."""


def reference(invoice_id: UUID, attempt: int) -> str:
    """Return the `externalReference` of a charge."""
    return f"{invoice_id}:{attempt}"


def refund_description(request: port.RefundRequest) -> str:
    """Return a refund's description, which begins with the engine's id. Asaas has no other field for this id."""
    return f"[{request.refund_id}] {request.reason or 'Estorno'}"[:_MAX_REFUND_DESCRIPTION].rstrip()


def shows(payment: Payment, refund_id: UUID) -> bool:
    """Return whether a payment lists a refund that the engine asked for."""
    return any(_own_id(each) == str(refund_id) for each in payment.refunds or ())


def with_pending(payment: Payment, request: port.RefundRequest, *, today: date) -> Payment:
    """Return a payment with a refund that Asaas accepted and does not list yet."""
    pending = {
        "status": "PENDING",
        "value": reais(request.amount_cents),
        "dateCreated": today,
        "description": refund_description(request),
    }
    listed = [*(payment.refunds or ()), read_as(msgspec.json.encode(pending), Refund)]
    return msgspec.structs.replace(payment, refunds=listed)


def unreadable(charge_id: str | None) -> port.Charge:
    """Return a charge that the engine's checks refuse, in place of a payment that cannot be read (D-50)."""
    none = cast("Any", None)
    return port.Charge(charge_id or none, none, none, none, none)


def has_reference(payment: Payment | NamedPayment, *, only: str | None = None) -> bool:
    """Return whether a payment has the reference `only` or, if this is None, any reference of the engine."""
    found = payment.external_reference or ""
    return _REFERENCE.fullmatch(found) is not None if only is None else found == only


def charge_of(parts: Sequence[Payment], *, now: datetime, pay: PayData | None = None) -> port.Charge:
    """Return the charge that consists of one payment, or of all installments of a card payment.

    Raises NotFoundError if the payments have no reference of the engine, and InvalidFieldError.
    """
    named = next(
        (found for each in parts if (found := _REFERENCE.fullmatch(each.external_reference or ""))), None
    )
    if named is None:
        raise port.NotFoundError("the charge has no reference of Fatura")
    first, *_ = parts = sorted(parts, key=lambda each: (each.due_date or date.max, each.id))
    charge_id = first.installment or first.id
    is_payment = charge_id.startswith(PAYMENT_PREFIX)
    if not CHARGE_ID.fullmatch(charge_id) or is_payment != (first.installment is None):
        raise InvalidFieldError("a charge of Asaas has an id of an unknown form")
    if any(_misses_refund(each) for each in parts):
        raise InvalidFieldError("Asaas does not list the refunds of a refunded payment")
    live = [each for each in parts if not each.deleted or STATES.get(each.status) is ChargeState.PAID]
    refunds = [(each, refund) for each in parts for refund in _by_date(each.refunds or ())]
    return port.Charge(
        charge_id=charge_id,
        invoice_id=UUID(named[1]),
        attempt=int(named[2]),
        state=_state(live),
        amount_cents=sum(
            cents(each.value if each.original_value is None else each.original_value) for each in parts
        ),
        due_date=first.due_date,
        pay=PayData(url=first.invoice_url) if pay is None else pay,
        entries=tuple(_entries(live, now=now)),
        refunds=tuple(
            _refund(UUID(own), refund) for _, refund in refunds if (own := _own_id(refund)) is not None
        ),
        created_at=start_of_day(first.date_created),
    )


def _state(live: Sequence[Payment]) -> ChargeState:
    """Return the state of a charge from its payments that are not deleted.

    For an unknown status, return this status, which the engine's checks refuse. The engine then records nothing from
    the answer, and polls the charge again (D-50).
    """
    states: set[Any] = {STATES.get(each.status, each.status) for each in live}
    if unknown := states - set(ChargeState):
        return unknown.pop()
    if not states:
        return ChargeState.CANCELED
    return ChargeState.PAID if states == {ChargeState.PAID} else ChargeState.OPEN


def _entries(parts: Sequence[Payment], *, now: datetime) -> Iterator[port.ChargeEntry]:
    disputes = dict[str, port.ChargeEntry]()
    for part in parts:
        if STATES.get(part.status) is not ChargeState.PAID:
            continue
        later = list(_refund_entries(part)) + [
            each for each in _dispute(part, now=now) if each.reference not in disputes
        ]
        disputes |= {each.reference: each for each in later if each.kind is EntryKind.DISPUTE_OPENED}
        fee = 0 if part.net_value is None else cents(part.value) - rounded_cents(part.net_value)
        paid_at = min(_paid_at(part, now=now), *(each.occurred_at for each in later), now)
        yield port.ChargeEntry(
            EntryKind.PAYMENT,
            part.id,
            cents(part.value),
            CURRENCY,
            paid_at,
            fee_cents=max(fee, 0),
        )
        yield from later


def _paid_at(part: Payment, *, now: datetime) -> datetime:
    """Return when a payment was made. Asaas reports only the date.

    The engine reads most payments soon after they were made, because a webhook names them. So a payment of today was
    made about now. For an earlier date, return the start of the day.
    """
    day = part.client_payment_date or part.confirmed_date or part.payment_date
    return now if day is None or day >= local_date(now) else start_of_day(day)


def _refund_entries(part: Payment) -> Iterator[port.ChargeEntry]:
    """Yield the refunds that moved money.

    A refund that a person made at Asaas gets a reference from its date and amount. Equal refunds are numbered, so a
    later refund does not change the reference of an earlier one, in whatever order Asaas lists them.
    """
    used = set[str]()
    for refund in _by_date(part.refunds or ()):
        if _REFUND_STATES.get(refund.status) is not RefundState.DONE:
            continue
        own, number, amount = _own_id(refund), 1, cents(refund.value)
        foreign = f"{part.id} {refund.date_created} {amount}"
        while own is None and f"{foreign} {number}" in used:
            number += 1
        name = own or f"{foreign} {number}"
        used.add(name)
        yield port.ChargeEntry(EntryKind.REFUND, name, amount, CURRENCY, instant(refund.date_created))


def _misses_refund(part: Payment) -> bool:
    """Return whether the status says that all money was returned, but the listed refunds are less.

    The money of a disputed payment may return without a refund.
    """
    if part.status != "REFUNDED" or part.chargeback is not None:
        return False
    returned = [
        each for each in part.refunds or () if _REFUND_STATES.get(each.status) is not RefundState.FAILED
    ]
    return sum(cents(each.value) for each in returned) < cents(part.value)


def _dispute(part: Payment, *, now: datetime) -> Iterator[port.ChargeEntry]:
    """Yield the steps of the dispute of a payment. Asaas does not say when a dispute ended.

    Not every answer has the dispute's id, so the reference is made from the id of the charge.
    """
    dispute = part.chargeback or (Chargeback() if part.status.startswith("CHARGEBACK") else None)
    if dispute is None:
        return
    name = f"{part.installment or part.id} chargeback"
    amount = cents(part.value if dispute.value is None else dispute.value)
    opened = start_of_day(dispute.dispute_start_date) if dispute.dispute_start_date else now
    yield port.ChargeEntry(EntryKind.DISPUTE_OPENED, name, amount, CURRENCY, opened.astimezone(UTC))
    end = _DISPUTE_ENDS.get(dispute.status)
    if end is not None:
        yield port.ChargeEntry(end, name, amount, CURRENCY, now)


def _own_id(refund: Refund) -> str | None:
    """Return the engine's id of a refund that the engine asked for."""
    found = _OWN_REFUND.search(refund.description or "")
    return None if found is None else found[1]


def _refund(refund_id: UUID, refund: Refund) -> port.Refund:
    state = _REFUND_STATES.get(refund.status, RefundState.PENDING)
    if state is RefundState.FAILED:
        return port.Refund(refund_id, state, detail="Asaas canceled the refund.")
    return port.Refund(refund_id, state, str(refund_id) if state is RefundState.DONE else None)


def _by_date(refunds: Sequence[Refund]) -> Sequence[Refund]:
    return sorted(refunds, key=lambda each: each.date_created)
