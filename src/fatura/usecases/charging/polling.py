"""Poll open charges at the gateways and record payments, refunds and disputes (D-26, D-35).

`reconcile` polls the charges whose poll is due. `receive_webhook` schedules an immediate poll of the charges that a
gateway's webhook names.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from uuid import UUID

from fatura.domain.account import Account
from fatura.domain.charging import is_past_due, next_poll_at
from fatura.domain.errors import NOT_FOUND, EngineError
from fatura.domain.invoice_states import Fact, InvoiceStatus
from fatura.gateways.port import (
    CALL_TIMEOUT_SECONDS,
    AuthFailedError,
    Charge,
    ChargeState,
    Gateway,
    GatewayError,
    Webhook,
)
from fatura.observability import log
from fatura.store.charging import charge_polling, claims, connections
from fatura.store.charging.claims import ClaimedInvoice
from fatura.usecases.billing import invoice_moves
from fatura.usecases.billing.invoice_moves import Report
from fatura.usecases.charging import gateway_connections
from fatura.usecases.deps import Deps
from fatura.usecases.transaction import LaneName, Work, in_transaction, load_account

_POLLED_STATES = (InvoiceStatus.ISSUED, InvoiceStatus.OVERDUE, InvoiceStatus.PAID, InvoiceStatus.CANCELED)
"""Invoice states in which a charge may be polled; PAID and CANCELED only after a webhook or a merchant's request."""
LEASE = timedelta(seconds=60)
RETRY_AFTER = timedelta(minutes=10)
"""Delay before a charge is polled again if its gateway did not answer."""
CLOSED = frozenset({ChargeState.PAID, ChargeState.CANCELED})
"""Final states of a charge; a paid one can still be refunded or disputed."""
FACT_OF_STATE = {
    ChargeState.PAID: Fact.PAYMENT_CONFIRMED,
    ChargeState.REFUSED: Fact.PAYMENT_MISSED,
    ChargeState.EXPIRED: Fact.PAYMENT_MISSED,
    ChargeState.CANCELED: Fact.CHARGE_CANCELED,
}
WEBHOOK_MAX_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class _Poll:
    """The poll of a leased invoice's charge; `charge` stays None when the gateway does not answer."""

    invoice: ClaimedInvoice
    gateway: Gateway | None
    polled_on: date
    charge: Charge | None = None


async def reconcile(deps: Deps, account: Account, *, limit: int) -> int:
    """Claim up to `limit` charges whose poll is due, poll them concurrently, and return their number.

    The answers are recorded in one transaction.
    """
    polls = await in_transaction(deps, account, _claim, limit=limit)
    if polls:
        answered = await asyncio.gather(*map(_poll, polls))
        await in_transaction(deps, account, _record, answered)
    return len(polls)


async def _claim(work: Work, *, limit: int) -> Sequence[_Poll]:
    """Lease charges whose poll is due, one invoice state at a time, so that PostgreSQL reads the index in order."""
    real_now = work.deps.clock()
    ids: list[UUID] = []
    for state in _POLLED_STATES:
        ids += await claims.claim(
            work.tx,
            state,
            now=work.now,
            real_now=real_now,
            lease_until=real_now + LEASE,
            limit=limit - len(ids),
        )
    if not ids:
        return []
    invoices = await claims.read(work.tx, ids)
    gateways = await gateway_connections.open_gateways(work, {each.connection_id for each in invoices})
    return [_Poll(invoice, gateways[invoice.connection_id][1], work.today) for invoice in invoices]


async def _poll(poll: _Poll) -> _Poll:
    """Read the charge from the gateway. A failure is logged and not raised, so that the other polls continue."""
    invoice = poll.invoice
    assert invoice.gateway_invoice_id is not None, "only a charge with an id is polled"
    if poll.gateway is None:
        return poll
    try:
        async with asyncio.timeout(CALL_TIMEOUT_SECONDS):
            return replace(poll, charge=await poll.gateway.get_charge(invoice.gateway_invoice_id))
    except (GatewayError, TimeoutError) as error:
        log.warning("gateway.poll_unanswered", invoice_id=str(invoice.invoice_id), error=str(error))
    except Exception:  # noqa: BLE001 - logged here; the charge is polled again
        log.exception("charge.poll_failed", invoice_id=str(invoice.invoice_id))
    return poll


async def _record(work: Work, polls: Sequence[_Poll]) -> None:
    """Report the charges' states, then refunds and disputes, which need a recorded payment; schedule the next polls.

    If a webhook made the charge due again during the poll, the answer may be outdated and the charge is polled again.
    A payment or cancellation is recorded even then; otherwise repeated webhooks could delay it without limit.
    """
    due_again = await claims.reschedule_polls(
        work.tx,
        [each.invoice for each in polls],
        next_attempts_at=[_next_poll_at(work, each) for each in polls],
    )
    poll_at = dict.fromkeys(due_again, work.now)
    current = [each for each in polls if each.invoice.invoice_id not in due_again or _is_closed(each)]
    facts = [fact for fact in map(_fact, current) if fact is not None]
    charges = [(each.invoice.invoice_id, each.charge) for each in current if each.charge is not None]
    refunds = [Report(invoice_id, Fact.REFUNDED) for invoice_id, charge in charges if charge.refunded]
    disputes = [Report(invoice_id, Fact.DISPUTED) for invoice_id, charge in charges if charge.disputed]
    for reports in (facts, refunds, disputes):
        await invoice_moves.report(
            work, [replace(each, poll_at=poll_at.get(each.invoice_id)) for each in reports]
        )


def _next_poll_at(work: Work, poll: _Poll) -> datetime | None:
    if poll.charge is None:
        return work.now + RETRY_AFTER
    if _is_closed(poll):
        return None
    assert poll.invoice.charge_due_date is not None, "an issued charge has a due date"
    return next_poll_at(poll.invoice.charge_due_date, polled_at=work.now)


def _is_closed(poll: _Poll) -> bool:
    return poll.charge is not None and poll.charge.state in CLOSED


def _fact(poll: _Poll) -> Report | None:
    """Return the fact that follows from the charge's state.

    Return None when the gateway did not answer, and while an open charge is not past due.
    """
    invoice, charge = poll.invoice, poll.charge
    if charge is None:
        return None
    fact = FACT_OF_STATE.get(charge.state)
    if fact is None:
        assert invoice.charge_due_date is not None, "an issued charge has a due date"
        if not is_past_due(invoice.charge_due_date, invoice.payment_method, today=poll.polled_on):
            return None
        fact = Fact.PAYMENT_MISSED
    return Report(invoice.invoice_id, fact, charge_due_date=invoice.charge_due_date, paid_at=charge.paid_at)


async def poll_now(work: Work, invoice_id: UUID) -> None:
    """Make an invoice's charge due for polling immediately, in any invoice state."""
    await charge_polling.make_due(work.tx, invoice_id, at=work.now)
    work.notify(LaneName.RECONCILIATION)


async def receive_webhook(deps: Deps, account_id: UUID, connection_id: UUID, webhook: Webhook) -> None:
    """Verify a gateway's webhook, and schedule an immediate poll of each charge that it names (D-35).

    If the webhook names no charges, all open charges of the connection are polled. Charge states in the webhook are
    ignored, so a replayed webhook causes only a poll.
    Raises EngineError: `engine.not_found`, for any webhook that is not authentic.
    """
    try:
        account = await load_account(deps, account_id)
    except EngineError:
        raise webhook_refused() from None
    await in_transaction(deps, account, _make_due, connection_id, webhook)


def webhook_refused() -> EngineError:
    """Return the error for any refused webhook: always the same, so it reveals no account and no connection."""
    return EngineError(
        NOT_FOUND, "No gateway connection takes this webhook; check its URL, and the secret that signs it."
    )


async def _make_due(work: Work, connection_id: UUID, webhook: Webhook) -> None:
    stored = await connections.find(work.tx, connection_id)
    gateway = None if stored is None else gateway_connections.open_gateway(work, stored)
    if gateway is None:
        raise webhook_refused()
    try:
        named = gateway.read_webhook(webhook).charge_ids
    except AuthFailedError as error:
        log.warning("gateway.webhook_refused", connection_id=str(connection_id), error=str(error))
        raise webhook_refused() from None
    real_now = work.deps.clock()
    if named is None:
        due = await charge_polling.make_open_due(work.tx, connection_id, now=work.now, real_now=real_now)
    else:
        storable = [each for each in named if each.isprintable()]
        due = await charge_polling.make_named_due(
            work.tx, connection_id, storable, now=work.now, real_now=real_now
        )
    if due:
        work.notify(LaneName.RECONCILIATION)
