"""The sandbox gateway is its own test double in the contract suite.

Its `move_charge` simulates actions of payers, and actions of merchants in a real provider's dashboard.
"""

import json
import time
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from fatura.domain.connection import Connection
from fatura.domain.credentials import Mode
from fatura.domain.offer import PaymentMethod
from fatura.domain.sandbox import MoveDetails, SandboxFault, SandboxMove, SandboxOperation
from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import Charge, ConnectionConfig, Gateway, Webhook
from fatura.gateways.sandbox_port import WEBHOOK_SIGNATURE, SandboxControls
from fatura.signature import sign
from fatura.store.accounts import accounts
from fatura.store.connections import connections
from fatura.store.connections.connections import StoredConnection
from fatura.store.db import Database
from tests.contract.provider import NOW


@dataclass(frozen=True, slots=True)
class SandboxProvider:
    db: Database
    signs_webhook_bodies: bool = True
    lists_canceled: bool = True
    shows_refusals: bool = True
    shows_lost_refunds: bool = True

    async def add(self, *, account_id: UUID | None = None, **settings: Any) -> ConnectionConfig:
        """Insert a sandbox connection, by default in a new account."""
        config = ConnectionConfig(account_id or uuid4(), uuid4(), settings, {}, NOW)
        connection = Connection(
            connection_id=config.connection_id,
            provider="sandbox",
            label=None,
            active=True,
            issues_charges=True,
            methods=tuple(PaymentMethod),
            max_installments=12,
            product_catalog=True,
            refunds=True,
            created_at=NOW,
        )
        async with self.db.transaction(config.account_id) as tx:
            if account_id is None:
                await accounts.insert(tx, name="Tests", mode=Mode.SANDBOX, currency="BRL", created_at=NOW)
            await connections.insert(tx, StoredConnection(connection, config.settings, b""))
        return config

    def gateway(self, config: ConnectionConfig) -> SandboxGateway:
        return SandboxGateway(self.db, config)

    async def connect(self) -> Gateway:
        """Return a connection with a catalog, webhooks and minimums, in a new account."""
        config = await self.add(
            productCatalog=True, webhookSecret=uuid4().hex, minAmountCents=500, minInstallmentCents=300
        )
        return self.gateway(config)

    async def pay(self, gateway: Gateway, charge: Charge) -> None:
        await _books(gateway).move_charge(charge.charge_id, SandboxMove.PAY, details=MoveDetails())

    async def refuse(self, gateway: Gateway, charge: Charge) -> None:
        await _books(gateway).move_charge(charge.charge_id, SandboxMove.REFUSE, details=MoveDetails())

    async def cancel(self, gateway: Gateway, charge: Charge) -> None:
        await _books(gateway).move_charge(charge.charge_id, SandboxMove.CANCEL, details=MoveDetails())

    async def refund(self, gateway: Gateway, charge: Charge) -> None:
        await _books(gateway).move_charge(charge.charge_id, SandboxMove.REFUND, details=MoveDetails())

    async def lose_next_request(self, gateway: Gateway) -> None:
        await _books(gateway).add_fault(SandboxOperation.CREATE_CHARGE, SandboxFault.TIMEOUT_BEFORE, times=1)

    async def lose_next_answer(self, gateway: Gateway) -> None:
        await _books(gateway).add_fault(SandboxOperation.CREATE_CHARGE, SandboxFault.TIMEOUT_AFTER, times=1)

    async def lose_next_cancel(self, gateway: Gateway) -> None:
        await _books(gateway).add_fault(SandboxOperation.CANCEL_CHARGE, SandboxFault.TIMEOUT_AFTER, times=1)

    async def lose_next_refund(self, gateway: Gateway) -> None:
        await _books(gateway).add_fault(SandboxOperation.REFUND_CHARGE, SandboxFault.TIMEOUT_AFTER, times=1)

    async def limit_next_request(self, gateway: Gateway) -> None:
        await _books(gateway).add_fault(SandboxOperation.CREATE_CHARGE, SandboxFault.RATE_LIMITED, times=1)

    async def fail_next_read(self, gateway: Gateway) -> None:
        await _books(gateway).add_fault(SandboxOperation.GET_CHARGE, SandboxFault.SERVER_ERROR, times=1)

    async def fail_next_list(self, gateway: Gateway) -> None:
        await _books(gateway).add_fault(SandboxOperation.LIST_CHARGES, SandboxFault.SERVER_ERROR, times=1)

    def webhook(self, gateway: Gateway, charge: Charge) -> Webhook:
        assert isinstance(gateway, SandboxGateway)
        body = json.dumps({"chargeId": charge.charge_id}).encode()
        secret: str = gateway._config.settings["webhookSecret"]
        return Webhook({WEBHOOK_SIGNATURE: sign(body, [secret], timestamp=int(time.time()))}, "", body)

    async def catalog(self, gateway: Gateway) -> dict[str, str]:
        return {product.gateway_product_id: product.name for product in await _books(gateway).products()}


def _books(gateway: Gateway) -> SandboxControls:
    assert isinstance(gateway, SandboxControls)
    return gateway
