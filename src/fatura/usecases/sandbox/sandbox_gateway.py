"""Let merchants control the sandbox gateway: list charges and products, change charges, queue faults (D-46)."""

from operator import attrgetter
from uuid import UUID

from fatura.domain.account import Account
from fatura.domain.errors import SANDBOX_CHARGE_CONFLICT, EngineError, not_found, require
from fatura.gateways.port import NotFoundError, PermanentError
from fatura.gateways.sandbox_port import SandboxControls, SandboxFault, SandboxMove, SandboxOperation
from fatura.store.charging import connections
from fatura.usecases.charging import gateway_connections, polling
from fatura.usecases.deps import Deps
from fatura.usecases.transaction import Work, in_transaction
from fatura.views.sandbox import (
    QueuedFaultView,
    SandboxChargeListView,
    SandboxChargeView,
    SandboxProductListView,
    SandboxProductView,
)


async def _open_gateways(work: Work) -> dict[UUID, SandboxControls]:
    """Return the adapters of the account's sandbox connections; a live account has none (D-44)."""
    gateways: dict[UUID, SandboxControls] = {}
    for stored in await connections.find_all(work.tx):
        gateway = gateway_connections.open_gateway(work, stored)
        if isinstance(gateway, SandboxControls):
            gateways[stored.connection.connection_id] = gateway
    return gateways


async def list_charges(deps: Deps, account: Account, invoice_id: UUID | None) -> SandboxChargeListView:
    """Return an invoice's sandbox charges; with `invoice_id` None, the newest charges of each connection."""
    gateways = await in_transaction(deps, account, _open_gateways)
    charges = [charge for each in gateways.values() for charge in await each.charges(invoice_id)]
    charges.sort(key=attrgetter("charge_id"), reverse=True)
    return SandboxChargeListView(data=[SandboxChargeView.of(charge) for charge in charges])


async def list_products(deps: Deps, account: Account) -> SandboxProductListView:
    gateways = await in_transaction(deps, account, _open_gateways)
    products = [product for each in gateways.values() for product in await each.products()]
    return SandboxProductListView(data=[SandboxProductView.of(product) for product in products])


async def move_charge(deps: Deps, account: Account, charge_id: str, move: SandboxMove) -> SandboxChargeView:
    """Pay, refuse, cancel or refund a charge. The engine then polls it immediately, as after a webhook (D-46).

    Raises EngineError: `engine.not_found`, `engine.sandbox_charge_conflict`.
    """
    for gateway in (await in_transaction(deps, account, _open_gateways)).values():
        try:
            charge = await gateway.move_charge(charge_id, move)
        except NotFoundError:
            continue
        except PermanentError as error:
            raise EngineError(SANDBOX_CHARGE_CONFLICT, error.detail) from None
        await in_transaction(deps, account, polling.poll_now, charge.invoice_id)
        return SandboxChargeView.of(charge)
    raise not_found("sandbox charge", charge_id)


async def add_fault(
    deps: Deps,
    account: Account,
    connection_id: UUID,
    *,
    operation: SandboxOperation,
    fault: SandboxFault,
    times: int,
) -> QueuedFaultView:
    """Queue a fault for the next `times` calls of an operation (D-46). Raises EngineError: `engine.not_found`."""
    found = (await in_transaction(deps, account, _open_gateways)).get(connection_id)
    gateway = require(found, "gateway connection", id_=connection_id)
    fault_id = await gateway.add_fault(operation, fault, times=times)
    return QueuedFaultView(
        id=str(fault_id), connection_id=str(connection_id), operation=operation, fault=fault, times=times
    )
