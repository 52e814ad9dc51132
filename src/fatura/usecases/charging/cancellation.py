"""Cancel an invoice. If it has a charge, the gateway must cancel the charge first (D-27).

Call `release_charge`, then `cancel`. If the process dies in between, the charge is polled soon, and the client may
repeat the request.
"""

import asyncio
from datetime import datetime, timedelta
from uuid import UUID

from fatura.domain.account import Account
from fatura.domain.charging import AttemptState
from fatura.domain.errors import INVOICE_NOT_CANCELABLE, EngineError, account_recovering, require
from fatura.domain.invoice_states import Fact, InvoiceStatus
from fatura.gateways import port
from fatura.observability import log
from fatura.store.charging import charge_polling, connections, issuance_state
from fatura.store.charging.issuance_state import IssuanceState
from fatura.store.restore import frozen_accounts
from fatura.usecases.billing import invoice_moves, invoices
from fatura.usecases.billing.invoice_moves import Report
from fatura.usecases.charging import gateway_connections, polling
from fatura.usecases.deps import Deps
from fatura.usecases.transaction import Work, in_transaction
from fatura.views.invoices import InvoiceView

POLL_AFTER = timedelta(seconds=port.CALL_TIMEOUT_SECONDS + 10)
"""Delay before the charge is polled if this process dies during the cancellation."""
WITH_CHARGE = (InvoiceStatus.ISSUED, InvoiceStatus.OVERDUE)


async def release_charge(deps: Deps, account: Account, invoice_id: UUID) -> str | None:
    """Cancel the charge of an issued or overdue invoice at the gateway, and return the charge's id.

    Return None for an invoice in another status. If the gateway does not confirm the cancellation, the charge is
    polled immediately and `engine.invoice_not_cancelable` is raised.
    Raises EngineError: `engine.not_found`, `engine.invoice_not_cancelable`.
    """
    reserved = await in_transaction(deps, account, _reserve, invoice_id)
    if reserved is None:
        return None
    gateway, charge_id = reserved
    refusal = await _cancel_charge(gateway, charge_id)
    if refusal is None:
        return charge_id
    log.warning("charge.cancellation_unconfirmed", invoice_id=str(invoice_id), reason=refusal)
    await in_transaction(deps, account, polling.poll_now, invoice_id)
    raise EngineError(INVOICE_NOT_CANCELABLE, refusal)


async def cancel(work: Work, invoice_id: UUID, *, released: str | None) -> InvoiceView:
    """Move an invoice to `canceled` and return it; `released` is the result of `release_charge` (D-27).

    Raises EngineError: `engine.not_found`, `engine.invoice_not_cancelable`, `engine.account_recovering`.
    """
    state = require(await issuance_state.lock(work.tx, invoice_id), "invoice", id_=invoice_id)
    await work.refresh()
    if state.status not in WITH_CHARGE and not await frozen_accounts.may_charge(work.tx):
        raise account_recovering()
    is_released = released is not None and state.gateway_invoice_id == released
    if state.status is InvoiceStatus.CANCELED and is_released:
        return await invoices.read(work, invoice_id)  # a poll has recorded the cancellation meanwhile
    if not (is_released and state.status in WITH_CHARGE):
        refusal = _refusal(state, real_now=work.deps.clock())
        if refusal is not None:
            raise EngineError(INVOICE_NOT_CANCELABLE, refusal)
    await invoice_moves.report(work, [Report(invoice_id, Fact.CANCEL_REQUESTED)])
    return await invoices.read(work, invoice_id)


async def _reserve(work: Work, invoice_id: UUID) -> tuple[port.Gateway, str] | None:
    """Return the gateway and the id of the charge to cancel; schedule a poll in case this process dies."""
    state = require(await issuance_state.lock(work.tx, invoice_id), "invoice", id_=invoice_id)
    if state.status not in WITH_CHARGE:
        return None
    assert state.gateway_invoice_id is not None, "an issued invoice has a charge"
    stored = await connections.find(work.tx, state.connection_id)
    assert stored is not None, "an invoice's connection exists"
    gateway = gateway_connections.open_gateway(work, stored)
    if gateway is None:
        raise EngineError(
            INVOICE_NOT_CANCELABLE,
            "The gateway connection's credentials cannot be decrypted; send them again, then cancel the invoice.",
        )
    await work.refresh()
    await charge_polling.make_due(work.tx, invoice_id, at=work.now + POLL_AFTER)
    return gateway, state.gateway_invoice_id


async def _cancel_charge(gateway: port.Gateway, charge_id: str) -> str | None:
    """Cancel a charge; return None if the gateway confirms that, else the reason to show to the client."""
    try:
        async with asyncio.timeout(port.CALL_TIMEOUT_SECONDS):
            charge = await gateway.cancel_charge(charge_id)
    except port.NotFoundError:
        return "The gateway does not know the invoice's charge; check it there."
    except port.AuthFailedError:
        return "The gateway refuses the connection's credentials; send new ones, then cancel the invoice."
    except port.PermanentError as error:
        return f"The gateway refuses to cancel the charge: {error.detail}"
    except (port.GatewayError, TimeoutError):
        return "The gateway did not confirm that the charge is canceled; read the invoice, then try again."
    match charge.state:
        case port.ChargeState.CANCELED:
            return None
        case port.ChargeState.PAID:
            return "The charge has been paid; refund the payment in the gateway instead."
        case _:
            return f"The gateway did not cancel the charge, which is {charge.state} there."


def _refusal(state: IssuanceState, *, real_now: datetime) -> str | None:
    match state.status:
        case InvoiceStatus.PAID:
            return "The invoice is paid; refund the payment in the gateway instead."
        case InvoiceStatus.CANCELED:
            return "The invoice is canceled already."
        case InvoiceStatus.ISSUED | InvoiceStatus.OVERDUE:
            return "The invoice was issued while it was being canceled; cancel it again."
        case InvoiceStatus.READY if state.attempt is AttemptState.PARKED:
            return (
                "It is not known whether the gateway holds a charge of the invoice; check there and cancel one that "
                "you find, then retry issuance."
            )
        case InvoiceStatus.READY if state.attempt is AttemptState.SENDING or state.is_leased(real_now):
            return "The invoice is being issued; read it again in a minute, and cancel it then."
        case InvoiceStatus.DRAFT | InvoiceStatus.AWAITING_VALUE if state.attempt is AttemptState.SENDING:
            return "The gateway holds a charge of the invoice; release its items, then cancel it."
        case _:
            return None
