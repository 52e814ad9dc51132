"""Report second charges and cancel them at the gateway (D-125).

A second charge is a charge that the gateway holds in addition to the invoice's own charge, or for a canceled invoice.
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from fatura.domain.charge import PAYABLE, ChargeStage, InvoiceCharge
from fatura.domain.charging import LATE_CHECK_GAPS, next_cancellation_at, next_paid_poll_at
from fatura.domain.payments import EntryKind, PaymentEntry
from fatura.gateways.port import CALL_TIMEOUT_SECONDS, Charge, ChargeState, Gateway, GatewayError
from fatura.observability import log
from fatura.store.charging import charges, late_charge_checks, unmatched_charges
from fatura.store.charging.unmatched_charges import PaidCharge
from fatura.usecases.billing import invoice_moves
from fatura.usecases.transaction import LaneName, Work
from fatura.views.events import IssueErrorView

LOOK_SOON_AFTER = timedelta(minutes=1)


async def emit(
    work: Work, invoice_id: UUID, *, connection_id: UUID, known: str | None, charge: Charge
) -> None:
    """Emit `invoice.issue_failed` for a second charge, once for each of its states.

    `known` is the gateway's id of the invoice's own charge.
    """
    state = ChargeStage(charge.state)
    await unmatched_charges.end_unknown(work.tx, [(connection_id, charge.charge_id)])
    is_new = await unmatched_charges.save_state(
        work.tx, connection_id, charge.charge_id, state=state, found_at=work.now
    )
    if not is_new:
        return
    detail = f"The gateway also holds the charge {charge.charge_id}, which is one too many; check it there."
    log.error("charge.second_charge_found", invoice_id=str(invoice_id), known=known, second=charge.charge_id)
    error = IssueErrorView(code="second_charge", detail=detail, gateway_invoice_id=charge.charge_id)
    await invoice_moves.alert(work, invoice_id, "invoice.issue_failed", error=error)


async def report_elsewhere(
    work: Work, invoice_id: UUID, *, connection_id: UUID, known: str | None, charge: Charge
) -> None:
    """Handle a second charge whose connection is not the invoice's connection, and schedule a look at the charge now.

    Emit an event, unless the charge is canceled. Always store the charge's state. `unmatched_charges.look` forgets a
    charge without a state if its invoice is on another connection: both connections may use one provider account, and
    the look of the other connection records the charge's payments.
    """
    if charge.state is ChargeState.CANCELED:
        stage = ChargeStage.CANCELED
        await unmatched_charges.save_state(
            work.tx, connection_id, charge.charge_id, state=stage, found_at=work.now
        )
    else:
        await emit(work, invoice_id, connection_id=connection_id, known=known, charge=charge)
    await look_now(work, connection_id, [charge.charge_id])


async def note_canceled(work: Work, found: Sequence[tuple[UUID, Charge]]) -> None:
    """Store that the canceled charges in `found` are canceled, if `emit` has reported them as payable before.

    If a canceled charge becomes payable again later, `emit` reports the charge once more. `found` has each charge with
    the id of its connection.
    """
    canceled = [
        (connection_id, each.charge_id) for connection_id, each in found if each.state is ChargeState.CANCELED
    ]
    if canceled:
        await unmatched_charges.mark_canceled(work.tx, canceled, states=PAYABLE, found_at=work.now)


async def save_wrong(work: Work, stored: InvoiceCharge, charge: Charge) -> bool:
    """Store that `charge`, which the gateway made for `stored`, has a wrong amount.

    Return False if this was stored already. If `charge` becomes a second charge later, `emit` reports it once more.
    """
    return await unmatched_charges.save_state(
        work.tx, stored.connection_id, charge.charge_id, state=ChargeStage.PARKED, found_at=work.now
    )


async def plan_checks(work: Work, charge_ids: Sequence[UUID]) -> None:
    """Start or restart the late look-ups of these charges (D-125)."""
    await late_charge_checks.plan(work.tx, charge_ids, next_check_at=work.now + LATE_CHECK_GAPS[0])


async def plan_looks(
    work: Work, new: Sequence[PaymentEntry], *, stages: Mapping[tuple[UUID, str], ChargeState]
) -> None:
    """Schedule a later read of each second charge that has a new payment, to find refunds and disputes (D-55, D-162).

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


async def next_cancellations(work: Work, charges: Sequence[tuple[UUID, Charge]]) -> Mapping[UUID, datetime]:
    """Return, for each invoice, when to try again if its second charges cannot be canceled now (D-125, D-185).

    `charges` has each charge with the id of its connection. An invoice is left out if the engine no longer tries to
    cancel its charges.
    """
    found = await unmatched_charges.found_at(
        work.tx,
        [(connection_id, charge.charge_id, ChargeStage(charge.state)) for connection_id, charge in charges],
    )
    planned: dict[UUID, datetime] = {}
    for connection_id, charge in charges:
        at = next_cancellation_at(found.get((connection_id, charge.charge_id), work.now), now=work.now)
        if at is not None:
            planned[charge.invoice_id] = min(at, planned.get(charge.invoice_id, at))
    return planned


async def look_soon(work: Work, connection_id: UUID, gateway_charge_ids: Sequence[str]) -> None:
    """Plan to look at each of these charges once LOOK_SOON_AFTER has passed.

    None of the charges is stored yet. Until the look, a call that is in progress may still store one of them.
    """
    at = work.now + LOOK_SOON_AFTER
    await unmatched_charges.add(
        work.tx, connection_id, gateway_charge_ids, found_at=work.now, next_look_at=at
    )


async def look_now(work: Work, connection_id: UUID, gateway_charge_ids: Sequence[str]) -> None:
    """Make looks at these second charges due now. `unmatched_charges.look` reports and cancels the charges (D-162)."""
    await unmatched_charges.add(
        work.tx, connection_id, gateway_charge_ids, found_at=work.now, next_look_at=work.now
    )
    work.notify(LaneName.RECONCILIATION)


async def look_late(
    work: Work, connection_id: UUID, *, expired: Sequence[str], missing: Sequence[str]
) -> None:
    """Schedule later reads of charges that the invoice did not adopt and that a payer cannot pay now (D-181).

    The gateway may open an `expired` charge again, or show a `missing` charge again. So this function also stores a
    state for each charge: `emit` reports the charge only after the gateway shows another state. A missing charge that
    already has a state keeps this state.
    """
    known = await unmatched_charges.reported(work.tx, connection_id, missing) if missing else set[str]()
    unread = set(missing).difference(known)
    states = dict.fromkeys(expired, ChargeStage.EXPIRED) | dict.fromkeys(unread, ChargeStage.CANCELED)
    for charge_id, state in sorted(states.items()):
        await unmatched_charges.save_state(work.tx, connection_id, charge_id, state=state, found_at=work.now)
    ids = [*states, *(each for each in missing if each not in states)]
    if ids:
        at = work.now + LATE_CHECK_GAPS[0]
        await unmatched_charges.add(work.tx, connection_id, ids, found_at=work.now, next_look_at=at)


async def report_unread(work: Work, stored: InvoiceCharge, gateway_ids: Sequence[str]) -> None:
    """Emit `invoice.issue_failed` for each of these charges, which late look-ups of `stored` cannot read."""
    for charge_id in gateway_ids:
        detail = (
            f"For a day, the gateway has not shown the charge {charge_id} as expected; check there whether it can be "
            "paid or is paid."
        )
        log.error("charge.unreadable", invoice_id=str(stored.invoice_id), charge_id=charge_id)
        error = IssueErrorView(code="charge_missing", detail=detail, gateway_invoice_id=charge_id)
        await invoice_moves.alert(work, stored.invoice_id, "invoice.issue_failed", error=error)


async def check_late(work: Work, invoice_id: UUID, number: int) -> None:
    """Start or restart the late look-ups of the charge with this number, to find more copies of it (D-125)."""
    charge_id = await charges.find_id(work.tx, invoice_id, number)
    if charge_id is not None:
        await plan_checks(work, [charge_id])


async def check_now(work: Work, invoice_id: UUID, number: int) -> None:
    """Restart the late look-ups of the charge with this number, the first one now (D-125)."""
    charge_id = await charges.find_id(work.tx, invoice_id, number)
    if charge_id is not None:
        await late_charge_checks.plan(work.tx, [charge_id], next_check_at=work.now)
        work.notify(LaneName.RECONCILIATION)


async def cancel(gateway: Gateway, charge: Charge) -> bool:
    """Cancel a second charge that is not paid. Return False if the gateway does not confirm the cancellation.

    A failure is only logged. When a late look-up, a poll or `unmatched_charges` reads the charge again, the engine
    tries to cancel it again.
    """
    if charge.state is ChargeState.PAID:
        return True
    try:
        async with asyncio.timeout(CALL_TIMEOUT_SECONDS):
            canceled = await gateway.cancel_charge(charge.charge_id)
    except (GatewayError, TimeoutError) as error:
        log.warning("charge.second_charge_not_canceled", charge_id=charge.charge_id, error=error)
        return False
    except Exception:  # noqa: BLE001 - a defect of an adapter must not stop the caller's other calls
        log.exception("charge.second_charge_not_canceled", charge_id=charge.charge_id)
        return False
    outcome = "not_canceled" if canceled.is_payable else "canceled"
    log.warning(f"charge.second_charge_{outcome}", charge_id=charge.charge_id, state=canceled.state)
    return not canceled.is_payable
