"""A gateway that keeps its charges in a file, so that restoring the database does not change them."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import date, datetime
from typing import Any, ClassVar
from uuid import UUID

from fatura.domain.calendar import start_of_day
from fatura.domain.credentials import Mode
from fatura.domain.offer import PaymentMethod
from fatura.gateways.port import (
    AuthFailedError,
    Capabilities,
    Charge,
    ChargeRequest,
    ChargeState,
    ConnectionConfig,
    NotFoundError,
    PermanentError,
    ProductMirror,
    Webhook,
    WebhookHint,
)
from fatura.gateways.registry import Provider, Providers
from fatura.store.db import Database
from tests.faults.journal import Journal

PROVIDER = "books"
NEVER_PAID_EVERY = 5
"""One in this many charges is never paid."""
PAGE = 50


class BookGateway:
    """Implements `port.Gateway` with look-ups only. A repeated request creates a second charge."""

    provider: ClassVar[str] = PROVIDER

    def __init__(self, journal: Journal, config: ConnectionConfig) -> None:
        self._journal = journal
        self._config = config

    def capabilities(self) -> Capabilities:
        return Capabilities(
            issues_charges=True,
            methods=tuple(PaymentMethod),
            max_installments=12,
            product_catalog=False,
            idempotency="lookup",
            lists_charges=True,
        )

    async def check_credentials(self) -> None:
        """Accept all credentials."""

    async def create_charge(self, request: ChargeRequest) -> Charge:
        self._journal.write("gateway_call", operation="create", invoice_id=str(request.invoice_id))
        charge_id = f"bk_{self._journal.count('gateway_call'):08}"
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

    async def find_charge(self, invoice_id: UUID, attempt: int) -> Charge | None:
        return next(iter(await self.find_charges(invoice_id, attempt)), None)

    async def find_charges(self, invoice_id: UUID, attempt: int) -> Sequence[Charge]:
        return self._read("invoice_id = ? AND attempt = ?", str(invoice_id), attempt)

    async def get_charge(self, charge_id: str) -> Charge:
        """Raises NotFoundError."""
        found = self._read("charge_id = ?", charge_id)
        if not found:
            raise NotFoundError(charge_id)
        return found[0]

    async def charges_since(self, since: datetime) -> AsyncIterator[Charge]:
        after = ""
        while page := self._read(
            "created_at >= ? AND charge_id > ? ORDER BY charge_id LIMIT ?", since.isoformat(), after, PAGE
        ):
            for charge in page:
                yield charge
            after = page[-1].charge_id

    async def cancel_charge(self, charge_id: str) -> Charge:
        """Raises NotFoundError. A charge that is not open stays unchanged."""
        await self.get_charge(charge_id)
        self._journal.change(
            "UPDATE charge SET state = 'canceled' WHERE charge_id = ? AND state = 'open'", charge_id
        )
        return await self.get_charge(charge_id)

    def read_webhook(self, webhook: Webhook) -> WebhookHint:
        """Raises AuthFailedError: this gateway sends no webhooks."""
        raise AuthFailedError(str(len(webhook.body)))

    async def mirror_product(self, product: ProductMirror) -> str:
        """Raises PermanentError: there is no catalog."""
        raise PermanentError("no_catalog", str(product.product_id))

    def _read(self, condition: str, *values: Any) -> Sequence[Charge]:
        """Return the connection's charges, after applying payments that are due."""
        found = list(
            self._journal.read(
                f"SELECT * FROM charge WHERE connection_id = ? AND {condition}",  # noqa: S608 - written here
                str(self._config.connection_id),
                *values,
            )
        )
        return [_charge(self._settled(row)) for row in found]

    def _settled(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        pays_at = start_of_day(date.fromisoformat(row["due_date"]))
        never = int(row["charge_id"][3:]) % NEVER_PAID_EVERY == 0
        if row["state"] != "open" or never or pays_at > self._config.now:
            return row
        paid_at = max(pays_at.isoformat(), row["created_at"])
        self._journal.change(
            "UPDATE charge SET state = 'paid', paid_at = ? WHERE charge_id = ?", paid_at, row["charge_id"]
        )
        return {**row, "state": "paid", "paid_at": paid_at}


def take_back(journal: Journal, charge_id: str) -> None:
    """Cancel a charge in any state, as a person can in a gateway's dashboard."""
    journal.change("UPDATE charge SET state = 'canceled' WHERE charge_id = ?", charge_id)


def _charge(row: Mapping[str, Any]) -> Charge:
    return Charge(
        charge_id=row["charge_id"],
        invoice_id=UUID(row["invoice_id"]),
        attempt=row["attempt"],
        state=ChargeState(row["state"]),
        amount_cents=row["amount_cents"],
        paid_at=datetime.fromisoformat(row["paid_at"]) if row["paid_at"] else None,
        due_date=date.fromisoformat(row["due_date"]),
    )


def book_providers(journal: Journal) -> Callable[[Database], AbstractAsyncContextManager[Providers]]:
    """Return a provider factory that offers this gateway to live accounts."""

    @asynccontextmanager
    async def opened(_db: Database) -> AsyncGenerator[Providers]:
        def factory(config: ConnectionConfig) -> BookGateway:
            return BookGateway(journal, config)

        yield {PROVIDER: Provider(factory, frozenset({Mode.LIVE}))}

    return opened
