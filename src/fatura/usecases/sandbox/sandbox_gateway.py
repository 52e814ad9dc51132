"""Let merchants control the sandbox gateway: list charges and products, change charges, queue faults (D-46, D-61)."""

from collections.abc import Awaitable, Callable, Mapping
from operator import attrgetter
from typing import Any
from uuid import UUID

import msgspec
from msgspec import UNSET

from fatura.domain.account import Account
from fatura.domain.errors import NOT_FOUND, SANDBOX_CHARGE_CONFLICT, EngineError, invalid_fields, require
from fatura.domain.sandbox import MoveDetails, SandboxCharge, SandboxProduct
from fatura.gateways.checked import CheckedGateway
from fatura.gateways.port import NotFoundError, PermanentError
from fatura.gateways.sandbox_port import (
    CHARGES_LISTED,
    PRODUCTS_LISTED,
    SandboxControls,
    SandboxFault,
    SandboxMove,
    SandboxOperation,
)
from fatura.store.connections import connections
from fatura.usecases.audit_draft import AuditDraft
from fatura.usecases.connections import gateway_connections
from fatura.usecases.deps import Deps
from fatura.usecases.payments import second_charges
from fatura.usecases.reconciliation import polling, scheduled_looks
from fatura.usecases.transaction import Work, in_audited_transaction, in_transaction
from fatura.views.sandbox import (
    QueuedFaultView,
    SandboxChargeListView,
    SandboxChargeView,
    SandboxProductListView,
    SandboxProductView,
)
from fatura.views.view import instant

_NO_DETAILS = MoveDetails()


async def _open_gateways(work: Work) -> dict[UUID, SandboxControls]:
    """Return the adapters of the account's sandbox connections; a live account has none (D-44)."""
    gateways: dict[UUID, SandboxControls] = {}
    for stored in await connections.find_all(work.tx):
        gateway = gateway_connections.open_gateway(work, stored)
        adapter = None if gateway is None else gateway.adapter
        if isinstance(adapter, CheckedGateway) and isinstance(adapter.adapter, SandboxControls):
            gateways[stored.connection.connection_id] = adapter.adapter
    return gateways


async def list_charges(deps: Deps, account: Account, invoice_id: UUID | None) -> SandboxChargeListView:
    """Return the newest CHARGES_LISTED charges of the account or, with `invoice_id`, of that invoice, newest first."""
    gateways = await in_transaction(deps, account, _open_gateways)
    charges: list[SandboxCharge] = []
    for each in gateways.values():
        newest = sorted(
            [*charges, *await each.charges(invoice_id)], key=attrgetter("charge_id"), reverse=True
        )
        charges = newest[:CHARGES_LISTED]
    return SandboxChargeListView(data=[SandboxChargeView.of(charge) for charge in charges])


async def list_products(deps: Deps, account: Account) -> SandboxProductListView:
    """Return the newest PRODUCTS_LISTED products of all connections, newest first."""
    gateways = await in_transaction(deps, account, _open_gateways)
    products: list[SandboxProduct] = []
    for each in gateways.values():
        newest = sorted([*products, *await each.products()], key=attrgetter("product_id"), reverse=True)
        products = newest[:PRODUCTS_LISTED]
    return SandboxProductListView(data=[SandboxProductView.of(product) for product in products])


async def move_charge(
    deps: Deps,
    account: Account,
    charge_id: str,
    move: SandboxMove,
    *,
    details: MoveDetails = _NO_DETAILS,
    draft: AuditDraft | None,
) -> SandboxChargeView:
    """Change the state of a charge, for example by a payment, and make the charge due for polling now (D-46, D-61).

    Raises EngineError: `engine.invalid_request`, `engine.not_found`, `engine.sandbox_charge_conflict`.
    """
    if details.paid_at is not None and details.paid_at > account.now(deps.clock()):
        raise invalid_fields(("paidAt", "must not lie in the future"))
    return await _change(
        deps,
        account,
        charge_id,
        lambda gateway: gateway.move_charge(charge_id, move, details=details),
        draft=draft,
        given={"amountCents": details.amount_cents, "paidAt": instant(details.paid_at), "won": details.won},
    )


async def double_charge(
    deps: Deps, account: Account, charge_id: str, *, draft: AuditDraft | None
) -> SandboxChargeView:
    """Make the gateway create a second charge with the reference of this charge (D-61).

    Raises EngineError: `engine.not_found`, `engine.sandbox_charge_conflict`.
    """
    return await _change(
        deps, account, charge_id, lambda gateway: gateway.double_charge(charge_id), draft=draft
    )


async def forget_charge(
    deps: Deps, account: Account, charge_id: str, *, draft: AuditDraft | None
) -> SandboxChargeView:
    """Make the gateway forget a charge (D-61).

    Raises EngineError: `engine.not_found`, `engine.sandbox_charge_conflict`.
    """
    return await _change(
        deps, account, charge_id, lambda gateway: gateway.forget_charge(charge_id), draft=draft
    )


async def _change(
    deps: Deps,
    account: Account,
    charge_id: str,
    change: Callable[[SandboxControls], Awaitable[SandboxCharge]],
    *,
    draft: AuditDraft | None,
    given: Mapping[str, Any] | None = None,
) -> SandboxChargeView:
    """Change a charge at the connection that has the charge, and schedule an immediate poll of the charge.

    `given` are the details of the change, for the audit log.
    """
    for connection_id, gateway in (await in_transaction(deps, account, _open_gateways)).items():
        try:
            charge = await change(gateway)
        except NotFoundError:
            continue
        except PermanentError as error:
            raise EngineError(SANDBOX_CHARGE_CONFLICT, error.detail) from None
        await in_audited_transaction(
            deps, account, draft, _poll, connection_id, charge, charge_id=charge_id, given=given or {}
        )
        return SandboxChargeView.of(charge)
    raise EngineError(
        NOT_FOUND,
        f"No sandbox charge has the id {charge_id}; send `chargeId` of GET /v1/sandbox/charges.",
    )


async def _poll(
    work: Work, connection_id: UUID, charge: SandboxCharge, *, charge_id: str, given: Mapping[str, Any]
) -> None:
    state: dict[str, Any] = {
        "chargeId": charge.charge_id,
        "invoiceId": str(charge.invoice_id),
        "status": charge.status,
    }
    work.audit(charge_id, before={}, after={**state, **given})
    await polling.poll_now(work, charge.invoice_id)
    await polling.check_earlier_now(work, connection_id, charge.charge_id)
    await scheduled_looks.look_later(work, connection_id, [charge.charge_id])
    if charge.is_double:
        await second_charges.check_now(work, charge.invoice_id, charge.attempt)


async def add_fault(
    deps: Deps,
    account: Account,
    connection_id: UUID,
    *,
    operation: SandboxOperation,
    fault: SandboxFault,
    times: int | None,
    seconds: int | None,
    draft: AuditDraft | None,
) -> QueuedFaultView:
    """Queue a fault for the next `times` calls of an operation, or for `seconds` of real time (D-46, D-61).

    Exactly one of `times` and `seconds` is given. Raises EngineError: `engine.not_found`.
    """
    gateway = await _open_gateway(deps, account, connection_id)
    fault_id = await gateway.add_fault(operation, fault, times=times, seconds=seconds)
    view = QueuedFaultView(
        id=str(fault_id),
        connection_id=str(connection_id),
        operation=operation,
        fault=fault,
        times=UNSET if times is None else times,
        seconds=UNSET if seconds is None else seconds,
    )
    await in_audited_transaction(deps, account, draft, _audit, connection_id, msgspec.to_builtins(view))
    return view


async def end_faults(deps: Deps, account: Account, connection_id: UUID, *, draft: AuditDraft | None) -> None:
    """Remove all queued faults of a connection (D-61). Raises EngineError: `engine.not_found`."""
    await (await _open_gateway(deps, account, connection_id)).end_faults()
    await in_audited_transaction(deps, account, draft, _audit, connection_id, {})


async def _audit(work: Work, connection_id: UUID, after: Mapping[str, Any]) -> None:
    work.audit(connection_id, before={}, after=after)


async def _open_gateway(deps: Deps, account: Account, connection_id: UUID) -> SandboxControls:
    found = (await in_transaction(deps, account, _open_gateways)).get(connection_id)
    return require(found, "gateway connection", id_=connection_id)
