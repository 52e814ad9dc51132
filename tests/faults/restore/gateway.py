"""A gateway that keeps its charges in a file, so that restoring the database does not change them."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import date, datetime
from typing import Any, ClassVar
from uuid import UUID

from fatura.domain.credentials import Mode
from fatura.gateways.port import (
    AuthFailedError,
    Capabilities,
    Charge,
    ChargeRequest,
    ConnectionConfig,
    NotFoundError,
    PermanentError,
    ProductMirror,
    RefundRequest,
    Webhook,
    WebhookHint,
)
from fatura.gateways.provider import Provider, Providers
from fatura.store.db import Database
from tests.faults.charges import capabilities_of, charge_of, pay_if_due
from tests.faults.journal import Journal

PROVIDER = "journal"
NEVER_PAID_EVERY = 5
"""Every fifth charge is never paid."""
PAGE = 50


class JournalGateway:
    """A gateway that does not recognize repeated requests: each repeat creates a second charge.

    The engine can prevent second charges only by look-ups.
    """

    provider: ClassVar[str] = PROVIDER

    def __init__(self, journal: Journal, config: ConnectionConfig) -> None:
        self._journal = journal
        self._config = config

    def capabilities(self) -> Capabilities:
        return capabilities_of(self._config)

    async def check_credentials(self) -> None:
        """Accept all credentials."""

    async def create_charge(self, request: ChargeRequest) -> Charge:
        self._journal.write("gateway_call", operation="create", invoice_id=str(request.invoice_id))
        charge_id = f"ch_{self._journal.count('gateway_call'):08}"
        self._journal.write(
            "charge",
            charge_id=charge_id,
            account_id=str(self._config.account_id),
            connection_id=str(self._config.connection_id),
            invoice_id=str(request.invoice_id),
            attempt=request.attempt,
            amount_cents=request.amount_cents,
            due_date=request.due_date.isoformat(),
            state="open",
            created_at=self._config.now.isoformat(),
        )
        return await self.get_charge(charge_id)

    async def find_charges(self, invoice_id: UUID, attempt: int) -> Sequence[Charge]:
        return self._read("invoice_id = ? AND attempt = ?", str(invoice_id), attempt)

    async def get_charge(self, charge_id: str) -> Charge:
        """Raises NotFoundError."""
        found = self._read("charge_id = ?", charge_id)
        if not found:
            raise NotFoundError(charge_id)
        return found[0]

    async def charges_since(self, since: datetime) -> AsyncIterator[Charge]:
        from_, after = since.isoformat(), ""
        condition = "(created_at, charge_id) > (?, ?) ORDER BY created_at, charge_id LIMIT ?"
        while page := self._read(condition, from_, after, PAGE):
            for charge in page:
                yield charge
            assert page[-1].created_at is not None, "every charge of the journal has it"
            from_, after = page[-1].created_at.isoformat(), page[-1].charge_id

    async def cancel_charge(self, charge_id: str) -> Charge:
        """Cancel a charge if it is open. A charge in another state stays unchanged. Raises NotFoundError."""
        await self.get_charge(charge_id)
        self._journal.change(
            "UPDATE charge SET state = 'canceled' WHERE charge_id = ? AND state = 'open'", charge_id
        )
        return await self.get_charge(charge_id)

    async def refund_charge(self, request: RefundRequest) -> Charge:
        """Raises PermanentError, because this gateway makes no refunds."""
        raise PermanentError("no_refunds", request.charge_id)

    def read_webhook(self, webhook: Webhook) -> WebhookHint:
        """Raises AuthFailedError for every webhook, because this gateway sends none."""
        raise AuthFailedError(str(len(webhook.body)))

    async def mirror_product(self, product: ProductMirror) -> str:
        """Raises PermanentError, because this gateway has no catalog."""
        raise PermanentError("no_catalog", str(product.product_id))

    def _read(self, condition: str, *values: Any) -> Sequence[Charge]:
        """Find the connection's charges that meet an SQL condition.

        Let the payers pay the charges that are due, and return the charges.
        """
        found = list(
            self._journal.read(
                f"SELECT * FROM charge WHERE connection_id = ? AND {condition}",  # noqa: S608 - written here
                str(self._config.connection_id),
                *values,
            )
        )
        return [self._charge(row) for row in found]

    def _charge(self, row: Mapping[str, Any]) -> Charge:
        is_never_paid = int(row["charge_id"][3:]) % NEVER_PAID_EVERY == 0
        paid = row if is_never_paid else pay_if_due(self._journal, row, now=self._config.now)
        entries = list(self._journal.read("SELECT * FROM entry WHERE charge_id = ?", row["charge_id"]))
        return charge_of({**paid, "entries": entries}, due_date=date.fromisoformat(row["due_date"]))


def pay_part(journal: Journal, charge_id: str, *, now: datetime) -> None:
    """Let the payer pay a third of an open charge that has no payment yet."""
    part = journal.read(
        "SELECT amount_cents / 3 AS cents FROM charge c WHERE charge_id = ? AND state = 'open' AND amount_cents >= 3 "
        "AND NOT EXISTS (SELECT 1 FROM entry e WHERE e.charge_id = c.charge_id)",
        charge_id,
    )
    for row in list(part):
        journal.write(
            "entry",
            charge_id=charge_id,
            kind="payment",
            reference=f"part_{charge_id}",
            amount_cents=row["cents"],
            occurred_at=now.isoformat(),
        )


def cancel_charge(journal: Journal, charge_id: str) -> None:
    """Cancel a charge in any state, as a person can in a gateway's dashboard."""
    journal.change("UPDATE charge SET state = 'canceled' WHERE charge_id = ?", charge_id)


def journal_providers(journal: Journal) -> Callable[[Database], AbstractAsyncContextManager[Providers]]:
    """Return a function that opens this gateway as a provider for live accounts."""

    @asynccontextmanager
    async def opened(_db: Database) -> AsyncGenerator[Providers]:
        def factory(config: ConnectionConfig) -> JournalGateway:
            return JournalGateway(journal, config)

        yield {PROVIDER: Provider(factory, frozenset({Mode.LIVE}))}

    return opened
