"""The `sandbox` provider: a simulated gateway for sandbox accounts (D-44, D-46).

Each call runs in transactions of its own, never in one of the engine's. Simulated payers act by the account's clock.
The status that results from their action is stored when the charge is next read.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from typing import ClassVar
from uuid import UUID

import uuid_utils

from fatura.domain.sandbox import (
    MAX_FAULT_TIMES,
    SandboxCharge,
    SandboxFault,
    SandboxMove,
    SandboxOperation,
    SandboxProduct,
    SandboxStatus,
)
from fatura.gateways import port
from fatura.gateways.adapters.sandbox import tables
from fatura.gateways.adapters.sandbox.rules import MOVES, Outcome, as_charge, check_request, outcome
from fatura.gateways.adapters.sandbox.settings import SandboxSettings, parse
from fatura.gateways.adapters.sandbox.webhook import CHARGE_ID, hint
from fatura.gateways.sandbox_port import CHARGES_LISTED

_WRITES = (SandboxOperation.CREATE_CHARGE, SandboxOperation.CANCEL_CHARGE, SandboxOperation.CREATE_PRODUCT)


class SandboxGateway:
    """One sandbox connection; implements `port.Gateway` and `sandbox_port.SandboxControls`.

    Database errors are raised unchanged, because they are not answers of the gateway. The engine then treats the
    outcome as unknown.
    """

    provider: ClassVar[str] = "sandbox"
    __slots__ = ("_config", "_database")

    def __init__(self, database: tables.Database, config: port.ConnectionConfig) -> None:
        self._database = database
        self._config = config

    def capabilities(self) -> port.Capabilities:
        settings = self._settings()
        return port.Capabilities(
            issues_charges=settings.issues_charges,
            methods=settings.methods,
            max_installments=settings.max_installments,
            product_catalog=settings.product_catalog,
            idempotency="lookup",
            lists_charges=True,
        )

    async def check_credentials(self) -> None:
        """Do nothing: the sandbox has no credentials, and `capabilities` refuses any that are given."""

    async def create_charge(self, request: port.ChargeRequest) -> port.Charge:
        """Create a charge, even for a repeated request. Some settings make it paid or refused immediately.

        Raises UnknownOutcomeError, TransientError, PermanentError.
        """
        settings, now = self._settings(), self._config.now
        async with self._call(SandboxOperation.CREATE_CHARGE):
            check_request(request, settings, now=now)
            initial = outcome(settings.behaviour, due_date=request.due_date, created_at=now, now=now)
            charge = SandboxCharge(
                charge_id=f"sbx_{_new_id().hex}",
                connection_id=self._config.connection_id,
                invoice_id=request.invoice_id,
                attempt=request.attempt,
                amount_cents=request.amount_cents,
                method=request.method,
                installments=request.installments,
                due_date=request.due_date,
                status=initial.status,
                paid_at=initial.paid_at,
                created_at=now,
            )
            async with self._transaction() as tx:
                await tables.insert_charge(tx, charge)
        return as_charge(charge)

    async def find_charge(self, invoice_id: UUID, attempt: int) -> port.Charge | None:
        return next(iter(await self.find_charges(invoice_id, attempt)), None)

    async def find_charges(self, invoice_id: UUID, attempt: int) -> Sequence[port.Charge]:
        async with self._call(SandboxOperation.LIST_CHARGES):
            charges = await self.charges(invoice_id)
        return [as_charge(charge) for charge in reversed(charges) if charge.attempt == attempt]

    async def get_charge(self, charge_id: str) -> port.Charge:
        async with self._call(SandboxOperation.GET_CHARGE), self._transaction() as tx:
            return as_charge(await self._find(tx, charge_id))

    async def charges_since(self, since: datetime) -> AsyncIterator[port.Charge]:
        after = ""
        while True:
            async with self._call(SandboxOperation.LIST_CHARGES), self._transaction() as tx:
                page = await tables.charges_since(tx, self._config.connection_id, since, after=after)
                charges = await self._settled(tx, page)
            for charge in charges:
                yield as_charge(charge)
            if not charges:
                return
            after = charges[-1].charge_id

    async def cancel_charge(self, charge_id: str) -> port.Charge:
        """Cancel a charge that is open or refused; return any other charge unchanged.

        Raises NotFoundError, UnknownOutcomeError, TransientError, PermanentError `rejected`.
        """
        connection_id = self._config.connection_id
        async with self._call(SandboxOperation.CANCEL_CHARGE), self._transaction() as tx:
            await self._find(tx, charge_id)
            rule = MOVES[SandboxMove.CANCEL]
            await tables.move_charge(tx, connection_id, charge_id, rule=rule, paid_at=None)
            return as_charge(await self._find(tx, charge_id))

    def read_webhook(self, webhook: port.Webhook) -> port.WebhookHint:
        """Verify the signature with the setting `webhookSecret`. Raises AuthFailedError."""
        return hint(webhook, secret=self._settings().webhook_secret)

    async def mirror_product(self, product: port.ProductMirror) -> str:
        settings, connection_id = self._settings(), self._config.connection_id
        mirrored = SandboxProduct(
            connection_id, product.product_id, product.name, product.description, created_at=self._config.now
        )
        async with self._call(SandboxOperation.CREATE_PRODUCT):
            if not settings.product_catalog:
                raise port.PermanentError("no_catalog", "This connection has no product catalog.")
            async with self._transaction() as tx:
                await tables.upsert_product(tx, mirrored)
        return mirrored.gateway_product_id

    async def charges(self, invoice_id: UUID | None) -> Sequence[SandboxCharge]:
        async with self._transaction() as tx:
            newest = await tables.charges(tx, self._config.connection_id, invoice_id, limit=CHARGES_LISTED)
            return await self._settled(tx, newest)

    async def move_charge(self, charge_id: str, move: SandboxMove) -> SandboxCharge:
        """First store what the payer of a charge did so far, then make the move. A repeat changes nothing.

        Raises NotFoundError, PermanentError `charge_status`.
        """
        rule, connection_id = MOVES[move], self._config.connection_id
        paid_at = self._config.now if rule.target is SandboxStatus.PAID else None
        async with self._transaction() as tx:
            await self._find(tx, charge_id)
            await tables.move_charge(tx, connection_id, charge_id, rule=rule, paid_at=paid_at)
            charge = await self._find(tx, charge_id)
        if charge.status is not rule.target:
            raise port.PermanentError(
                "charge_status", f"The charge is {charge.status} and cannot become {rule.target}."
            )
        return charge

    async def products(self) -> Sequence[SandboxProduct]:
        async with self._transaction() as tx:
            return await tables.products(tx, self._config.connection_id)

    async def add_fault(self, operation: SandboxOperation, fault: SandboxFault, *, times: int) -> UUID:
        assert 1 <= times <= MAX_FAULT_TIMES, times
        fault_id, connection_id = _new_id(), self._config.connection_id
        async with self._transaction() as tx:
            await tables.insert_fault(
                tx, connection_id, fault_id, operation=operation, fault=fault, times=times
            )
        return fault_id

    def _settings(self) -> SandboxSettings:
        return parse(self._config.settings, self._config.credentials)

    def _transaction(self) -> AbstractAsyncContextManager[tables.Tx]:
        return self._database.transaction(self._config.account_id)

    @asynccontextmanager
    async def _call(self, operation: SandboxOperation) -> AsyncGenerator[None]:
        """Run the block as a gateway call. A queued fault prevents the call or discards its answer."""
        async with self._transaction() as tx:
            fault = await tables.take_fault(tx, self._config.connection_id, operation)
        no_answer = port.UnknownOutcomeError if operation in _WRITES else port.TransientError
        match fault:
            case SandboxFault.TIMEOUT_BEFORE | SandboxFault.SERVER_ERROR:
                raise no_answer(fault)
            case SandboxFault.RATE_LIMITED:
                raise port.TransientError(fault)
            case SandboxFault.REJECTED:
                raise port.PermanentError("rejected", "A queued fault refuses this call.")
            case SandboxFault.TIMEOUT_AFTER | None:
                yield
        if fault is SandboxFault.TIMEOUT_AFTER:
            raise no_answer(fault)

    async def _find(self, tx: tables.Tx, charge_id: str) -> SandboxCharge:
        """Return a charge with its current status. Raises NotFoundError; a malformed id causes no query."""
        charge = None
        if CHARGE_ID.fullmatch(charge_id):
            charge = await tables.find_charge(tx, self._config.connection_id, charge_id)
        if charge is None:
            raise port.NotFoundError(charge_id)
        return (await self._settled(tx, [charge]))[0]

    async def _settled(self, tx: tables.Tx, charges: list[SandboxCharge]) -> list[SandboxCharge]:
        """Return charges with their current status. First store what the payers of open charges did."""
        behaviour, now = self._settings().behaviour, self._config.now
        due: dict[str, Outcome] = {}
        for charge in charges:
            if charge.status is SandboxStatus.OPEN:
                made = outcome(behaviour, due_date=charge.due_date, created_at=charge.created_at, now=now)
                if made.status is not SandboxStatus.OPEN:
                    due[charge.charge_id] = made
        if not due:
            return charges
        settled = await tables.settle_charges(tx, self._config.connection_id, due)
        return [settled.get(charge.charge_id, charge) for charge in charges]


def _new_id() -> UUID:
    """Return an id with a real-time timestamp; ids are ordered by creation even within a millisecond."""
    return UUID(bytes=uuid_utils.uuid7().bytes)
