"""Payments that were read from bank statements (D-257).

This module also checks whether such a payment may already be stored under another id of the bank.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date, datetime
from uuid import UUID

from fatura.domain.bank_statement import is_end_to_end_id, same_id
from fatura.domain.calendar import local_date

MAX_PAYMENTS = 100
"""Maximum number of imported payments of a charge."""
MAX_DAYS_APART = 3
"""Two exports of a bank may give one credit two ids and two days, for example before and after a weekend."""


@dataclass(frozen=True, slots=True)
class StatementPayment:
    """A credit of a bank statement that pays a charge.

    `bank_id` is the bank's id of the credit. `is_confirmed` is true if a person confirmed that this payment is not one
    of the charge's stored payments. `is_guess` is true if the charge was found by the amount and the payer, not by its
    txid.
    """

    bank_id: str
    charge_id: str
    amount_cents: int
    occurred_at: datetime
    is_confirmed: bool = False
    is_guess: bool = False


@dataclass(frozen=True, slots=True)
class ImportedPayment:
    """A stored payment of an imported statement."""

    bank_id: str
    charge_id: str
    invoice_id: UUID
    amount_cents: int
    occurred_on: date


@dataclass(slots=True)
class ChargePayments:
    """The payments of a charge of `amount_cents`, stored or about to be stored."""

    amount_cents: int
    is_open: bool = True
    count: int = 0
    paid_cents: int = 0
    known: set[tuple[int, date]] = field(default_factory=set[tuple[int, date]])
    stored: list[tuple[int, date, str]] = field(default_factory=list[tuple[int, date, str]])

    @classmethod
    def of(
        cls, amount_cents: int, payments: Iterable[tuple[int, datetime, str]], *, is_open: bool
    ) -> "ChargePayments":
        """Return the stored payments of a charge from the amount, the time and the bank's id of each payment."""
        made = cls(amount_cents, is_open)
        for paid_cents, occurred_at, bank_id in payments:
            made.add(paid_cents, occurred_at)
            made.stored.append((paid_cents, local_date(occurred_at), bank_id))
        return made

    def add(self, paid_cents: int, occurred_at: datetime) -> None:
        self.count += 1
        self.paid_cents += paid_cents
        self.known.add((paid_cents, local_date(occurred_at)))

    def may_have(self, payment: StatementPayment) -> bool:
        """Return whether the charge may already have this payment, under another id of the bank.

        The first rule that applies decides:

        - If the charge has MAX_PAYMENTS payments, the result is True.
        - If a person confirmed the payment, the result is False.
        - If the charge's payments cover the charge's amount, the result is True.
        - If one of these payments has the same amount and the same date in Sao Paulo, the result is True. A stored
          payment may have a date that is up to MAX_DAYS_APART days away, unless both payments have end-to-end ids.
        - If the payment is a guess, and the charge is not open or has a payment, the result is True.

        Otherwise, the result is False.
        """
        if self.count >= MAX_PAYMENTS:
            return True
        day = local_date(payment.occurred_at)
        is_alike = (payment.amount_cents, day) in self.known or any(
            cents == payment.amount_cents
            and may_be_one(payment.bank_id, day, other_id=bank_id, other_day=stored_day)
            for cents, stored_day, bank_id in self.stored
        )
        is_unsure = payment.is_guess and (self.count > 0 or not self.is_open)
        return not payment.is_confirmed and (is_alike or is_unsure or self.paid_cents >= self.amount_cents)


def may_be_one(bank_id: str, day: date, *, other_id: str | None, other_day: date) -> bool:
    """Return whether two payments of one amount, from two exports, may be one. Two end-to-end ids are two payments."""
    has_two_ids = is_end_to_end_id(bank_id) and other_id is not None and is_end_to_end_id(other_id)
    is_near = abs((day - other_day).days) <= MAX_DAYS_APART
    return same_id(bank_id) == same_id(other_id or "") if has_two_ids else is_near
