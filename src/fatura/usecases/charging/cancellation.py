"""Cancel an invoice: at once while it has no charge, else after its gateway canceled the charge (D-27).

Two steps: `release_charge` asks the gateway where that is needed, with no transaction open, and `cancel` moves the
invoice. A crash between them loses nothing: the charge is asked after soon, and the same request may be sent again.
"""

import asyncio
from datetime import timedelta
from uuid import UUID

from fatura.domain import shapes
from fatura.domain.account import Account
from fatura.domain.charging import AttemptState
from fatura.domain.errors import INVOICE_NOT_CANCELABLE, EngineError, account_recovering, not_found
from fatura.domain.invoice_states import Fact, InvoiceStatus
from fatura.gateways.port import (
    CALL_TIMEOUT_SECONDS,
    AuthFailedError,
    ChargeState,
    Gateway,
    GatewayError,
    NotFoundError,
    PermanentError,
)
from fatura.observability import log
from fatura.store.charging import charge_polling, connections, held_invoices
from fatura.store.charging.held_invoices import HeldInvoice
from fatura.store.restore import frozen_accounts
from fatura.usecases.billing import invoice_moves, invoices
from fatura.usecases.billing.invoice_moves import Report
from fatura.usecases.charging import gateway_connections
from fatura.usecases.deps import Deps
from fatura.usecases.lane_names import LaneName
from fatura.usecases.transaction import Work, in_transaction

ASK_AFTER = timedelta(seconds=CALL_TIMEOUT_SECONDS + 10)
"""When a charge is asked after if whoever had it canceled does not come back to say so."""
WITH_CHARGE = (InvoiceStatus.ISSUED, InvoiceStatus.OVERDUE)


async def release_charge(deps: Deps, account: Account, invoice_id: UUID) -> str | None:
    """Have the gateway cancel the charge of an issued or overdue invoice; return its id once that is confirmed.

    None when there is nothing to ask the gateway for. Raises EngineError: `engine.not_found`, and
    `engine.invoice_not_cancelable` when the gateway does not confirm: then the charge is asked after at once.
    """

    async def reserve(work: Work) -> tuple[Gateway, str] | None:
        return await _reserve(work, invoice_id)

    reserved = await in_transaction(deps, account, reserve)
    if reserved is None:
        return None
    gateway, charge_id = reserved
    refusal = await _refusal(gateway, charge_id)
    if refusal is None:
        return charge_id
    log.warning("cancellation.unconfirmed", invoice_id=str(invoice_id), reason=refusal)

    async def ask_after(work: Work) -> None:
        await charge_polling.wake_charge(work.tx, invoice_id, now=work.now)
        work.notify(LaneName.RECONCILIATION)

    await in_transaction(deps, account, ask_after)
    raise EngineError(INVOICE_NOT_CANCELABLE, refusal)


async def _reserve(work: Work, invoice_id: UUID) -> tuple[Gateway, str] | None:
    """Return the charge to cancel and its gateway; from now on the charge is asked after, whoever dies."""
    held = await _held(work, invoice_id)
    if held.status not in WITH_CHARGE:
        return None
    assert held.gateway_invoice_id is not None, "an issued invoice has a charge"
    stored = await connections.find(work.tx, held.connection_id)
    assert stored is not None, "an invoice's connection exists"
    gateway = gateway_connections.opened(work, stored)
    if gateway is None:
        raise EngineError(
            INVOICE_NOT_CANCELABLE,
            "The gateway connection's credentials do not open; send them again, then cancel the invoice.",
        )
    await work.refresh()
    await charge_polling.wake_charge(work.tx, invoice_id, now=work.now + ASK_AFTER)
    return gateway, held.gateway_invoice_id


async def _refusal(gateway: Gateway, charge_id: str) -> str | None:
    """Ask the gateway to cancel; return why that is not confirmed, or None."""
    try:
        async with asyncio.timeout(CALL_TIMEOUT_SECONDS):
            charge = await gateway.cancel_charge(charge_id)
    except NotFoundError:
        return "The gateway does not know the invoice's charge; look there."
    except AuthFailedError:
        return "The gateway refuses the connection's credentials; mend them, then cancel the invoice."
    except PermanentError as error:
        return f"The gateway refuses to cancel the charge: {error.detail}"
    except (GatewayError, TimeoutError):
        return "The gateway did not confirm that the charge is canceled; read the invoice, then try again."
    match charge.state:
        case ChargeState.CANCELED:
            return None
        case ChargeState.PAID:
            return "The charge was paid meanwhile; refund the payment in the gateway instead."
        case _:
            return f"The gateway did not cancel the charge: there it is {charge.state}."


async def cancel(work: Work, invoice_id: UUID, *, released: str | None) -> shapes.Shape:
    """Move an invoice to `canceled`, and return it; `released` is the charge that `release_charge` had canceled (D-27).

    Raises EngineError: `engine.not_found`, `engine.invoice_not_cancelable`, `engine.account_recovering`.
    """
    held = await _held(work, invoice_id)
    await work.refresh()
    if held.status not in WITH_CHARGE and not await frozen_accounts.may_charge(work.tx):
        raise account_recovering()
    confirmed = released is not None and held.gateway_invoice_id == released
    if held.status is InvoiceStatus.CANCELED and confirmed:
        return await invoices.read(work, invoice_id)  # the asking after the charge came first
    refusal = None if confirmed and held.status in WITH_CHARGE else _why_not(work, held)
    if refusal is not None:
        raise EngineError(INVOICE_NOT_CANCELABLE, refusal)
    await invoice_moves.report(work, [Report(invoice_id, Fact.CANCEL_ASKED)])
    return await invoices.read(work, invoice_id)


def _why_not(work: Work, held: HeldInvoice) -> str | None:
    match held.status:
        case InvoiceStatus.PAID:
            return "The invoice is paid; refund the payment in the gateway instead."
        case InvoiceStatus.CANCELED:
            return "The invoice is canceled already."
        case InvoiceStatus.ISSUED | InvoiceStatus.OVERDUE:
            return "The invoice was issued while it was being canceled; cancel it again."
        case InvoiceStatus.READY if held.attempt is AttemptState.PARKED:
            return (
                "Nobody knows whether the gateway holds a charge of the invoice; look there and cancel one that "
                "you find, then retry issuance."
            )
        case InvoiceStatus.READY if held.attempt is AttemptState.SENDING or held.is_leased(work.deps.clock()):
            return "The invoice is being issued; read it again in a minute, and cancel it then."
        case InvoiceStatus.DRAFT | InvoiceStatus.AWAITING_VALUE if held.attempt is AttemptState.SENDING:
            return "The gateway holds a charge of the invoice; release its items, then cancel it."
        case _:
            return None


async def _held(work: Work, invoice_id: UUID) -> HeldInvoice:
    held = await held_invoices.hold(work.tx, invoice_id)
    if held is None:
        raise not_found("invoice", invoice_id)
    return held
