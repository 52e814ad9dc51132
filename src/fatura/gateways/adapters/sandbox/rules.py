"""The sandbox's rules: which charges it accepts, how their status may change, and how payers behave (D-46)."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from fatura.domain.calendar import local_date, start_of_day
from fatura.domain.offer import PaymentMethod
from fatura.domain.payments import EntryKind
from fatura.domain.sandbox import MoveDetails, SandboxCharge, SandboxEntry, SandboxMove, SandboxStatus
from fatura.gateways.adapters.sandbox.pay_data import pay_data
from fatura.gateways.adapters.sandbox.settings import Behaviour, SandboxSettings
from fatura.gateways.port import (
    Charge,
    ChargeEntry,
    ChargeRequest,
    ChargeState,
    PermanentError,
    Refund,
    RefundRequest,
    RefundState,
)

STATES: Mapping[SandboxStatus, ChargeState] = {
    SandboxStatus.OPEN: ChargeState.OPEN,
    SandboxStatus.PAID: ChargeState.PAID,
    SandboxStatus.REFUSED: ChargeState.REFUSED,
    SandboxStatus.CANCELED: ChargeState.CANCELED,
    SandboxStatus.REFUNDED: ChargeState.PAID,
}
MOST_ENTRIES = 100
"""If a charge has this many entries, no move of the merchant can add another one.

Refunds that the engine asks for have a limit of their own (D-178).
"""
_CLOSING = frozenset({EntryKind.DISPUTE_WON, EntryKind.DISPUTE_LOST})


def moved(
    charge: SandboxCharge, move: SandboxMove, *, details: MoveDetails, now: datetime, reference: str
) -> SandboxCharge:
    """Return the charge after a move. `reference` is the id of the new entry, if the move adds one.

    Raises PermanentError `charge_status` if the charge's status or its entries do not allow the move.
    """
    if len(charge.entries) >= MOST_ENTRIES and move not in {SandboxMove.REFUSE, SandboxMove.CANCEL}:
        raise _refused(
            charge, f"has {MOST_ENTRIES} payments, refunds and disputes, the most that the sandbox keeps"
        )
    match move:
        case SandboxMove.PAY:
            return _paid(charge, details, now=now, reference=reference)
        case SandboxMove.REFUSE:
            return _with_status(charge, SandboxStatus.REFUSED, sources=(SandboxStatus.OPEN,))
        case SandboxMove.CANCEL:
            sources = (SandboxStatus.OPEN, SandboxStatus.REFUSED)
            return _with_status(charge, SandboxStatus.CANCELED, sources=sources)
        case SandboxMove.REFUND:
            return _refunded(charge, details, now=now, reference=reference)
        case SandboxMove.DISPUTE:
            amount_cents = _amount(details, charge, most=_undisputed_cents(charge), verb="dispute")
            return _with_entry(charge, SandboxEntry(EntryKind.DISPUTE_OPENED, reference, amount_cents, now))
        case SandboxMove.CLOSE_DISPUTE:
            return _dispute_closed(charge, won=details.won is not False, now=now)


def _with_status(
    charge: SandboxCharge, target: SandboxStatus, *, sources: tuple[SandboxStatus, ...]
) -> SandboxCharge:
    """Return the charge in the status `target`. Raises PermanentError unless its status is `target` or in `sources`."""
    if charge.status is not target and charge.status not in sources:
        raise _refused(charge, f"cannot become {target}")
    return replace(charge, status=target)


def _paid(charge: SandboxCharge, details: MoveDetails, *, now: datetime, reference: str) -> SandboxCharge:
    """Return the charge after a payment of `details.amount_cents` or, if that is None, of the open amount."""
    before_cents = charge.cents_of(EntryKind.PAYMENT)
    amount_cents = details.amount_cents
    if amount_cents is None:
        most_cents, refused = charge.amount_cents, {SandboxStatus.REFUNDED}
        if details.up_to_cents is not None:
            most_cents, refused = min(most_cents, details.up_to_cents), {*refused, SandboxStatus.CANCELED}
        if charge.status in refused:
            raise _refused(charge, "cannot become paid")
        amount_cents = max(most_cents - before_cents, 0)
        if amount_cents == 0:
            return charge
    entry = SandboxEntry(EntryKind.PAYMENT, reference, amount_cents, details.paid_at or now)
    status = charge.status
    if status is not SandboxStatus.CANCELED:
        is_paid = before_cents + amount_cents >= charge.amount_cents
        status = SandboxStatus.PAID if is_paid else SandboxStatus.OPEN
    return replace(_with_entry(charge, entry), status=status)


def refunded(
    charge: SandboxCharge, request: RefundRequest, *, now: datetime, reference: str
) -> SandboxCharge:
    """Return the charge after a refund that the engine asked for. A repeat with the same id changes nothing.

    Raises PermanentError `charge_status` if the refund is above the payments that were not refunded yet.
    """
    if any(entry.refund_id == request.refund_id for entry in charge.entries):
        return charge
    details = MoveDetails(amount_cents=request.amount_cents)
    after = _refunded(charge, details, now=now, reference=reference)
    *before, entry = after.entries
    return replace(after, entries=(*before, replace(entry, refund_id=request.refund_id)))


def _refunded(charge: SandboxCharge, details: MoveDetails, *, now: datetime, reference: str) -> SandboxCharge:
    if charge.status is SandboxStatus.REFUNDED and details.amount_cents is None:
        return charge
    most = charge.cents_of(EntryKind.PAYMENT) - charge.cents_of(EntryKind.REFUND)
    amount_cents = _amount(details, charge, most=most, verb="refund")
    status = charge.status
    if amount_cents == most and status is SandboxStatus.PAID:
        status = SandboxStatus.REFUNDED
    entry = SandboxEntry(EntryKind.REFUND, reference, amount_cents, now)
    return replace(_with_entry(charge, entry), status=status)


def _dispute_closed(charge: SandboxCharge, *, won: bool, now: datetime) -> SandboxCharge:
    """Return the charge after its oldest open dispute was decided. Raises PermanentError if no dispute is open."""
    closed = {entry.reference for entry in charge.entries if entry.kind in _CLOSING}
    opened = [entry for entry in charge.entries if entry.kind is EntryKind.DISPUTE_OPENED]
    dispute = next((entry for entry in opened if entry.reference not in closed), None)
    if dispute is None:
        raise _refused(charge, "has no open dispute")
    kind = EntryKind.DISPUTE_WON if won else EntryKind.DISPUTE_LOST
    return _with_entry(charge, SandboxEntry(kind, dispute.reference, dispute.amount_cents, now))


def _undisputed_cents(charge: SandboxCharge) -> int:
    disputed = charge.cents_of(EntryKind.DISPUTE_OPENED) - charge.cents_of(EntryKind.DISPUTE_WON)
    return charge.cents_of(EntryKind.PAYMENT) - charge.cents_of(EntryKind.REFUND) - disputed


def _amount(details: MoveDetails, charge: SandboxCharge, *, most: int, verb: str) -> int:
    amount_cents = most if details.amount_cents is None else details.amount_cents
    if most <= 0 or amount_cents > most:
        raise _refused(charge, f"has {max(most, 0)} cents to {verb}")
    return amount_cents


def _with_entry(charge: SandboxCharge, entry: SandboxEntry) -> SandboxCharge:
    return replace(charge, entries=(*charge.entries, entry))


def _refused(charge: SandboxCharge, reason: str) -> PermanentError:
    return PermanentError("charge_status", f"The charge is {charge.status} and {reason}.")


def settled(charge: SandboxCharge, behaviour: Behaviour, *, now: datetime, reference: str) -> SandboxCharge:
    """Return the charge with the actions of its simulated payer until `now`.

    With `pay_on_due`, the payer pays when the due date begins. A charge created after that is paid immediately.
    """
    if charge.status is not SandboxStatus.OPEN:
        return charge
    match behaviour:
        case Behaviour.PAY_AT_ONCE:
            pays_at = now
        case Behaviour.PAY_ON_DUE:
            pays_at = max(start_of_day(charge.due_date), charge.created_at)
        case Behaviour.REFUSE:
            return replace(charge, status=SandboxStatus.REFUSED)
        case Behaviour.NEVER_PAY:
            return charge
    if pays_at > now:
        return charge
    return _paid(charge, MoveDetails(paid_at=pays_at), now=now, reference=reference)


def check_request(request: ChargeRequest, settings: SandboxSettings, *, now: datetime) -> None:
    """Check that the sandbox accepts a request for a charge. Raises PermanentError."""
    if not settings.issues_charges:
        raise PermanentError("not_issuing", "This connection issues no charges.")
    if request.method not in settings.methods:
        raise PermanentError("method_unsupported", f"This connection does not issue {request.method}.")
    most = settings.max_installments if request.method is PaymentMethod.CARD else 1
    if not 1 <= (request.installments or 1) <= most:
        raise PermanentError(
            "installments_unsupported", f"{request.method} takes at most {most} installment(s)."
        )
    if request.amount_cents <= 0:
        raise PermanentError("amount_invalid", "The amount must be at least 1 cent.")
    if request.amount_cents < (settings.min_amount_cents or 1):
        raise PermanentError(
            "amount_unsupported", f"A charge has at least {settings.min_amount_cents} cents."
        )
    if request.installments is not None and request.amount_cents < request.installments * (
        settings.min_installment_cents or 0
    ):
        raise PermanentError(
            "installments_unsupported",
            f"Each installment has at least {settings.min_installment_cents} cents.",
        )
    if request.due_date < local_date(now):
        raise PermanentError("due_date_past", f"The due date {request.due_date} has passed.")


def as_charge(stored: SandboxCharge) -> Charge:
    """Convert a stored charge to the port's type, in which a refunded charge has the state PAID."""
    return Charge(
        charge_id=stored.charge_id,
        invoice_id=stored.invoice_id,
        attempt=stored.attempt,
        state=STATES[stored.status],
        amount_cents=stored.amount_cents,
        due_date=stored.due_date,
        pay=pay_data(stored),
        entries=tuple(
            ChargeEntry(entry.kind, entry.reference, entry.amount_cents, stored.currency, entry.occurred_at)
            for entry in stored.entries
        ),
        refunds=tuple(
            Refund(entry.refund_id, RefundState.DONE, entry.reference)
            for entry in stored.entries
            if entry.refund_id is not None
        ),
        created_at=stored.created_at,
    )
