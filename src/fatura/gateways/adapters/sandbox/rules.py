"""The sandbox's rules: which charges it accepts, how their status may change, and how payers behave (D-46)."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime

from fatura.domain.calendar import local_date, start_of_day
from fatura.domain.offer import PaymentMethod
from fatura.domain.sandbox import SandboxCharge, SandboxMove, SandboxStatus
from fatura.gateways.adapters.sandbox.settings import Behaviour, SandboxSettings
from fatura.gateways.port import Charge, ChargeRequest, ChargeState, PermanentError

STATES: Mapping[SandboxStatus, ChargeState] = {
    SandboxStatus.OPEN: ChargeState.OPEN,
    SandboxStatus.PAID: ChargeState.PAID,
    SandboxStatus.REFUSED: ChargeState.REFUSED,
    SandboxStatus.CANCELED: ChargeState.CANCELED,
    SandboxStatus.REFUNDED: ChargeState.PAID,
}


@dataclass(frozen=True, slots=True)
class Rule:
    """The statuses in which a move is allowed, and the status after the move."""

    sources: tuple[SandboxStatus, ...]
    target: SandboxStatus


MOVES: Mapping[SandboxMove, Rule] = {
    SandboxMove.PAY: Rule((SandboxStatus.OPEN, SandboxStatus.REFUSED), SandboxStatus.PAID),
    SandboxMove.REFUSE: Rule((SandboxStatus.OPEN,), SandboxStatus.REFUSED),
    SandboxMove.CANCEL: Rule((SandboxStatus.OPEN, SandboxStatus.REFUSED), SandboxStatus.CANCELED),
    SandboxMove.REFUND: Rule((SandboxStatus.PAID,), SandboxStatus.REFUNDED),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The status that a charge stored as open has now, after what its payer did."""

    status: SandboxStatus
    paid_at: datetime | None = None


def outcome(behaviour: Behaviour, *, due_date: date, created_at: datetime, now: datetime) -> Outcome:
    """Return the status at `now` of a charge stored as open. `pay_on_due` pays at the start of the due date."""
    match behaviour:
        case Behaviour.PAY_AT_ONCE:
            return Outcome(SandboxStatus.PAID, now)
        case Behaviour.PAY_ON_DUE:
            pays_at = max(start_of_day(due_date), created_at)
            return Outcome(SandboxStatus.PAID, pays_at) if pays_at <= now else Outcome(SandboxStatus.OPEN)
        case Behaviour.REFUSE:
            return Outcome(SandboxStatus.REFUSED)
        case Behaviour.NEVER_PAY:
            return Outcome(SandboxStatus.OPEN)


def check_request(request: ChargeRequest, settings: SandboxSettings, *, now: datetime) -> None:
    """Check that the settings allow a charge. Raises PermanentError."""
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
        paid_at=stored.paid_at,
        refunded=stored.status is SandboxStatus.REFUNDED,
        due_date=stored.due_date,
    )
