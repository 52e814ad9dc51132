"""Payments that were read from bank statements (D-257).

This module also checks whether such a payment may already be stored under another id of the bank.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date, datetime
from uuid import UUID

from fatura.domain.calendar import local_date

MAX_PAYMENTS = 100
"""Maximum number of imported payments of a charge."""


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

    @classmethod
    def of(
        cls, amount_cents: int, payments: Iterable[tuple[int, datetime]], *, is_open: bool
    ) -> "ChargePayments":
        """Return the payments of a charge from the amount and the time of each payment."""
        made = cls(amount_cents, is_open)
        for paid_cents, occurred_at in payments:
            made.add(paid_cents, occurred_at)
        return made

    def add(self, paid_cents: int, occurred_at: datetime) -> None:
        self.count += 1
        self.paid_cents += paid_cents
        self.known.add((paid_cents, local_date(occurred_at)))

    def may_have(self, payment: StatementPayment) -> bool:
        """Return whether the charge may already have this payment, under another id of the bank.

        The result is True if one of the charge's payments has the same amount and Sao Paulo date, or if its payments
        cover its amount. For a guessed payment, the result is also True if the charge is not open or has any payment.
        If a person confirmed the payment, the result is False. For a charge with MAX_PAYMENTS payments, the result is
        always True.
        """
        if self.count >= MAX_PAYMENTS:
            return True
        is_alike = (payment.amount_cents, local_date(payment.occurred_at)) in self.known
        is_unsure = payment.is_guess and (self.count > 0 or not self.is_open)
        return not payment.is_confirmed and (is_alike or is_unsure or self.paid_cents >= self.amount_cents)
