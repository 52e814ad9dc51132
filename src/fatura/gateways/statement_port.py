"""The calls with which a merchant tells a connection what a bank statement shows (D-257).

For billing, the engine uses such a connection only through `gateways.port`, like any other provider.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable
from uuid import UUID

from fatura.domain.statement_payments import ImportedPayment, StatementPayment
from fatura.gateways.port import Charge, Gateway


class ImportedMeanwhileError(Exception):
    """Other payments were stored since this import was decided, so nothing was added."""


IsCurrent = Callable[[Any], Awaitable[bool]]
"""Return whether an import was decided with all stored payments. The argument is the transaction of the import."""


@runtime_checkable
class StatementImports(Gateway, Protocol):
    """A connection whose provider reports no payments. The merchant imports them from bank statements."""

    async def imported(self, bank_ids: Sequence[str]) -> Sequence[ImportedPayment]:
        """Return the payments with these ids of the bank that were imported by any connection of the account.

        An end-to-end id of a Pix finds a payment in upper and lower case.
        """
        ...

    async def find_all(self, charge_ids: Sequence[str]) -> Sequence[Charge]:
        """Return the connection's charges that have one of these ids, in no particular order."""
        ...

    async def invoices(self, charge_ids: Sequence[str]) -> Mapping[str, UUID]:
        """Return the invoice id of each charge that has one of these ids, by charge id.

        The charges may belong to any connection of the account to this provider.
        """
        ...

    async def count_imported(self) -> int:
        """Return how many payments all connections of the account have imported so far."""
        ...

    async def import_payments(
        self,
        payments: Sequence[StatementPayment],
        *,
        imported_before: int | None = None,
        is_current: IsCurrent | None = None,
    ) -> Sequence[str]:
        """Add payments to charges of the connection, in this order, and return the `bank_id`s of the added payments.

        A payment is not added if any connection of the account has imported its `bank_id`, or if its charge may already
        have the payment (`ChargePayments.may_have`). An import waits for other imports of the account, and sees their
        payments. Raises ImportedMeanwhileError if `imported_before` is no longer the result of `count_imported`, or if
        `is_current` returns False. `is_current` runs in the import's transaction, after the charges were locked against
        cancellations.
        """
        ...
