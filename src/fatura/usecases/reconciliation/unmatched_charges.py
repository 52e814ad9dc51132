"""Read unmatched charges: a webhook or the provider's list named them, but the engine has not stored them (D-162).

A *look* reads such a charge from the gateway and decides what to do with it. The charge may be a second charge of an
invoice, the charge of a request whose answer is not recorded yet, or a charge that another system made with the same
account at the provider.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from fatura.domain.account import Account
from fatura.domain.charge import ChargeStage, InvoiceCharge
from fatura.domain.charging import MISSING_AFTER, next_cancellation_at, next_late_look_at, next_paid_poll_at
from fatura.domain.invoice_states import InvoiceStatus
from fatura.gateways.port import (
    Charge,
    ChargeState,
    GatewayError,
    InvalidAnswerError,
    NotFoundError,
    PermanentError,
)
from fatura.observability import log
from fatura.store.billing import invoices
from fatura.store.charging import charge_polling, charges
from fatura.store.charging import unmatched_charges as stored_unmatched
from fatura.store.charging.unmatched_charges import UnmatchedCharge
from fatura.store.restore import charge_matching, frozen_accounts, lost_invoices
from fatura.store.restore.charge_matching import CandidateInvoice
from fatura.usecases.connections import connection_health, gateway_connections
from fatura.usecases.connections.gateway_connections import OpenedConnection
from fatura.usecases.connections.observed_gateway import ObservedGateway
from fatura.usecases.deps import Deps
from fatura.usecases.one_by_one import each_alone_if_one_fails
from fatura.usecases.payments import gateway_payments, second_charges
from fatura.usecases.payments.gateway_payments import ChargeAnswer
from fatura.usecases.reconciliation import poll_times
from fatura.usecases.transaction import LaneName, Work, in_transaction

RETRY_AFTER = timedelta(minutes=10)
"""A look is repeated after this time if the gateway did not answer."""
_UNKNOWN = (InvalidAnswerError, NotFoundError, PermanentError)
"""Answers that show no charge of ours: the charge does not exist, refers to no invoice, or cannot be read."""


@dataclass(frozen=True, slots=True)
class _Look:
    """A charge to look at, its connection's gateway, and when the charge was claimed on the account's clock."""

    found: UnmatchedCharge
    gateway: ObservedGateway
    claimed_at: datetime


@dataclass(frozen=True, slots=True)
class _Known:
    """A charge that the engine has stored by now, so it is polled and not looked at."""

    found: UnmatchedCharge


async def look(deps: Deps, account: Account, *, limit: int) -> int:
    """Claim up to `limit` charges whose look is due and allowed, and look at them concurrently.

    Return how many were claimed. Looks that the budgets do not allow yet stay due, and are neither claimed nor counted.
    """
    limit = deps.answering.limit(account.account_id, limit)
    count, claimed = await in_transaction(deps, account, _claim, limit=limit)
    looks = [each for each in claimed if isinstance(each, _Look)]
    failures = await asyncio.gather(
        *(_look(deps, account, each) for each in looks),
        return_exceptions=True,
    )
    await connection_health.record(deps, account, [each.gateway for each in looks])
    for each, failure in zip(looks, failures, strict=True):
        if failure is not None:  # only logged, because `_claim` has already scheduled the next look
            log.error("charge.look_failed", charge_id=each.found.gateway_charge_id, exc_info=failure)
    known = [each.found for each in claimed if isinstance(each, _Known)]
    if known:  # in another transaction, because `_claim` must not wait for the locks of invoices
        await in_transaction(deps, account, _poll_known, known)
    return count


async def _claim(work: Work, *, limit: int) -> tuple[int, Sequence[_Look | _Known]]:
    """Return how many charges were claimed, and which of them to handle now. The others are due again later.

    The account's connections take turns.
    """
    may_look = await frozen_accounts.may_record(work.tx)
    rooms = await poll_times.look_rooms(work, limit=limit, late=False)
    if not rooms:
        return 0, []
    found = await stored_unmatched.due_looks(work.tx, rooms, now=work.now)
    chosen = poll_times.connections_in_turn(found, rooms)[:limit]
    due = await stored_unmatched.claim(work.tx, chosen, now=work.now, retry_at=work.now + RETRY_AFTER)
    if not may_look:
        return len(due), []
    return len(due), await each_alone_if_one_fails(work, due, _due_looks, put_off=_log_put_off)


async def _log_put_off(_work: Work, found: UnmatchedCharge) -> None:
    """Log a look that cannot be made. `_claim` has scheduled it again."""
    log.exception("charge.look_put_off", charge_id=found.gateway_charge_id)


async def _due_looks(work: Work, due: Sequence[UnmatchedCharge]) -> Sequence[_Look | _Known]:
    opened = await gateway_connections.open_for_calls(work, {each.connection_id for each in due})
    handled: list[_Look | _Known] = []
    for connection_id, connection in opened.items():
        of_connection = [each for each in due if each.connection_id == connection_id]
        ids = [each.gateway_charge_id for each in of_connection]
        unknown = set(await stored_unmatched.without_charge(work.tx, connection_id, ids))
        handled += [_Known(each) for each in of_connection if each.gateway_charge_id not in unknown]
        waiting = [each for each in of_connection if each.gateway_charge_id in unknown]
        handled += await _looks(work, connection, waiting)
    return handled


async def _looks(
    work: Work, connection: OpenedConnection, waiting: Sequence[UnmatchedCharge]
) -> Sequence[_Look]:
    """Return the looks that the connection's health and budget of polls allow now."""
    gateway, connection_id = connection.gateway, connection.stored.connection.connection_id
    if gateway is None or connection.stored.health.is_failing:
        return []
    made = await poll_times.take_looks(work, connection_id, wanted=len(waiting), late=False)
    if made < len(waiting):
        await stored_unmatched.make_due(work.tx, waiting[made:], now=work.now)
    return [_Look(each, gateway, work.now) for each in waiting[:made]]


async def _poll_known(work: Work, known: Sequence[UnmatchedCharge]) -> None:
    await each_alone_if_one_fails(work, known, _forget, put_off=_log_put_off)


async def _forget(work: Work, found: Sequence[UnmatchedCharge]) -> Sequence[None]:
    """Remove unmatched charges, and poll those that are stored as charges now."""
    charges = [(each.connection_id, each.gateway_charge_id) for each in found]
    if await charge_polling.make_named_due(
        work.tx, charges, now=work.now, real_now=work.deps.clock(), polls_first=True
    ):
        work.notify(LaneName.RECONCILIATION)
    await stored_unmatched.remove(work.tx, found)
    return []


async def _let_go(work: Work, found: UnmatchedCharge) -> None:
    """End the look at a charge that is not, or no longer, a second charge.

    Remove the stored charge if it never had a state. Otherwise keep it with this state, so that the state is not
    reported again. If a kept charge has recorded payments (D-55) or may become payable again (D-181), schedule another
    look.
    """
    if found.state is None:
        await _forget(work, [found])
    else:
        await stored_unmatched.keep(
            work.tx, found, found.state, next_look_at=await _next_look_at(work, found)
        )


async def _next_look_at(work: Work, found: UnmatchedCharge) -> datetime | None:
    """Return when the next look at the charge is due, or None if no look is needed.

    If the charge has payments, including payments recorded since `_claim`, look for refunds and disputes. A charge
    whose stored state is EXPIRED or CANCELED may become payable again, so look at it at the times of late look-ups too.
    """
    looks: list[datetime | None] = []
    if found.state in {ChargeStage.EXPIRED, ChargeStage.CANCELED}:
        looks.append(next_late_look_at(found.found_at, now=work.now))
    paid_at = await stored_unmatched.paid_at(work.tx, found)
    if paid_at is not None:
        looks.append(next_paid_poll_at(found.connection_id, paid_at=paid_at, polled_at=work.now))
    return min((at for at in looks if at is not None), default=None)


async def _look(deps: Deps, account: Account, look: _Look) -> None:
    answer, is_unknown = await _ask(look)
    if is_unknown:
        await in_transaction(deps, account, _note_unknown, look)
    elif answer is None:
        await in_transaction(deps, account, _note_unanswered, look.found)
    else:
        if gateway_payments.may_exceed_batch(answer):
            certain = await in_transaction(deps, account, _report_certain, look.found, answer)
            await gateway_payments.record_ahead(deps, account, certain)
        second = await in_transaction(deps, account, _record, look, answer)
        if second is not None:
            await second_charges.cancel(look.gateway, second)


async def _note_unknown(work: Work, look: _Look) -> None:
    """Let go of a charge that the gateway does not know, but only if the first such answer is at least an hour old.

    Until then, look again. The provider may be slow to show a new charge everywhere, and may have sent its only webhook
    about this charge (D-56).
    """
    found = await stored_unmatched.lock(work.tx, look.found)
    if found is None:
        return
    since = found.unknown_since or work.now
    if look.claimed_at - since >= MISSING_AFTER:
        await _let_go(work, found)
    else:
        await stored_unmatched.note_unknown(work.tx, found, since=since, next_look_at=since + MISSING_AFTER)


async def _note_unanswered(work: Work, found: UnmatchedCharge) -> None:
    await stored_unmatched.note_unanswered(work.tx, found)


async def _ask(look: _Look) -> tuple[Charge | None, bool]:
    """Read the charge from the gateway. Return the charge or None, and whether the gateway does not know it."""
    charge_id = look.found.gateway_charge_id
    try:
        return await look.gateway.get_charge(charge_id), False
    except _UNKNOWN as error:
        log.info("charge.not_ours", charge_id=charge_id, error=error)
        return None, True
    except (GatewayError, TimeoutError) as error:
        log.debug("gateway.look_unanswered", charge_id=charge_id, error=error)
        return None, False
    except Exception:  # noqa: BLE001 - a defect of the adapter says nothing about the charge, so look again later
        log.exception("charge.look_failed", charge_id=charge_id)
        return None, False


async def _report_certain(work: Work, found: UnmatchedCharge, charge: Charge) -> Sequence[ChargeAnswer]:
    """Return the answer about the charge, in a list, if `record_ahead` may record its entries now.

    Otherwise, return an empty list. If the charge is certainly a second charge, and not canceled, also report it.
    """
    if not await frozen_accounts.may_record(work.tx):
        return []
    invoice = await _lock_invoice(work, found, charge)
    if invoice is None:
        return []
    if invoice.may_adopt(charge.charge_id):
        parked = await _newest(work, invoice)
        is_kept = _is_parked_with_other_amount(parked, charge)
        return [ChargeAnswer(invoice.invoice_id, parked.connection_id, charge)] if is_kept else []
    if _has_newest_reference(invoice, charge):
        return []
    await _emit_unless_canceled(work, found, invoice, charge)
    return [ChargeAnswer(invoice.invoice_id, found.connection_id, charge)]


async def _lock_invoice(work: Work, found: UnmatchedCharge, charge: Charge) -> CandidateInvoice | None:
    """Lock and return a charge's invoice. After a restore, the charge may refer to it by an earlier id (D-181).

    Return None if the invoice is missing or already has the charge. Also return None if the invoice belongs to another
    connection, unless `fatura restored` has reported the charge as a charge of this invoice.
    """
    reference = charge.charge_id, charge.invoice_id
    current = await lost_invoices.current_ids(work.tx, [reference])
    invoice_id = current.get(reference, charge.invoice_id)
    await invoices.lock(work.tx, [invoice_id])
    invoice = (await charge_matching.find_invoices(work.tx, [invoice_id])).get(invoice_id)
    if invoice is None or (invoice.connection_id != found.connection_id and found.state is None):
        return None
    return None if charge.charge_id in invoice.gateway_ids else invoice


def _has_newest_reference(invoice: CandidateInvoice, charge: Charge) -> bool:
    """Return whether the invoice's newest request is in doubt and may have created the charge (D-33).

    A charge that refers to the invoice by an earlier id was not created by the newest request.
    """
    newest = invoice.invoice_id, invoice.number
    return invoice.is_open and newest == (charge.invoice_id, charge.attempt)


async def _emit_unless_canceled(
    work: Work, found: UnmatchedCharge, invoice: CandidateInvoice, charge: Charge
) -> None:
    if charge.state is not ChargeState.CANCELED:
        known = invoice.gateway_invoice_id
        await second_charges.emit(
            work, invoice.invoice_id, connection_id=found.connection_id, known=known, charge=charge
        )


async def _record(work: Work, look: _Look, charge: Charge) -> Charge | None:
    """Act on a charge that a look has read: let issuance adopt the charge, or record the payments of a second charge.

    Return the charge if it is a second charge that can be paid; the caller cancels the charge. If the invoice belongs
    to another connection with the same account at the provider, forget the charge: a look of that connection records
    the charge's payments. In a frozen account, record nothing (D-123): `_claim` has scheduled the look again.
    """
    if not await frozen_accounts.may_record(work.tx):
        return None
    invoice = await _lock_invoice(work, look.found, charge)
    # read the row again: another worker may have reported the charge since `_claim`
    found = await stored_unmatched.lock(work.tx, look.found) or look.found
    if invoice is None and found.state is not look.found.state:
        invoice = await _lock_invoice(work, found, charge)
    if invoice is None:
        await _forget(work, [found])
        return None
    if invoice.may_adopt(charge.charge_id):
        await _adopt_parked(work, invoice, charge)
        await _let_go(work, found)
        return None
    if _has_newest_reference(invoice, charge) and await _is_adopted(work, look, invoice, charge):
        await _let_go(work, found)
        return None
    stage = ChargeStage(charge.state)
    await _emit_unless_canceled(work, found, invoice, charge)
    next_look_at = await _next_look_at(work, found)
    if stage not in {found.state, ChargeStage.CANCELED}:
        await second_charges.check_late(work, invoice.invoice_id, charge.attempt)
    if charge.is_payable:  # if the cancellation fails or this worker dies, the next look cancels the charge
        found_at = found.found_at if stage is found.state else work.now
        next_look_at = next_cancellation_at(found_at, now=work.now) or next_look_at
    await stored_unmatched.keep(work.tx, found, stage, next_look_at=next_look_at)
    await gateway_payments.record(work, [ChargeAnswer(invoice.invoice_id, found.connection_id, charge)])
    return charge if charge.is_payable else None


async def _adopt_parked(work: Work, invoice: CandidateInvoice, charge: Charge) -> None:
    """If the invoice's newest charge is parked, decide whether issuance looks up the found charges now.

    The error code of the parked charge decides:
    - `amount_differs`: look up if `charge` has payments (D-170). If it has none, restart the late look-ups now. But if
      `charge` is canceled, only record its payments: `gateway_payments.record` schedules the look-up if the payments
      cover the invoice.
    - `charge_missing`: look up, because the gateway shows `charge` again (D-181). But if `charge` is canceled, look up
      only if `charge` has unrecorded entries.
    """
    parked = await _newest(work, invoice)
    if parked.stage is not ChargeStage.PARKED:
        return
    is_canceled = charge.state is ChargeState.CANCELED
    if _is_parked_with_other_amount(parked, charge):
        await gateway_payments.record(work, [ChargeAnswer(invoice.invoice_id, parked.connection_id, charge)])
        return
    is_paid = bool(charge.entries)
    is_shown_again = parked.error_code == "charge_missing" and (
        not is_canceled or bool(await gateway_payments.unrecorded(work, parked.connection_id, [charge]))
    )
    if (parked.error_code == "amount_differs" and is_paid) or is_shown_again:
        await charge_matching.reopen(work.tx, parked.charge_id)
        await charge_matching.make_due(work.tx, invoice.invoice_id, now=work.now)
        work.notify(LaneName.ISSUANCE)
    elif parked.error_code == "amount_differs":
        # the wrong amount is that of another charge; `charge` may have the right amount
        await second_charges.check_now(work, charge.invoice_id, charge.attempt)


async def _newest(work: Work, invoice: CandidateInvoice) -> InvoiceCharge:
    return (await charges.newest(work.tx, [invoice.invoice_id]))[invoice.invoice_id]


def _is_parked_with_other_amount(parked: InvoiceCharge, charge: Charge) -> bool:
    """Return whether `charge` is canceled, and `parked` is parked because the gateway's amount is wrong."""
    is_parked = parked.stage is ChargeStage.PARKED and parked.error_code == "amount_differs"
    return is_parked and charge.state is ChargeState.CANCELED


async def _is_adopted(work: Work, look: _Look, invoice: CandidateInvoice, charge: Charge) -> bool:
    """Handle a charge that the invoice's newest request may have created (D-33). Return False for a second charge.

    Usually, let issuance read the charge by its id, because a search by the reference may not show the charge yet. If
    the gateway offers look-ups, also plan late look-ups (D-125) for other charges. There are two exceptions:

    - The gateway offers look-ups, and one of these is true: the request is parked for a person, or the charge cannot
      issue the invoice. Then only restart the late look-ups, the first one now, and return True.
    - The gateway offers no look-ups, and the charge cannot issue the invoice. Then return False.
    """
    has_lookup = look.gateway.capabilities().idempotency != "none"
    may_issue = invoice.status is InvoiceStatus.READY and charge.state is not ChargeState.CANCELED
    if has_lookup and (invoice.is_parked or not may_issue):
        await second_charges.check_now(work, charge.invoice_id, charge.attempt)
        return True
    if not may_issue:
        return False
    assert invoice.charge_id is not None, "an open charge is stored"
    if has_lookup:
        await second_charges.plan_checks(work, [invoice.charge_id])
    await charge_matching.add_charge(
        work.tx, invoice.charge_id, gateway_id=charge.charge_id, number=charge.attempt
    )
    await charge_matching.make_due(work.tx, invoice.invoice_id, now=work.now)
    work.notify(LaneName.ISSUANCE)
    return True
