"""The `sandbox` provider: a simulated gateway for sandbox accounts (D-44, D-46).

Each call runs in transactions of its own, never in a transaction of the engine. Simulated payers pay or refuse charges
at instants of the account's clock. When the adapter reads a charge, it stores what the payer has done until then.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from datetime import datetime
from typing import ClassVar
from uuid import UUID

import uuid_utils

from fatura.domain.sandbox import (
    MoveDetails,
    SandboxCharge,
    SandboxFault,
    SandboxMove,
    SandboxOperation,
    SandboxProduct,
    SandboxStatus,
)
from fatura.gateways import port
from fatura.gateways.adapters.sandbox import faults, tables
from fatura.gateways.adapters.sandbox.rules import as_charge, check_request, moved, refunded, settled
from fatura.gateways.adapters.sandbox.settings import SandboxSettings, parse
from fatura.gateways.adapters.sandbox.webhook import CHARGE_ID, hint
from fatura.gateways.sandbox_port import CHARGES_LISTED, MAX_DOUBLES, PRODUCTS_LISTED


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
            polls_per_minute=None,
            min_amount_cents=settings.min_amount_cents,
            min_installment_cents=settings.min_installment_cents,
            refunds="key" if settings.refunds else "none",
        )

    async def check_credentials(self) -> str | None:
        """Return the setting `providerAccount`. The sandbox needs no credentials, and `capabilities` refuses them.

        Only faults of the operation `all` affect this call. Raises AuthFailedError, TransientError.
        """
        try:
            async with self._call(SandboxOperation.ALL):
                return self._settings().provider_account
        except (port.PermanentError, port.NotFoundError) as refusal:
            raise port.AuthFailedError(str(refusal)) from None

    async def create_charge(self, request: port.ChargeRequest) -> port.Charge:
        """Create a charge; a repeated request creates another charge.

        With some values of the setting `behaviour`, the simulated payer pays or refuses the charge immediately.
        """
        settings, now = self._settings(), self._config.now
        async with self._call(SandboxOperation.CREATE_CHARGE):
            check_request(request, settings, now=now)
            new = SandboxCharge(
                charge_id=f"sbx_{_new_id().hex}",
                connection_id=self._config.connection_id,
                invoice_id=request.invoice_id,
                attempt=request.attempt,
                amount_cents=request.amount_cents,
                currency=request.currency,
                method=request.method,
                installments=request.installments,
                due_date=request.due_date,
                status=SandboxStatus.OPEN,
                created_at=now,
            )
            charge = settled(new, settings.behaviour, now=now, reference=_new_reference())
            async with self._transaction() as tx:
                await tables.insert_charge(tx, charge)
        return as_charge(charge)

    async def find_charges(self, invoice_id: UUID, attempt: int) -> Sequence[port.Charge]:
        try:
            async with self._call(SandboxOperation.LIST_CHARGES):
                charges = await self.charges(invoice_id)
        except port.NotFoundError:
            return []
        return [as_charge(charge) for charge in reversed(charges) if charge.attempt == attempt]

    async def get_charge(self, charge_id: str) -> port.Charge:
        async with self._call(SandboxOperation.GET_CHARGE), self._transaction() as tx:
            return as_charge(await self._find(tx, charge_id))

    async def charges_since(self, since: datetime) -> AsyncIterator[port.Charge]:
        after = ""
        while True:
            try:
                async with self._call(SandboxOperation.LIST_CHARGES), self._transaction() as tx:
                    page = await tables.charges_since(tx, self._config.connection_id, since, after=after)
                    charges = await self._settled(tx, page)
            except port.NotFoundError:
                return
            for charge in charges:
                yield as_charge(charge)
            if not charges:
                return
            since, after = charges[-1].created_at, charges[-1].charge_id

    async def cancel_charge(self, charge_id: str) -> port.Charge:
        """Cancel a charge that is open or refused; return any other charge unchanged."""
        async with self._call(SandboxOperation.CANCEL_CHARGE), self._transaction() as tx:
            charge = await self._lock(tx, charge_id)
            if charge.status in {SandboxStatus.OPEN, SandboxStatus.REFUSED}:
                charge = replace(charge, status=SandboxStatus.CANCELED)
                await tables.update_charges(tx, [charge])
            return as_charge(charge)

    async def refund_charge(self, request: port.RefundRequest) -> port.Charge:
        """Refund a charge at once; a repeated request refunds nothing more.

        The codes of PermanentError are `refunds_unsupported`, `charge_status` and `rejected`.
        """
        settings = self._settings()
        async with self._call(SandboxOperation.REFUND_CHARGE), self._transaction() as tx:
            if not settings.refunds:
                raise port.PermanentError("refunds_unsupported", "This connection makes no refunds.")
            before = await self._lock(tx, request.charge_id)
            after = refunded(before, request, now=self._config.now, reference=_new_reference())
            await tables.update_charges(tx, [after])
            return as_charge(after)

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

    async def move_charge(self, charge_id: str, move: SandboxMove, *, details: MoveDetails) -> SandboxCharge:
        """Apply what the simulated payer has done until now, then apply the move, and store the charge.

        Raises NotFoundError, PermanentError `charge_status`.
        """
        async with self._transaction() as tx:
            before = await self._lock(tx, charge_id)
            after = moved(before, move, details=details, now=self._config.now, reference=_new_reference())
            await tables.update_charges(tx, [after])
        return after

    async def double_charge(self, charge_id: str) -> SandboxCharge:
        async with self._transaction() as tx:
            charge = await self._lock(tx, charge_id)
            if await tables.count_doubles(tx, charge.connection_id, charge.invoice_id) >= MAX_DOUBLES:
                detail = f"The invoice has {MAX_DOUBLES} second charges, the most that the sandbox makes."
                raise port.PermanentError("charge_status", detail)
            double = replace(
                charge,
                charge_id=f"sbx_{_new_id().hex}",
                status=SandboxStatus.OPEN,
                entries=(),
                is_double=True,
                created_at=self._config.now,
            )
            await tables.insert_charge(tx, double)
        return double

    async def forget_charge(self, charge_id: str) -> SandboxCharge:
        async with self._transaction() as tx:
            charge = await self._lock(tx, charge_id)
            if charge.is_double and charge.entries:
                # otherwise a merchant could pay and remove second charges again and again, and exceed MAX_DOUBLES
                raise port.PermanentError("charge_status", "The sandbox keeps second charges that were paid.")
            await tables.delete_charge(tx, charge_id)
        return charge

    async def products(self) -> Sequence[SandboxProduct]:
        async with self._transaction() as tx:
            return await tables.products(tx, self._config.connection_id, limit=PRODUCTS_LISTED)

    async def add_fault(
        self,
        operation: SandboxOperation,
        fault: SandboxFault,
        *,
        times: int | None = None,
        seconds: int | None = None,
    ) -> UUID:
        fault_id, connection_id = _new_id(), self._config.connection_id
        async with self._transaction() as tx:
            await tables.insert_fault(
                tx, connection_id, fault_id, operation=operation, fault=fault, times=times, seconds=seconds
            )
        return fault_id

    async def end_faults(self) -> None:
        async with self._transaction() as tx:
            await tables.delete_faults(tx, self._config.connection_id)

    def _settings(self) -> SandboxSettings:
        return parse(self._config.settings, self._config.credentials)

    def _transaction(self) -> AbstractAsyncContextManager[tables.Tx]:
        return self._database.transaction(self._config.account_id)

    @asynccontextmanager
    async def _call(self, operation: SandboxOperation) -> AsyncGenerator[None]:
        """Run the `async with` block as a gateway call. A queued fault prevents the call or discards its answer."""
        async with self._transaction() as tx:
            fault = await tables.take_fault(tx, self._config.connection_id, operation)
        # the transaction has ended, so a call that hangs occupies no database connection
        await faults.fail_before(operation, fault)
        yield
        faults.fail_after(operation, fault)

    async def _find(self, tx: tables.Tx, charge_id: str) -> SandboxCharge:
        """Return a charge with its current status. Raises NotFoundError; if the id is malformed, no query runs."""
        charge = None
        if CHARGE_ID.fullmatch(charge_id):
            charge = await tables.find_charge(tx, self._config.connection_id, charge_id)
        if charge is None:
            raise port.NotFoundError(charge_id)
        return (await self._settled(tx, [charge]))[0]

    async def _lock(self, tx: tables.Tx, charge_id: str) -> SandboxCharge:
        """Return a locked charge with its current status. Raises NotFoundError."""
        await self._find(tx, charge_id)
        found = await tables.lock_charges(tx, self._config.connection_id, [charge_id])
        if not found:
            raise port.NotFoundError(charge_id)
        return self._as_of_now(found[0])

    async def _settled(self, tx: tables.Tx, charges: list[SandboxCharge]) -> list[SandboxCharge]:
        """Store what the simulated payers have done until now. Return the charges with their current status."""
        due = [charge.charge_id for charge in charges if self._as_of_now(charge) is not charge]
        if not due:
            return charges
        locked = await tables.lock_charges(tx, self._config.connection_id, due)
        current = {charge.charge_id: self._as_of_now(charge) for charge in locked}
        await tables.update_charges(tx, list(current.values()))
        return [current.get(charge.charge_id, charge) for charge in charges]

    def _as_of_now(self, charge: SandboxCharge) -> SandboxCharge:
        """Return the charge with the actions of its simulated payer until now.

        If the payer did nothing, return the same object.
        """
        behaviour = self._settings().behaviour
        return settled(charge, behaviour, now=self._config.now, reference=_new_reference())


def _new_id() -> UUID:
    """Return an id with a real-time timestamp; ids are ordered by creation even within a millisecond."""
    return UUID(bytes=uuid_utils.uuid7().bytes)


def _new_reference() -> str:
    """Return the id of a new payment, refund or dispute."""
    return f"sbxe_{_new_id().hex}"
