"""Report second charges and cancel them at the gateway (D-125).

A second charge is a charge that the gateway holds in addition to the invoice's own, or for a canceled invoice.
"""

import asyncio
from uuid import UUID

from fatura.domain.charging import LATE_CHECK_GAPS
from fatura.gateways.port import CALL_TIMEOUT_SECONDS, Charge, ChargeState, Gateway, GatewayError
from fatura.observability import log
from fatura.store.charging import late_charge_checks
from fatura.usecases.billing import invoice_moves
from fatura.usecases.transaction import Work
from fatura.views.events import IssueErrorView


async def emit(work: Work, invoice_id: UUID, *, known: str | None, charge: Charge) -> None:
    """Emit `invoice.issue_failed` for a second charge; `known` is the id of the invoice's own charge."""
    message = f"The gateway also holds the charge {charge.charge_id}, which is one too many; check it there."
    log.error("charge.second_charge_found", invoice_id=str(invoice_id), known=known, second=charge.charge_id)
    error = IssueErrorView(code="second_charge", message=message, gateway_invoice_id=charge.charge_id)
    await invoice_moves.alert(work, invoice_id, "invoice.issue_failed", error=error)


async def plan_checks(work: Work, invoice_id: UUID, attempt: int) -> None:
    """Start the series of late checks of an attempt, or start it again (D-125)."""
    next_check_at = work.now + LATE_CHECK_GAPS[0]
    await late_charge_checks.plan(work.tx, invoice_id, attempt, next_check_at=next_check_at)


async def cancel(gateway: Gateway, charge: Charge) -> None:
    """Cancel a second charge unless it is paid. If that fails, each late check of the attempt tries again."""
    if charge.state is ChargeState.PAID:
        return
    try:
        async with asyncio.timeout(CALL_TIMEOUT_SECONDS):
            canceled = await gateway.cancel_charge(charge.charge_id)
    except (GatewayError, TimeoutError) as error:
        log.warning("charge.second_charge_not_canceled", charge_id=charge.charge_id, error=str(error))
    else:
        log.warning("charge.second_charge_canceled", charge_id=charge.charge_id, state=canceled.state)
