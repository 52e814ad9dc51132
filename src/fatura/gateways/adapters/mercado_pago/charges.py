"""Convert a preference of Mercado Pago and its payments to a charge of the port (D-265).

A payment names no preference, but has the `external_reference` of its preference. If a request was repeated after a
lost answer, two preferences may have the same reference. So each preference has a random text in its metadata, which
Mercado Pago copies to the payments.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from fatura.domain.charge import PayData
from fatura.domain.payments import EntryKind
from fatura.gateways import port
from fatura.gateways.adapters.mercado_pago.objects import Payment, Preference, Refund, instant, text_of
from fatura.gateways.answers import InvalidFieldError
from fatura.gateways.port import ChargeState, RefundState
from fatura.gateways.reais import cents, rounded_cents

CURRENCY = "BRL"
NONCE, UNTIL, REFUNDS = "fatura_nonce", "fatura_until", "fatura_refunds"
"""The names of our metadata of a preference: its random text, its planned end, and the refunds that we asked for."""
_OPEN = frozenset({"pending", "in_process", "authorized"})
PAID = frozenset({"approved", "in_mediation", "charged_back", "refunded"})
"""Statuses of payments that the payer has made. Refunds and disputes do not change that."""
_UNPAID = frozenset({"rejected", "cancelled"})
_REFUND_STATES: Mapping[str, RefundState] = {
    "approved": RefundState.DONE,
    "rejected": RefundState.FAILED,
    "cancelled": RefundState.FAILED,
}
"""The state of a refund by its status. With any other status, no money has moved."""
_DISPUTE_ENDS: Mapping[str | None, EntryKind] = {
    "reimbursed": EntryKind.DISPUTE_WON,
    "settled": EntryKind.DISPUTE_LOST,
}
"""How a chargeback ended, by the detail of the payment's status."""
_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_REFERENCE = re.compile(rf"({_UUID}):([0-9]{{1,9}})")
_OWN_REFUND = re.compile(rf"({_UUID})=([0-9A-Za-z]+)")
CHARGE_ID = re.compile("[A-Za-z0-9]+(?:-[A-Za-z0-9]+)*")
MAX_ID = 100


def reference(invoice_id: UUID, attempt: int) -> str:
    """Return the `external_reference` of a charge."""
    return f"{invoice_id}:{attempt}"


def is_ours(preference: Preference) -> bool:
    """Return whether the engine created a preference."""
    return _REFERENCE.fullmatch(preference.external_reference or "") is not None


def is_id(charge_id: str) -> bool:
    """Return whether a text may be the id of a preference, and can be a part of a URL."""
    return len(charge_id) <= MAX_ID and CHARGE_ID.fullmatch(charge_id) is not None


def is_open(payment: Payment) -> bool:
    return payment.status in _OPEN


def is_paid(payment: Payment) -> bool:
    return payment.status in PAID


def of_preference(preference: Preference, payments: Sequence[Payment]) -> Sequence[Payment]:
    """Return the payments of a preference, oldest first.

    If the metadata does not say to which of two preferences with one reference a payment belongs, it counts for both,
    because the engine must not miss it. The engine records it only once.
    """
    found = [
        each
        for each in payments
        if each.external_reference == preference.external_reference
        and _agree(each.collector_id, preference.collector_id)
        and _agree(text_of(each.metadata, NONCE), text_of(preference.metadata, NONCE))
    ]
    return sorted(found, key=lambda each: (instant(each.date_created), str(each.id)))


def _agree(first: object, second: object) -> bool:
    return first is None or second is None or str(first) == str(second)


def charge_of(preference: Preference, payments: Sequence[Payment], *, now: datetime) -> port.Charge:
    """Return the charge of a preference. `payments` are those of the preference, with all their refunds.

    Raises InvalidFieldError.
    """
    named = _REFERENCE.fullmatch(preference.external_reference or "")
    if named is None:
        raise InvalidFieldError("the preference has no reference of Fatura")
    amount_cents = sum(cents(each.value) * each.quantity for each in preference.items)
    until = expires_at(preference)
    return port.Charge(
        charge_id=preference.id,
        invoice_id=UUID(named[1]),
        attempt=int(named[2]),
        state=_state(preference, payments, amount_cents=amount_cents, now=now),
        amount_cents=amount_cents,
        pay=PayData(url=preference.init_point, expires_at=until),
        entries=tuple(entry for each in payments if is_paid(each) for entry in _entries(each)),
        refunds=tuple(_own_refunds(preference, payments)),
        created_at=None if preference.date_created is None else instant(preference.date_created),
    )


def expires_at(preference: Preference) -> datetime | None:
    if not preference.expires or preference.expiration_date_to is None:
        return None
    return instant(preference.expiration_date_to)


def _state(
    preference: Preference, payments: Sequence[Payment], *, amount_cents: int, now: datetime
) -> ChargeState:
    """Return the state of a charge.

    For an unknown status, return this status, which the engine's checks refuse. The engine then records nothing from
    the answer, and polls the charge again (D-50).
    """
    unknown: set[Any] = {each.status for each in payments} - _OPEN - PAID - _UNPAID
    if unknown:
        return unknown.pop()
    paid_cents = sum(cents(each.value) for each in payments if is_paid(each))
    if paid_cents and paid_cents >= amount_cents:
        return ChargeState.PAID
    if any(is_open(each) for each in payments):
        return ChargeState.OPEN
    until, planned = expires_at(preference), text_of(preference.metadata, UNTIL)
    if until is not None and until <= now:
        was_ended = planned is not None and until < instant(planned)
        return ChargeState.CANCELED if was_ended else ChargeState.EXPIRED
    return ChargeState.REFUSED if payments and payments[-1].status == "rejected" else ChargeState.OPEN


def _entries(payment: Payment) -> Iterator[port.ChargeEntry]:
    """Yield a payment, its refunds that moved money, and the steps of its dispute."""
    amount, name = cents(payment.value), str(payment.id)
    fee = sum(
        rounded_cents(each.value) for each in payment.fee_details or () if each.fee_payer == "collector"
    )
    paid_at = instant(payment.date_approved or payment.date_created)
    yield port.ChargeEntry(EntryKind.PAYMENT, name, amount, payment.currency_id, paid_at, max(fee, 0))
    for refund in _by_date(payment.refunds or ()):
        if _REFUND_STATES.get(refund.status) is RefundState.DONE:
            at = instant(refund.date_created)
            returned = cents(refund.value)
            yield port.ChargeEntry(EntryKind.REFUND, str(refund.id), returned, payment.currency_id, at)
    if payment.status not in {"in_mediation", "charged_back"}:
        return
    at, dispute = instant(payment.date_last_updated or payment.date_created), f"{name} {payment.status}"
    yield port.ChargeEntry(EntryKind.DISPUTE_OPENED, dispute, amount, payment.currency_id, at)
    end = _DISPUTE_ENDS.get(payment.status_detail) if payment.status == "charged_back" else None
    if end is not None:
        yield port.ChargeEntry(end, dispute, amount, payment.currency_id, at)


def misses_refund(payment: Payment) -> bool:
    """Return whether the listed refunds are less than what a payment says was returned."""
    if payment.status == "charged_back":
        return False
    returned = payment.value if payment.status == "refunded" else payment.returned
    listed = [each for each in payment.refunds or () if _REFUND_STATES.get(each.status) is RefundState.DONE]
    return returned is not None and sum(cents(each.value) for each in listed) < cents(returned)


def own_refund_ids(preference: Preference) -> dict[UUID, str]:
    """Return the ids at Mercado Pago of the refunds that the engine asked for, by the engine's ids, oldest first."""
    found = _OWN_REFUND.findall(text_of(preference.metadata, REFUNDS) or "")
    return {UUID(own): refund_id for own, refund_id in found}


def may_be_refunded(preference: Preference, payment: Payment, *, amount_cents: int) -> bool:
    """Return whether a payment has a refund of this amount that is not noted: the engine may have asked for it."""
    noted = set(own_refund_ids(preference).values())
    return any(
        str(each.id) not in noted
        and cents(each.value) == amount_cents
        and _REFUND_STATES.get(each.status) is not RefundState.FAILED
        for each in payment.refunds or ()
    )


def _own_refunds(preference: Preference, payments: Sequence[Payment]) -> Iterator[port.Refund]:
    listed = {str(each.id): each for payment in payments for each in payment.refunds or ()}
    for own, refund_id in own_refund_ids(preference).items():
        if refund_id in listed:
            yield _refund(own, listed[refund_id])


def _refund(refund_id: UUID, refund: Refund) -> port.Refund:
    state = _REFUND_STATES.get(refund.status, RefundState.PENDING)
    if state is RefundState.FAILED:
        return port.Refund(refund_id, state, detail="Mercado Pago did not make the refund.")
    return port.Refund(refund_id, state, str(refund.id) if state is RefundState.DONE else None)


def _by_date(refunds: Sequence[Refund]) -> Sequence[Refund]:
    return sorted(refunds, key=lambda each: (instant(each.date_created), str(each.id)))


def check_new(preference: Preference, *, amount_cents: int, now: datetime) -> port.Charge:
    """Return the charge of a preference that was just created. Raises InvalidFieldError if it is not the right one."""
    charge = charge_of(preference, (), now=now)
    if charge.amount_cents != amount_cents or not preference.init_point:
        raise InvalidFieldError("the new preference has another amount, or no link")
    return charge
