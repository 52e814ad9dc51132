"""The simulated gateway's charges and their entries, the accepted tokens, and the refused calls."""

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from uuid import UUID

from fatura.domain.calendar import start_of_day
from fatura.domain.payments import EntryKind
from fatura.gateways.port import (
    Charge,
    ChargeEntry,
    ChargeRequest,
    ChargeState,
    ConnectionConfig,
    PermanentError,
    Refund,
    RefundRequest,
    RefundState,
)
from tests.faults.payments import Entry
from tests.faults.simulator import payers
from tests.faults.simulator.faults import Faults
from tests.faults.simulator.payers import Act, Payers

LATEST = timedelta(seconds=90)
"""Maximum delay until a requested charge exists and look-ups show it.

The engine waits longer before it treats a charge as absent (D-33). With a slower gateway, the engine could
create a second charge.
"""
FAILING_SHARE = 0.25
"""Share of the slow refunds that fail."""
OWN_ACCOUNT, OTHER_ACCOUNT = "own", "other"
"""The merchant's account at the provider, and another one, in which no charge of the merchant exists (D-59)."""


@dataclass(slots=True)
class SimRefund:
    """A refund that the engine asked for. At `ends_at`, it succeeds, unless `is_to_fail` is true."""

    refund_id: UUID
    reason: str
    amount_cents: int
    visible_at: datetime
    ends_at: datetime
    is_to_fail: bool
    state: RefundState = RefundState.PENDING
    reference: str | None = None

    def shown(self) -> Refund:
        return Refund(self.refund_id, self.state, self.reference)


@dataclass(slots=True)
class SimCharge:
    """One charge. `acts` contains what its payer and the gateway will do.

    `is_forgotten` is true while the gateway does not know the charge. `was_forgotten` stays true afterwards.
    `was_paid_late` is true if a payment arrived although the gateway had closed the charge. `is_double` is true if the
    gateway created another charge with the same reference. The engine possibly knows only the other charge.
    `was_returned` is true if a person canceled the charge and returned its payments. `told` counts the entries that the
    gateway returned in its most recent answer.
    """

    charge_id: str
    account_id: UUID
    connection_id: UUID
    invoice_id: UUID
    attempt: int
    amount_cents: int
    method: str
    due_date: date
    created_at: datetime
    visible_at: datetime
    state_at: datetime
    acts: list[Act]
    is_stubborn: bool
    state: str = "open"
    entries: list[ChargeEntry] = field(default_factory=list[ChargeEntry])
    refunds: list[SimRefund] = field(default_factory=list[SimRefund])
    is_forgotten: bool = False
    was_forgotten: bool = False
    was_paid_late: bool = False
    is_double: bool = False
    was_returned: bool = False
    told: int = 0

    @property
    def missing_cents(self) -> int:
        return max(self.amount_cents - self.cents_of(EntryKind.PAYMENT), 0)

    @property
    def left_cents(self) -> int:
        """Return what was paid and not refunded. A refund in progress counts as refunded."""
        pending = (each.amount_cents for each in self.refunds if each.state is RefundState.PENDING)
        return self.cents_of(EntryKind.PAYMENT) - self.cents_of(EntryKind.REFUND) - sum(pending)

    @property
    def refundable_cents(self) -> int:
        """Return how many cents the gateway refunds on request.

        These are the cents that are left, except money in an open dispute or lost in a dispute.
        """
        disputed = self.cents_of(EntryKind.DISPUTE_OPENED) - self.cents_of(EntryKind.DISPUTE_WON)
        return max(self.left_cents - disputed, 0)

    @property
    def is_payable(self) -> bool:
        return self.state in {"open", "refused"} and not self.is_forgotten

    @property
    def history(self) -> str:
        """Describe the charge for the text of a problem."""
        entries = ", ".join(f"{each.kind} {each.occurred_at:%d %H:%M:%S}" for each in self.entries)
        made = f"request {self.attempt}, made {self.created_at:%d %H:%M:%S}"
        return f"{self.charge_id} ({made}, {self.state}; {entries})"

    def was_canceled(self, *, until: datetime) -> bool:
        return self.state == "canceled" and not self.is_forgotten and self.state_at < until

    @property
    def is_only_paid(self) -> bool:
        """Return whether the charge has only timely payments, and was neither forgotten nor created twice."""
        was_open = not (self.was_paid_late or self.was_forgotten or self.is_double)
        return was_open and all(entry.kind is EntryKind.PAYMENT for entry in self.entries)

    def add(self, kind: EntryKind, amount_cents: int, *, at: datetime, reference: str | None = None) -> None:
        """Add a payment, a refund, or a step of a dispute."""
        reference = reference or f"{self.charge_id}_{len(self.entries) + 1}"
        self.entries.append(ChargeEntry(kind, reference, amount_cents, "BRL", at))

    def cents_of(self, kind: EntryKind) -> int:
        return sum(entry.amount_cents for entry in self.entries if entry.kind is kind)

    def shown(self, now: datetime) -> Charge:
        """Return the charge as the gateway's API shows it, and set `told` to the number of entries."""
        self.told = len(self.entries)
        return Charge(
            charge_id=self.charge_id,
            invoice_id=self.invoice_id,
            attempt=self.attempt,
            state=ChargeState(self.state),
            amount_cents=self.amount_cents,
            due_date=self.due_date,
            entries=tuple(self.entries),
            refunds=tuple(each.shown() for each in self.refunds if each.visible_at <= now),
            created_at=self.created_at,
        )

    def ledger(self) -> Sequence[Entry]:
        return [
            Entry(
                str(self.invoice_id),
                self.charge_id,
                str(each.kind),
                each.reference,
                each.amount_cents,
                each.occurred_at,
            )
            for each in self.entries
        ]


@dataclass(slots=True)
class GatewayState:
    """The state of the simulated gateway.

    `refuses_until` has, by connection, the time until which the gateway refuses all calls. `refuses_polls_until` has
    the time until which it refuses polls. `refused_at` has the times of a connection's refused calls since its last
    answered call. `polls_refused_at` has the times of its refused polls since its last answered poll. An answer ends
    such a series, which then moves to `refusals`. The ids of all charges begin with `prefix`.
    """

    payers: Payers
    faults: Faults
    prefix: str = "sim"
    charges: dict[str, SimCharge] = field(default_factory=dict[str, SimCharge])
    token_of: defaultdict[UUID, int] = field(default_factory=lambda: defaultdict[UUID, int](int))
    refuses_until: dict[UUID, datetime] = field(default_factory=dict[UUID, datetime])
    refuses_polls_until: dict[UUID, datetime] = field(default_factory=dict[UUID, datetime])
    refused_at: defaultdict[UUID, list[datetime]] = field(
        default_factory=lambda: defaultdict[UUID, list[datetime]](list)
    )
    polls_refused_at: defaultdict[UUID, list[datetime]] = field(
        default_factory=lambda: defaultdict[UUID, list[datetime]](list)
    )
    refusals: list[tuple[UUID, Sequence[datetime]]] = field(
        default_factory=list[tuple[UUID, Sequence[datetime]]]
    )
    _of_reference: defaultdict[tuple[UUID, int], list[SimCharge]] = field(
        default_factory=lambda: defaultdict[tuple[UUID, int], list[SimCharge]](list)
    )

    def make(
        self, config: ConnectionConfig, request: ChargeRequest, *, now: datetime, shown: datetime
    ) -> SimCharge:
        """Create a charge that look-ups show from the time `shown` on. A repeated request creates another charge."""
        charge = SimCharge(
            charge_id=f"{self.prefix}_{len(self.charges) + 1}",
            account_id=config.account_id,
            connection_id=config.connection_id,
            invoice_id=request.invoice_id,
            attempt=request.attempt,
            amount_cents=request.amount_cents,
            method=str(request.method),
            due_date=request.due_date,
            created_at=now,
            visible_at=shown,
            state_at=now,
            acts=self.payers.plan(due_from=start_of_day(request.due_date), earliest=shown),
            is_stubborn=self.payers.is_stubborn(),
        )
        self.charges[charge.charge_id] = charge
        self._of_reference[request.invoice_id, request.attempt].append(charge)
        return charge

    def of_reference(self, invoice_id: UUID, attempt: int, *, now: datetime) -> Sequence[SimCharge]:
        """Return the charges with a reference, oldest first, even if look-ups do not show them yet.

        Omit charges that the gateway has forgotten.
        """
        found = self._of_reference.get((invoice_id, attempt), ())
        return [each for each in found if not self.as_of(each, now).is_forgotten]

    def of_invoice(self, invoice_id: str) -> Sequence[SimCharge]:
        return [each for each in self.charges.values() if str(each.invoice_id) == invoice_id]

    def made_for(self, invoice_id: UUID, attempt: int) -> Sequence[SimCharge]:
        """Return all charges that were created with a reference, including forgotten charges."""
        return self._of_reference.get((invoice_id, attempt), ())

    def find(self, charge_id: str, *, now: datetime) -> SimCharge | None:
        charge = self.charges.get(charge_id)
        return None if charge is None or self.as_of(charge, now).is_forgotten else charge

    def as_of(self, charge: SimCharge, now: datetime) -> SimCharge:
        """Apply all acts of a charge that are due at `now`. Return the charge."""
        while charge.acts and charge.acts[0].at <= now:
            self._happen(charge, charge.acts.pop(0))
        for refund in charge.refunds:
            if refund.state is RefundState.PENDING and refund.ends_at <= now:
                self._end_refund(charge, refund)
        return charge

    def accept_refund(
        self,
        charge: SimCharge,
        request: RefundRequest,
        *,
        kind: str,
        now: datetime,
        is_late: bool,
        is_slow: bool,
    ) -> PermanentError | None:
        """Accept a refund, or return a refusal if the amount exceeds `refundable_cents`.

        If the gateway deduplicates and knows the refund's id, change nothing and return None.

        `kind` is the value of the capability `refunds`. With `is_late`, the gateway's answers show the refund only
        after a random time of at most LATEST.
        """
        if kind == "key" and any(each.refund_id == request.refund_id for each in charge.refunds):
            return None
        if request.amount_cents > charge.refundable_cents:
            return PermanentError("amount_too_high", f"{charge.refundable_cents} cents are left")
        lag = LATEST.total_seconds() * self.faults.rng.random() if is_late else 0.0
        self.refund(charge, request, now=now, shown=now + timedelta(seconds=lag), is_slow=is_slow)
        return None

    def refund(
        self, charge: SimCharge, request: RefundRequest, *, now: datetime, shown: datetime, is_slow: bool
    ) -> None:
        """Accept a refund. Make it immediately unless `is_slow` is true. A repeated request creates another refund."""
        seconds = self.faults.rng.choice((90, 4000, 40_000, 200_000)) if is_slow else 0
        refund = SimRefund(
            refund_id=request.refund_id,
            reason=request.reason or "",
            amount_cents=request.amount_cents,
            visible_at=shown,
            ends_at=shown + timedelta(seconds=seconds),
            is_to_fail=is_slow and self.faults.rng.random() < FAILING_SHARE,
        )
        charge.refunds.append(refund)
        self.as_of(charge, now)

    def _end_refund(self, charge: SimCharge, refund: SimRefund) -> None:
        if refund.is_to_fail:
            refund.state = RefundState.FAILED
            return
        refund.state = RefundState.DONE
        charge.add(EntryKind.REFUND, refund.amount_cents, at=refund.ends_at)
        refund.reference = charge.entries[-1].reference

    def all_as_of(self, now: datetime) -> None:
        for charge in self.charges.values():
            self.as_of(charge, now)

    def _happen(self, charge: SimCharge, act: Act) -> None:
        match act.verb:
            case payers.PAY:
                self.pay(charge, max(charge.amount_cents * act.percent // 100, 1), at=act.at)
            case payers.REST if charge.missing_cents:
                self.pay(charge, charge.missing_cents, at=act.at)
            case payers.REFUSE if charge.state == "open":
                self.move(charge, "refused", at=act.at)
            case payers.EXPIRE if charge.state in {"open", "refused"}:
                self.move(charge, "expired", at=act.at)
            case payers.CANCEL if charge.state in {"open", "refused", "expired"}:
                self.move(charge, "canceled", at=act.at)
            case payers.FORGET if charge.state == "open" and not charge.entries:
                self.faults.count("gateway: forgot a charge")
                charge.is_forgotten = charge.was_forgotten = True
            case payers.REMEMBER:
                charge.is_forgotten = False
            case _:
                pass  # the charge has changed, so the act is not possible any more

    def pay(self, charge: SimCharge, cents: int, *, at: datetime) -> None:
        """Pay a charge.

        A canceled charge is paid only if its payer is stubborn, and a charge that the gateway forgot is never paid. A
        late payment makes some closed charges `paid` and leaves others closed.
        """
        if charge.is_forgotten or (charge.state == "canceled" and not charge.is_stubborn):
            return
        charge.add(EntryKind.PAYMENT, cents, at=at)
        is_closed = charge.state in {"canceled", "expired"}
        if is_closed:
            self.faults.count("payer: paid a closed charge")
            charge.was_paid_late = True
        stays_canceled = charge.state == "canceled" and charge.amount_cents % 2
        if charge.missing_cents == 0 and charge.state != "paid" and not stays_canceled:
            self.move(charge, "paid", at=at)

    def move(self, charge: SimCharge, state: str, *, at: datetime) -> None:
        charge.state, charge.state_at = state, at

    def cancel_by_person(self, charge: SimCharge, *, now: datetime) -> None:
        """Cancel a charge in the gateway's dashboard, and refund what was paid.

        The charge's payer then does nothing more.
        """
        self.as_of(charge, now)
        charge.acts.clear()
        charge.was_returned = bool(charge.entries)
        if charge.left_cents > 0:
            charge.add(EntryKind.REFUND, charge.left_cents, at=now)
        self.move(charge, "canceled", at=now)

    def move_money(self, charge: SimCharge, *, now: datetime, rng: random.Random) -> bool:
        """Add a refund or a step of a dispute to a charge that allows it. Return whether an entry was added."""
        if self.as_of(charge, now).is_forgotten:
            return False
        left_cents = charge.left_cents
        disputes = {each.reference: each for each in charge.entries if each.kind is EntryKind.DISPUTE_OPENED}
        for each in charge.entries:
            if each.kind in {EntryKind.DISPUTE_WON, EntryKind.DISPUTE_LOST}:
                del disputes[each.reference]
        if disputes:
            reference, dispute = disputes.popitem()
            kind = rng.choice((EntryKind.DISPUTE_WON, EntryKind.DISPUTE_LOST))
            charge.add(kind, dispute.amount_cents, at=now, reference=reference)
        elif left_cents > 0:
            kind = rng.choice((EntryKind.REFUND, EntryKind.REFUND, EntryKind.DISPUTE_OPENED))
            charge.add(kind, rng.choice((left_cents, rng.randrange(left_cents) + 1)), at=now)
        else:
            return False
        return True

    def let_all_pay(self, now: datetime) -> None:
        """Make most payers pay: the payers of existing charges now, those of new charges on the due date.

        Also stop refusing calls.
        """
        self.payers.all_pay = True
        self.refuses_until.clear()
        self.refuses_polls_until.clear()
        for charge in self.charges.values():
            charge.acts = self.payers.last(self.as_of(charge, now).state, now=now)

    def note_call(self, connection_id: UUID, *, now: datetime, is_poll: bool, is_answered: bool) -> None:
        """Record the time of a refused call. An answered call ends a connection's series of refused calls.

        Only an answered poll ends the series of refused polls.
        """
        series = [self.refused_at, self.polls_refused_at] if is_poll else [self.refused_at]
        for refused in (each[connection_id] for each in series):
            if not is_answered:
                refused.append(now)
            elif refused:
                self.refusals.append((connection_id, tuple(refused)))
                refused.clear()
