"""Check the answers of adapters, so that one malformed answer cannot stop the work on other charges (D-50)."""

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

from fatura.domain.calendar import EARLIEST_INSTANT
from fatura.domain.payments import EntryKind
from fatura.failure_text import OwnTextError
from fatura.gateways.port import (
    Charge,
    ChargeEntry,
    ChargeState,
    InvalidAnswerError,
    Refund,
    RefundState,
)
from fatura.observability import log


class InvalidFieldError(OwnTextError, InvalidAnswerError):
    """Says which field of a provider's answer is invalid."""


MAX_ID_LENGTH = 255
MAX_CENTS = 10**15
MAX_CHARGES_OF_REFERENCE = 100
"""Maximum number of charges of one reference that the engine uses; it ignores all further ones."""
MAX_AHEAD = timedelta(days=1)
"""Maximum time by which the instant of an entry may be ahead of the account's clock."""
_CLOSING = frozenset({EntryKind.DISPUTE_WON, EntryKind.DISPUTE_LOST})


def checked(
    answer: Charge,
    *,
    currency: str,
    now: datetime,
    charge_id: str | None = None,
    reference: tuple[UUID, int] | None = None,
) -> Charge:
    """Check that the fields of a charge are valid and do not contradict each other, and return the charge.

    If `charge_id` or `reference` (invoice id and attempt) is given, the charge must match it.
    Raises InvalidFieldError, which names the first fault.
    """
    charge: Any = answer
    if type(charge) is not Charge:
        raise InvalidFieldError(f"the answer is not a charge but {_kind(charge)}")
    for field, is_valid in (
        ("charge_id", _is_id(charge.charge_id) and charge_id in {None, charge.charge_id}),
        ("invoice_id", _is_one_of(charge.invoice_id, UUID)),
        ("attempt", _is_integer(charge.attempt)),
        ("state", _is_one_of(charge.state, ChargeState)),
        ("amount_cents", _is_integer(charge.amount_cents) and 0 <= charge.amount_cents <= MAX_CENTS),
        ("due_date", charge.due_date is None or type(charge.due_date) is date),
        ("created_at", charge.created_at is None or _is_instant(charge.created_at)),
        ("entries", type(charge.entries) is tuple),
        ("refunds", type(charge.refunds) is tuple),
    ):
        if not is_valid:
            raise InvalidFieldError(f"{field} of the charge is {_kind(getattr(charge, field))}")
    if reference is not None and (charge.invoice_id, charge.attempt) != reference:
        raise InvalidFieldError(f"the charge {charge.charge_id} has another reference than the request")
    for entry in charge.entries:
        _check_entry(entry, currency=currency, until=now + MAX_AHEAD)
    for refund in charge.refunds:
        _check_refund(refund)
    for fault in _ledger_faults(answer):
        raise InvalidFieldError(f"the charge {charge.charge_id} has {fault}")
    return answer


def listed(answer: Charge, *, currency: str, now: datetime) -> Charge:
    """Check a charge of the provider's list, and return it. Raises InvalidFieldError."""
    charge = checked(answer, currency=currency, now=now)
    if charge.created_at is None:
        raise InvalidFieldError(f"the listed charge {charge.charge_id} has no instant of its creation")
    return charge


def all_checked(
    answers: Sequence[Charge], *, currency: str, now: datetime, reference: tuple[UUID, int]
) -> tuple[Sequence[Charge], Sequence[str]]:
    """Return the valid charges, and the ids of the invalid charges (D-50). Each id is returned once.

    Only the first MAX_CHARGES_OF_REFERENCE charges are checked. If several charges have the same id and one of them is
    invalid, the id counts as invalid. An invalid charge whose own id is unusable is in neither result. If there is such
    a charge and no charge is valid, raises InvalidFieldError.
    """
    found: dict[str, Charge] = {}
    invalid: dict[str, InvalidFieldError] = {}
    for each in answers[:MAX_CHARGES_OF_REFERENCE]:
        try:
            charge = checked(each, currency=currency, now=now, reference=reference)
            found[charge.charge_id] = charge  # of several versions of a charge, the last is the newest
        except InvalidFieldError as error:
            charge_id: Any = getattr(each, "charge_id", None)
            invalid[charge_id if _is_id(charge_id) else ""] = error
    if invalid:
        first = next(iter(invalid.values()))
        if not found and "" in invalid:
            raise first
        log.warning("gateway.invalid_charges", invoice_id=str(reference[0]), count=len(invalid), error=first)
    valid = [each for each in found.values() if each.charge_id not in invalid]
    return valid, [charge_id for charge_id in invalid if charge_id]


def _check_entry(entry: Any, *, currency: str, until: datetime) -> None:
    """Check the fields of an entry. Raises InvalidFieldError."""
    if type(entry) is not ChargeEntry:
        raise InvalidFieldError(f"an entry of the charge is {_kind(entry)}")
    for field, is_valid in (
        ("kind", _is_one_of(entry.kind, EntryKind)),
        ("reference", _is_id(entry.reference)),
        ("amount_cents", _is_integer(entry.amount_cents) and 1 <= entry.amount_cents <= MAX_CENTS),
        ("fee_cents", _is_integer(entry.fee_cents) and 0 <= entry.fee_cents <= MAX_CENTS),
        ("currency", entry.currency == currency),
        ("occurred_at", _is_instant(entry.occurred_at) and entry.occurred_at <= until),
    ):
        if not is_valid:
            raise InvalidFieldError(f"{field} of an entry is {_kind(getattr(entry, field))}")


def _check_refund(refund: Any) -> None:
    """Check the fields of a refund. Raises InvalidFieldError."""
    if type(refund) is not Refund:
        raise InvalidFieldError(f"a refund of the charge is {_kind(refund)}")
    for field, is_valid in (
        ("refund_id", _is_one_of(refund.refund_id, UUID)),
        ("state", _is_one_of(refund.state, RefundState)),
        ("reference", refund.reference is None or _is_id(refund.reference)),
        ("detail", refund.detail is None or _is_one_of(refund.detail, str)),
    ):
        if not is_valid:
            raise InvalidFieldError(f"{field} of a refund is {_kind(getattr(refund, field))}")


def _ledger_faults(charge: Charge) -> Iterator[str]:
    """Yield, in words, each contradiction between the entries, the refunds and the state of a charge.

    The engine refuses a charge with a contradiction. Otherwise the order in which such answers arrive could change the
    ledger.
    """
    keys = {(entry.kind, entry.reference) for entry in charge.entries}
    sums = dict.fromkeys(EntryKind, 0)
    for entry in charge.entries:
        sums[entry.kind] += entry.amount_cents
    if len(keys) != len(charge.entries):
        yield "two entries with one reference"
    if sums[EntryKind.REFUND] > sums[EntryKind.PAYMENT]:
        yield "refunds above its payments"
    if len({refund.refund_id for refund in charge.refunds}) != len(charge.refunds):
        yield "two refunds with one id"
    made = [refund.reference for refund in charge.refunds if refund.state is RefundState.DONE]
    if any((EntryKind.REFUND, reference) not in keys for reference in made) or len(set(made)) != len(made):
        yield "a refund that is done, but has no entry of its own"
    opened = {reference for kind, reference in keys if kind is EntryKind.DISPUTE_OPENED}
    if any(kind in _CLOSING and reference not in opened for kind, reference in keys):
        yield "the end of a dispute that was not opened"
    if charge.state is ChargeState.PAID and not sums[EntryKind.PAYMENT]:
        yield "the state paid, but no payment"


def _is_id(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_ID_LENGTH and value.isprintable()


def _is_one_of(value: object, kind: type[object]) -> bool:
    return isinstance(value, kind)


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_instant(value: object) -> bool:
    """Return whether a value is an instant with a time zone, from the year 2000 on, that can be converted to UTC."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        return False
    try:
        return value.astimezone(UTC) >= EARLIEST_INSTANT
    except (OverflowError, ValueError):
        return False


def _kind(value: object) -> str:
    """Describe an invalid value by its type, without the value itself, which may be data of a payer."""
    return f"an invalid {type(value).__name__}"
