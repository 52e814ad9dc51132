"""Report second charges and cancel them at the gateway (D-125).

A second charge is a charge that the gateway holds in addition to the invoice's own charge, or for a canceled invoice.
"""

import asyncio
from collections.abc import Mapping, Sequence
from uuid import UUID

from fatura.domain.charge import ChargeStage, InvoiceCharge
from fatura.domain.charging import LATE_CHECK_GAPS, next_paid_poll_at
from fatura.domain.payments import EntryKind, PaymentEntry
from fatura.gateways.port import CALL_TIMEOUT_SECONDS, Charge, ChargeState, Gateway, GatewayError
from fatura.observability import log
from fatura.store.charging import charges, late_charge_checks, unmatched_charges
from fatura.store.charging.unmatched_charges import PaidCharge
from fatura.usecases.billing import invoice_moves
from fatura.usecases.transaction import LaneName, Work
from fatura.views.events import IssueErrorView


async def emit(
    work: Work, invoice_id: UUID, *, connection_id: UUID, known: str | None, charge: Charge
) -> None:
    """Emit `invoice.issue_failed` for a second charge, once for each of its states.

    `known` is the gateway's id of the invoice's own charge.
    """
    state = ChargeStage(charge.state)
    is_new = await unmatched_charges.save_state(
        work.tx, connection_id, charge.charge_id, state=state, found_at=work.now
    )
    if not is_new:
        return
    detail = f"The gateway also holds the charge {charge.charge_id}, which is one too many; check it there."
    log.error("charge.second_charge_found", invoice_id=str(invoice_id), known=known, second=charge.charge_id)
    error = IssueErrorView(code="second_charge", detail=detail, gateway_invoice_id=charge.charge_id)
    await invoice_moves.alert(work, invoice_id, "invoice.issue_failed", error=error)


async def save_wrong(work: Work, stored: InvoiceCharge, charge: Charge) -> bool:
    """Store that `charge`, which the gateway made for `stored`, has a wrong amount. Return whether that is new.

    If `charge` becomes a second charge later, `emit` reports it once more.
    """
    return await unmatched_charges.save_state(
        work.tx, stored.connection_id, charge.charge_id, state=ChargeStage.PARKED, found_at=work.now
    )


async def plan_checks(work: Work, charge_id: UUID) -> None:
    """Start or restart the late look-ups of a charge (D-125)."""
    await late_charge_checks.plan(work.tx, charge_id, next_check_at=work.now + LATE_CHECK_GAPS[0])


async def plan_looks(
    work: Work, new: Sequence[PaymentEntry], *, stages: Mapping[tuple[UUID, str], ChargeState]
) -> None:
    """Plan later looks at the second charges that have new payments, to find refunds and disputes (D-55, D-162).

    `stages` has each charge's state at the gateway, by the connection and the gateway's id of the charge.
    """
    found: dict[tuple[UUID, str], PaidCharge] = {}
    for entry in sorted(new, key=lambda each: each.polled_from):
        if entry.kind is not EntryKind.PAYMENT or entry.charge_id is not None:
            continue
        assert entry.connection_id is not None, "a gateway's entry has a connection"
        assert entry.gateway_charge_id is not None, "a gateway's entry has a charge"
        key = entry.connection_id, entry.gateway_charge_id
        next_look_at = next_paid_poll_at(entry.connection_id, paid_at=entry.polled_from, polled_at=work.now)
        found[key] = PaidCharge(*key, ChargeStage(stages[key]), entry.polled_from, next_look_at)
    if found:
        await unmatched_charges.add_paid(work.tx, list(found.values()), found_at=work.now)


async def check_now(work: Work, invoice_id: UUID, number: int) -> None:
    """Schedule an immediate check for second charges whose reference is `invoice_id` and `number`."""
    charge_id = await charges.find_id(work.tx, invoice_id, number)
    if charge_id is not None:
        await late_charge_checks.plan(work.tx, charge_id, next_check_at=work.now)
        work.notify(LaneName.RECONCILIATION)


async def cancel(gateway: Gateway, charge: Charge) -> None:
    """Cancel a second charge that is not paid.

    A failure is only logged. The next late check or poll that finds the charge repeats the cancellation.
    """
    if charge.state is ChargeState.PAID:
        return
    try:
        async with asyncio.timeout(CALL_TIMEOUT_SECONDS):
            canceled = await gateway.cancel_charge(charge.charge_id)
    except (GatewayError, TimeoutError) as error:
        log.warning("charge.second_charge_not_canceled", charge_id=charge.charge_id, error=str(error))
    else:
        log.warning("charge.second_charge_canceled", charge_id=charge.charge_id, state=canceled.state)
