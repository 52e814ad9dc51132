"""The merchant's hand on the sandbox gateway: see its charges and products, move charges, queue faults (D-46)."""

from uuid import UUID

from fatura.domain import shapes
from fatura.domain.account import Account
from fatura.domain.errors import SANDBOX_CHARGE_CONFLICT, EngineError, not_found
from fatura.gateways.port import NotFoundError, PermanentError
from fatura.gateways.sandbox_port import (
    MAX_FAULT_TIMES,
    SandboxBooks,
    SandboxCharge,
    SandboxFault,
    SandboxMove,
    SandboxOperation,
    SandboxProduct,
)
from fatura.store.charging import connections
from fatura.usecases.charging import gateway_connections, polling
from fatura.usecases.deps import Deps
from fatura.usecases.lane_names import LaneName
from fatura.usecases.transaction import Work, in_transaction, load_account


async def _books(deps: Deps, account: Account) -> list[tuple[UUID, SandboxBooks]]:
    """Return the account's sandbox connections, opened; a live account has none (D-44)."""

    async def read(work: Work) -> list[tuple[UUID, SandboxBooks]]:
        found: list[tuple[UUID, SandboxBooks]] = []
        for stored in await connections.find_all(work.tx):
            gateway = gateway_connections.open_gateway(work, stored)
            if isinstance(gateway, SandboxBooks):
                found.append((stored.connection.connection_id, gateway))
        return found

    return await in_transaction(deps, account, read)


async def list_charges(deps: Deps, account: Account, invoice_id: UUID | None) -> list[shapes.Shape]:
    """Return the sandbox's charges, of one invoice or the newest of each connection."""
    found = [charge for _, books in await _books(deps, account) for charge in await books.charges(invoice_id)]
    return [_charge(charge) for charge in sorted(found, key=lambda charge: charge.charge_id, reverse=True)]


async def list_products(deps: Deps, account: Account) -> list[shapes.Shape]:
    """Return what was mirrored to the sandbox's catalogs."""
    found = [product for _, books in await _books(deps, account) for product in await books.products()]
    return [_product(product) for product in found]


async def move_charge(deps: Deps, account: Account, charge_id: str, move: SandboxMove) -> shapes.Shape:
    """Pay, refuse, cancel or refund a charge, and wake reconciliation as a webhook would (D-46).

    Raises EngineError: `engine.not_found`, `engine.sandbox_charge_conflict`.
    """
    for _, books in await _books(deps, account):
        try:
            charge = await books.move_charge(charge_id, move)
        except NotFoundError:
            continue
        except PermanentError as error:
            raise EngineError(SANDBOX_CHARGE_CONFLICT, error.detail) from None
        await _wake(deps, account, charge)
        return _charge(charge)
    raise not_found("sandbox charge", charge_id)


async def _wake(deps: Deps, account: Account, charge: SandboxCharge) -> None:
    async def effect(work: Work) -> None:
        await polling.poll_now(work, charge.invoice_id)
        work.notify(LaneName.RECONCILIATION)

    await in_transaction(deps, await load_account(deps, account.account_id), effect)


async def add_fault(
    deps: Deps,
    account: Account,
    connection_id: UUID,
    *,
    operation: SandboxOperation,
    fault: SandboxFault,
    times: int,
) -> shapes.Shape:
    """Queue a fault for the next calls of an operation (D-46). Raises EngineError: `engine.not_found`."""
    books = dict(await _books(deps, account)).get(connection_id)
    if books is None:
        raise not_found("gateway connection", connection_id)
    fault_id = await books.add_fault(operation, fault, times=times)
    return {
        "id": str(fault_id),
        "connectionId": str(connection_id),
        "operation": str(operation),
        "fault": str(fault),
        "times": times,
    }


def _charge(of: SandboxCharge) -> shapes.Shape:
    return {
        "chargeId": of.charge_id,
        "invoiceId": str(of.invoice_id),
        "connectionId": str(of.connection_id),
        "amountCents": of.amount_cents,
        "paymentMethod": str(of.method),
        "installments": of.installments,
        "dueDate": shapes.day(of.due_date),
        "status": str(of.status),
    }


def _product(of: SandboxProduct) -> shapes.Shape:
    return {
        "id": of.gateway_product_id,
        "productId": str(of.product_id),
        "connectionId": str(of.connection_id),
        "name": of.name,
        "description": of.description,
        "createdAt": shapes.instant(of.created_at),
    }


__all__ = [
    "MAX_FAULT_TIMES",
    "SandboxFault",
    "SandboxMove",
    "SandboxOperation",
    "add_fault",
    "list_charges",
    "list_products",
    "move_charge",
]
