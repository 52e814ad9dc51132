"""The calls with which a merchant tells a connection what a bank statement shows (D-257).

For billing, the engine uses such a connection only through `gateways.port`, like any other provider.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, runtime_checkable

from fatura.gateways.port import Charge, Gateway


@dataclass(frozen=True, slots=True)
class StatementPayment:
    """A credit of a bank statement that pays a charge.

    `bank_id` is the bank's id of the credit. `is_confirmed` is true if a person has confirmed that this is not a
    payment of which the connection has the same amount of the same day.
    """

    bank_id: str
    charge_id: str
    amount_cents: int
    occurred_at: datetime
    is_confirmed: bool = False


@runtime_checkable
class StatementImports(Gateway, Protocol):
    """A connection whose provider reports no payments. The merchant imports them from bank statements."""

    async def imported(self, bank_ids: Sequence[str]) -> Mapping[str, StatementPayment]:
        """Return the imported payments with these ids of the bank, by id."""
        ...

    async def find_all(self, charge_ids: Sequence[str]) -> Sequence[Charge]:
        """Return the charges that have one of these ids, in no particular order."""
        ...

    async def import_payments(self, payments: Sequence[StatementPayment]) -> Sequence[str]:
        """Add payments to charges that exist, and return the `bank_id`s of the payments that were added.

        A payment is not added if the connection has a payment with its `bank_id`. Without `is_confirmed`, it is not
        added either if the charge has another payment of the same amount and Sao Paulo date.
        """
        ...
