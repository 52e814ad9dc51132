"""The simulated gateway's charges, the behaviour of their payers, and the accepted tokens."""

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from uuid import UUID

from fatura.domain.calendar import start_of_day
from fatura.gateways.port import ChargeRequest, ConnectionConfig
from tests.faults.journal import Journal

LATEST = timedelta(seconds=90)
"""Maximum delay until a requested charge exists and look-ups show it.

The engine waits longer before it treats a charge as absent (D-33). With a slower gateway, a second charge cannot be
excluded.
"""
_PAYERS = (
    ("paid", 66, (-40, 20)),
    ("paid", 9, (30, 150)),
    ("refused", 7, (0, 12)),
    ("expired", 4, (30, 80)),
    ("canceled", 3, (-30, 40)),
    ("open", 11, (0, 0)),
)
"""What payers do: the state that the charge gets, the percentage of payers, and a range of times.

The times are hours relative to the start of the due date.
"""


@dataclass(slots=True)
class SimCharge:
    """One charge. `next_state` is its payer's next action, at the time `next_state_at`."""

    charge_id: str
    account_id: UUID
    connection_id: UUID
    invoice_id: UUID
    attempt: int
    amount_cents: int
    due_date: date
    created_at: datetime
    visible_at: datetime
    next_state: str
    next_state_at: datetime
    state: str = "open"
    paid_at: datetime | None = None
    reversal: str | None = None


@dataclass(slots=True)
class GatewayState:
    journal: Journal
    rng: random.Random
    charges: dict[str, SimCharge] = field(default_factory=dict[str, SimCharge])
    token_of: defaultdict[UUID, int] = field(default_factory=lambda: defaultdict[UUID, int](int))
    all_pay: bool = False
    _of_reference: defaultdict[tuple[UUID, int], list[SimCharge]] = field(
        default_factory=lambda: defaultdict[tuple[UUID, int], list[SimCharge]](list)
    )

    def make(
        self, config: ConnectionConfig, request: ChargeRequest, *, now: datetime, shown: datetime
    ) -> SimCharge:
        """Create a charge that look-ups show from the time `shown` on. A repeated request creates another charge."""
        state, hours = self._payer()
        charge = SimCharge(
            charge_id=f"sim_{len(self.charges) + 1}",
            account_id=config.account_id,
            connection_id=config.connection_id,
            invoice_id=request.invoice_id,
            attempt=request.attempt,
            amount_cents=request.amount_cents,
            due_date=request.due_date,
            created_at=now,
            visible_at=shown,
            next_state=state,
            next_state_at=max(start_of_day(request.due_date) + timedelta(hours=hours), shown),
        )
        self.charges[charge.charge_id] = charge
        self._of_reference[request.invoice_id, request.attempt].append(charge)
        self.journal.write(
            "charge",
            charge_id=charge.charge_id,
            account_id=str(charge.account_id),
            connection_id=str(charge.connection_id),
            invoice_id=str(charge.invoice_id),
            attempt=charge.attempt,
            amount_cents=charge.amount_cents,
            due_date=charge.due_date.isoformat(),
            state="open",
            created_at=now.isoformat(),
            visible_at=shown.isoformat(),
        )
        return charge

    def _payer(self) -> tuple[str, float]:
        if self.all_pay:
            return "paid", 0.0
        drawn = self.rng.randrange(100)
        for state, chance, (earliest, latest) in _PAYERS:
            if drawn < chance:
                return state, self.rng.uniform(earliest, latest)
            drawn -= chance
        raise AssertionError

    def of_reference(self, invoice_id: UUID, attempt: int) -> Sequence[SimCharge]:
        """Return all charges with a reference, oldest first, even if look-ups do not show them yet."""
        return self._of_reference.get((invoice_id, attempt), ())

    def of_invoice(self, invoice_id: str) -> Sequence[SimCharge]:
        return [each for each in self.charges.values() if str(each.invoice_id) == invoice_id]

    def as_of(self, charge: SimCharge, now: datetime) -> SimCharge:
        """Return a charge after its payer's actions up to `now`."""
        if charge.state not in {charge.next_state, "paid", "canceled"} and charge.next_state_at <= now:
            self.move(charge, charge.next_state, at=charge.next_state_at)
        return charge

    def move(self, charge: SimCharge, state: str, *, at: datetime) -> None:
        charge.state = state
        if state == "paid":
            charge.paid_at = at
        self.journal.change(
            "UPDATE charge SET state = ?, paid_at = ? WHERE charge_id = ?",
            state,
            charge.paid_at.isoformat() if charge.paid_at else None,
            charge.charge_id,
        )

    def let_all_pay(self, now: datetime) -> None:
        """Make every payer pay, unless the charge is canceled: existing charges now, later ones on the due date."""
        self.all_pay = True
        for charge in self.charges.values():
            if "canceled" not in {charge.state, charge.next_state}:
                charge.next_state, charge.next_state_at = "paid", now

    def all_as_of(self, now: datetime) -> None:
        for charge in self.charges.values():
            self.as_of(charge, now)
