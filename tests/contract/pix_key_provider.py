"""The test double for connections with a Pix key, which have no provider. It makes database transactions fail."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from fatura.domain.connection import Connection
from fatura.domain.credentials import Mode
from fatura.domain.offer import PaymentMethod
from fatura.domain.statement_payments import StatementPayment
from fatura.gateways.adapters.pix_key.adapter import PixKeyGateway
from fatura.gateways.port import (
    Charge,
    ConnectionConfig,
    Gateway,
    GatewayError,
    TransientError,
    UnknownOutcomeError,
    Webhook,
)
from fatura.gateways.statement_port import StatementImports
from fatura.store.accounts import accounts
from fatura.store.connections import connections
from fatura.store.connections.connections import StoredConnection
from fatura.store.db import Database, Tx
from tests.contract.provider import NOW, refund_request

SETTINGS = {"pixKey": "pix@example.com", "merchantName": "Café do João", "merchantCity": "São Paulo"}


@dataclass(slots=True)
class FailingDatabase:
    """Raises `before` when the next transaction starts, or `after` when that transaction has been committed."""

    db: Database
    before: GatewayError | None = None
    after: GatewayError | None = None

    @asynccontextmanager
    async def transaction(self, account_id: UUID) -> AsyncGenerator[Tx]:
        before, after, self.before, self.after = self.before, self.after, None, None
        if before is not None:
            raise before
        async with self.db.transaction(account_id) as tx:
            yield tx
        if after is not None:
            raise after


@dataclass(slots=True)
class PixKeyProvider:
    db: Database
    signs_webhook_bodies: bool = True
    lists_canceled: bool = True
    shows_refusals: bool = True
    shows_lost_refunds: bool = True
    databases: dict[int, FailingDatabase] = field(default_factory=dict[int, FailingDatabase])

    async def connect(self, **settings: Any) -> Gateway:
        config = ConnectionConfig(uuid4(), uuid4(), {**SETTINGS, **settings}, {}, NOW)
        connection = Connection(
            connection_id=config.connection_id,
            provider="pix_key",
            label=None,
            active=True,
            issues_charges=True,
            methods=(PaymentMethod.PIX,),
            max_installments=1,
            product_catalog=False,
            refunds=True,
            created_at=NOW,
        )
        async with self.db.transaction(config.account_id) as tx:
            await accounts.insert(tx, name="Tests", mode=Mode.LIVE, currency="BRL", created_at=NOW)
            await connections.insert(tx, StoredConnection(connection, config.settings, b""))
        database = FailingDatabase(self.db)
        gateway = PixKeyGateway(database, config)
        self.databases[id(gateway)] = database
        return gateway

    async def pay(self, gateway: Gateway, charge: Charge) -> None:
        """Import the payment, as the merchant does from a bank statement."""
        assert isinstance(gateway, StatementImports)
        paid = StatementPayment(f"bank-{charge.charge_id}", charge.charge_id, charge.amount_cents, NOW)
        assert await gateway.import_payments([paid]) == [paid.bank_id]

    async def refuse(self, gateway: Gateway, charge: Charge) -> None:
        raise NotImplementedError("nobody can refuse a Pix code, and the suite does not ask for it")

    async def cancel(self, gateway: Gateway, charge: Charge) -> None:
        await gateway.cancel_charge(charge.charge_id)

    async def refund(self, gateway: Gateway, charge: Charge) -> None:
        await gateway.refund_charge(refund_request(charge, charge.amount_cents))

    async def lose_next_request(self, gateway: Gateway) -> None:
        self.databases[id(gateway)].before = UnknownOutcomeError("the connection broke")

    async def lose_next_answer(self, gateway: Gateway) -> None:
        self.databases[id(gateway)].after = UnknownOutcomeError("the connection broke")

    async def lose_next_cancel(self, gateway: Gateway) -> None:
        self.databases[id(gateway)].after = UnknownOutcomeError("the connection broke")

    async def lose_next_refund(self, gateway: Gateway) -> None:
        self.databases[id(gateway)].after = UnknownOutcomeError("the connection broke")

    async def limit_next_request(self, gateway: Gateway) -> None:
        self.databases[id(gateway)].before = TransientError("no free connection")

    async def fail_next_read(self, gateway: Gateway) -> None:
        self.databases[id(gateway)].before = TransientError("no free connection")

    async def fail_next_list(self, gateway: Gateway) -> None:
        self.databases[id(gateway)].before = TransientError("no free connection")

    def webhook(self, gateway: Gateway, charge: Charge) -> Webhook | None:  # noqa: ARG002 - part of the interface
        return None

    async def catalog(self, gateway: Gateway) -> dict[str, str]:  # noqa: ARG002 - part of the interface
        return {}
