"""Send refunds to gateways, and look up refunds that are in progress or whose answer was lost (D-33, D-53).

The route that creates a refund calls `settle_one`. If the API process dies, a worker continues the refund by
`settle_due`.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum, auto
from uuid import UUID

from fatura.domain.account import Account
from fatura.domain.charging import (
    EMPTY_LOOKUP_GAP,
    EMPTY_LOOKUPS_NEEDED,
    LOOKUP_COUNTS_AFTER,
    MISSING_AFTER,
    retry_delay,
)
from fatura.domain.refunds import RefundRequest, RefundStage, is_left
from fatura.gateways import port
from fatura.observability import log
from fatura.store import leases
from fatura.store.billing import payment_entries
from fatura.store.charging import refund_requests
from fatura.store.restore import frozen_accounts
from fatura.usecases.connections import connection_health, gateway_connections
from fatura.usecases.connections.observed_gateway import ObservedGateway
from fatura.usecases.deps import Deps
from fatura.usecases.one_by_one import PUT_OFF_BY, each_alone_if_one_fails
from fatura.usecases.open_call_limit import Places
from fatura.usecases.payments import gateway_payments, refund_outcomes
from fatura.usecases.payments.gateway_payments import ChargeAnswer
from fatura.usecases.transaction import Work, in_transaction

LEASE = timedelta(seconds=60)
"""How long a process leases a refund to send it or to look it up, in real time."""
SEND_WITHIN_SECONDS = 30
"""Maximum time between reserving and sending, so that the call ends before the lease expires."""
assert LEASE.total_seconds() > SEND_WITHIN_SECONDS + port.CALL_TIMEOUT_SECONDS
LOOK_UP_AFTER = timedelta(seconds=5)
"""Delay before the first look-up of a refund whose answer was lost."""
LOOKED_UP_WITHIN = timedelta(minutes=1)
"""Maximum age of a look-up that must precede a refund's first request, when that request is sent (D-53, D-151)."""


class _CallKind(Enum):
    SEND = auto()
    """Ask for the refund. If the gateway deduplicates refunds, this may repeat an earlier request."""
    LOOK_UP = auto()
    """Read the charge, which shows its refunds.

    A look-up must also precede a first request in three cases: the gateway does not deduplicate refunds, so a restored
    database may lack an earlier request (D-123); the gateway may still make an earlier refund of the charge; or the
    charge was not polled since a restore.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """A call to make for a leased refund. `reserved_at` is on the account's clock, `reserved_at_real` is real time."""

    kind: _CallKind
    request: RefundRequest
    gateway: ObservedGateway
    reserved_at: datetime
    reserved_at_real: datetime
    send_before: float

    @property
    def precedes_request(self) -> bool:
        """Return whether this is a look-up of a refund that is still to be sent."""
        return self.kind is _CallKind.LOOK_UP and self.request.stage is RefundStage.PLANNED


_Answer = port.Charge | port.GatewayError | TimeoutError


async def settle_due(deps: Deps, account: Account, *, limit: int) -> int:
    """Claim up to `limit` refunds that are due, and send them or look them up. Return how many were claimed.

    If a look-up must precede the first request, send the request in the same batch. Otherwise, other due refunds could
    come first, and the look-up would be older than LOOKED_UP_WITHIN each time.
    """
    limit = deps.answering.limit(account.account_id, limit)
    claimed, calls = await in_transaction(deps, account, _claim_due, limit=limit)
    await _call_and_record(deps, account, calls)
    looked_up = [each.request.refund_id for each in calls if each.precedes_request]
    if looked_up:
        calls = await in_transaction(deps, account, _claim_looked_up, looked_up)
        await _call_and_record(deps, account, calls)
    return claimed


async def settle_one(deps: Deps, account: Account, refund_id: UUID, *, places: Places) -> None:
    """Send a refund that was not sent yet. Look up a sent refund that is due; repeat its request only if that is safe.

    Before a call, take one of `places` (D-175). Raises EngineError: the errors of `Places.take`.
    """
    for _ in range(2):
        calls = await in_transaction(deps, account, _claim_one, refund_id, places)
        await _call_and_record(deps, account, calls)
        if not calls or calls[0].kind is _CallKind.SEND:
            return


async def _claim_due(work: Work, *, limit: int) -> tuple[int, Sequence[_Call]]:
    """Lease refunds that are due. While the account is frozen after a restore, lease none (D-123)."""
    if not await frozen_accounts.may_record(work.tx):
        return 0, []
    due = await refund_requests.lock_due(work.tx, now=work.now, real_now=work.deps.clock(), limit=limit)
    return len(due), await each_alone_if_one_fails(work, due, _reserve_due, put_off=_put_off_failing)


async def _claim_looked_up(work: Work, refund_ids: Sequence[UUID]) -> Sequence[_Call]:
    """Of these refunds, lease those that are due again because a look-up did not find them."""
    if not await frozen_accounts.may_charge(work.tx):
        return []
    real_now = work.deps.clock()
    due = await refund_requests.lock_due_among(work.tx, refund_ids, now=work.now, real_now=real_now)
    return await each_alone_if_one_fails(work, due, _reserve_due, put_off=_put_off_failing)


async def _reserve_due(work: Work, refund_ids: Sequence[UUID]) -> Sequence[_Call]:
    requests = await refund_requests.lock(work.tx, refund_ids)
    return await _reserve(work, requests, leaves_out_failing=True)


async def _put_off_failing(work: Work, refund_id: UUID) -> None:
    log.exception("refund.put_off", refund_id=str(refund_id))
    await refund_requests.put_off(work.tx, refund_id, until=work.now + PUT_OFF_BY)


async def _claim_one(work: Work, refund_id: UUID, places: Places) -> Sequence[_Call]:
    """Lease a refund if it was not sent yet or is due, and if no other process has leased it."""
    if not await frozen_accounts.may_record(work.tx):
        return []
    (request,) = await refund_requests.lock(work.tx, [refund_id])
    await work.refresh()
    real_now, lease_until = work.deps.clock(), request.lease_until
    if lease_until is not None and real_now < lease_until <= leases.horizon(real_now):
        return []
    if request.next_attempt_at is None or (
        request.sent_at is not None and request.next_attempt_at > work.now
    ):
        return []
    calls = await _reserve(work, [request], leaves_out_failing=False)
    if calls:
        places.take(1)
    return calls


async def _reserve(
    work: Work, requests: Sequence[RefundRequest], *, leaves_out_failing: bool
) -> Sequence[_Call]:
    """Lease locked refunds, and return the calls that send them or look them up.

    Put off the refunds whose connection cannot be called now. On an inactive connection and in a suspended account,
    refunds are looked up but not sent (D-55, D-242). With `leaves_out_failing`, a failing connection is not called.
    """
    requests = await _fail_those_not_left(work, requests)
    if not requests:
        return []
    opened = await gateway_connections.open_for_calls(work, _connections_of(requests))
    is_suspended = not await frozen_accounts.may_charge(work.tx)
    unsafe = await refund_requests.to_look_up(work.tx, [each.refund_id for each in requests])
    real_now, calls, changed = work.deps.clock(), list[_Call](), list[RefundRequest]()
    for request in requests:
        assert request.connection_id is not None, "an open refund has a connection"
        connection = opened[request.connection_id]
        is_planned = request.stage is RefundStage.PLANNED
        is_stopped = leaves_out_failing and connection.stored.health.is_failing
        is_stopped |= is_planned and (is_suspended or not connection.stored.connection.active)
        if connection.gateway is None or is_stopped:
            changed.append(_put_off(work, request))
            continue
        is_unsafe = request.refund_id in unsafe or connection.gateway.capabilities().refunds == "lookup"
        is_sent = is_planned and (not is_unsafe or _was_just_looked_up(work, request))
        leased = replace(request, next_attempt_at=work.now, lease_until=real_now + LEASE)
        if is_sent:
            counted = request.looked_up_at if request.empty_lookups else None
            leased = replace(leased, stage=RefundStage.SENDING, sent_at=work.now, looked_up_at=counted)
        changed.append(leased)
        calls.append(
            _Call(
                kind=_CallKind.SEND if is_sent else _CallKind.LOOK_UP,
                request=leased,
                gateway=connection.gateway,
                reserved_at=work.now,
                reserved_at_real=real_now,
                send_before=time.monotonic() + SEND_WITHIN_SECONDS,
            )
        )
    await refund_requests.update(work.tx, changed)
    return calls


def _was_just_looked_up(work: Work, request: RefundRequest) -> bool:
    return request.looked_up_at is not None and work.now - request.looked_up_at <= LOOKED_UP_WITHIN


async def _fail_those_not_left(work: Work, requests: Sequence[RefundRequest]) -> Sequence[RefundRequest]:
    """Fail unsent refunds that exceed what is left of their payments, for example after a dispute.

    Return the other refunds. A refund that the gateway may have made already is kept, because it may itself be the
    reason why less is left.
    """
    unsent = {
        each.refund_id
        for each in requests
        if each.stage is RefundStage.PLANNED and each.unknown_since is None
    }
    invoice_ids = [each.invoice_id for each in requests if each.refund_id in unsent]
    ledgers = await payment_entries.of_invoices(work.tx, invoice_ids)
    kept: list[RefundRequest] = []
    for request in requests:
        if request.refund_id not in unsent or is_left(ledgers.get(request.invoice_id, ()), request):
            kept.append(request)
        else:
            detail = "The payment was disputed or refunded meanwhile, so this amount is not left of it."
            await refund_outcomes.fail(work, request, code="not_left", detail=detail)
    return kept


def _connections_of(requests: Sequence[RefundRequest]) -> set[UUID]:
    return {request.connection_id for request in requests if request.connection_id is not None}


def _put_off(work: Work, request: RefundRequest) -> RefundRequest:
    failures = request.failures + 1
    return replace(
        request, failures=failures, next_attempt_at=work.now + retry_delay(failures), lease_until=None
    )


async def _call_and_record(deps: Deps, account: Account, calls: Sequence[_Call]) -> None:
    ended = await asyncio.gather(
        *(_call_and_record_one(deps, account, each) for each in calls), return_exceptions=True
    )
    await connection_health.record(deps, account, [call.gateway for call in calls])
    for call, failure in zip(calls, ended, strict=True):
        if failure is not None:  # the refund is due again when its lease has expired
            log.error("refund.call_failed", refund_id=str(call.request.refund_id), exc_info=failure)


async def _call_and_record_one(deps: Deps, account: Account, call: _Call) -> None:
    answer, connection_id = await _make(deps, call), call.request.connection_id
    assert connection_id is not None, "an open refund has a connection"
    if isinstance(answer, port.Charge):
        found = ChargeAnswer(call.request.invoice_id, connection_id, answer)
        await gateway_payments.record_ahead(deps, account, [found])
    await in_transaction(deps, account, _record, call, answer)


async def _make(deps: Deps, call: _Call) -> _Answer:
    """Make a call, with no transaction open, and return its answer."""
    request = call.request
    assert request.gateway_charge_id is not None, "an open refund has a charge at the gateway"
    try:
        async with asyncio.timeout(port.CALL_TIMEOUT_SECONDS):
            if call.kind is _CallKind.LOOK_UP:
                charge = await call.gateway.get_charge(request.gateway_charge_id)
            else:
                charge = await _send(deps, call, charge_id=request.gateway_charge_id)
        return charge.of_invoice(request.invoice_id)
    except (port.GatewayError, TimeoutError) as error:
        return error
    except Exception as error:  # noqa: BLE001 - logged here; the outcome is unknown
        log.exception("refund.adapter_failed", refund_id=str(request.refund_id))
        return port.UnknownOutcomeError(str(error))


async def _send(deps: Deps, call: _Call, *, charge_id: str) -> port.Charge:
    """Send the request. Raises TransientError if this process was suspended so long that its lease may have expired."""
    request = call.request
    is_late = deps.clock() - call.reserved_at_real > timedelta(seconds=SEND_WITHIN_SECONDS)
    if is_late or time.monotonic() > call.send_before:
        raise port.TransientError("the process was suspended; nothing was sent")
    return await call.gateway.refund_charge(
        port.RefundRequest(
            refund_id=request.refund_id,
            charge_id=charge_id,
            amount_cents=request.amount_cents,
            currency=request.currency,
            reason=request.reason,
        )
    )


async def _record(work: Work, call: _Call, answer: _Answer) -> None:
    """Record the answer of a call, and schedule the next call for the refund.

    If the refund has ended, or another process has leased it since the call was reserved, record only the entries and
    refunds in the answer.
    """
    request = call.request
    assert request.connection_id is not None, "an open refund has a connection"
    await payment_entries.lock_invoices(work.tx, [request.invoice_id])
    await work.refresh()
    if isinstance(answer, port.Charge):
        await gateway_payments.record(work, [ChargeAnswer(request.invoice_id, request.connection_id, answer)])
    (current,) = await refund_requests.lock(work.tx, [request.refund_id])
    if not current.is_open or current.lease_until != request.lease_until:
        return
    if call.kind is _CallKind.LOOK_UP:
        await _after_lookup(work, call, current, answer)
    else:
        await _after_sending(work, current, answer)


async def _after_sending(work: Work, current: RefundRequest, answer: _Answer) -> None:
    """Handle the answer to a request for a refund that is still open.

    If the gateway refuses a repeated request, the refund fails only after EMPTY_LOOKUPS_NEEDED look-ups did not find
    it. The earlier request may have made the refund, and the gateway may refuse the repeat because nothing is left to
    refund.
    """
    match answer:
        case port.PermanentError() | port.NotFoundError():
            is_repeat = current.unknown_since is not None
            if is_repeat and current.empty_lookups < EMPTY_LOOKUPS_NEEDED:
                next_attempt_at = max(_counts_from(current), work.now)
                later = replace(current, next_attempt_at=next_attempt_at, lease_until=None)
                await refund_requests.update(work.tx, [later])
            else:
                code, detail = _refusal(answer)
                await refund_outcomes.fail(work, current, code=code, detail=detail)
        case port.TransientError() | port.AuthFailedError():
            planned = replace(_put_off(work, current), stage=RefundStage.PLANNED)
            await refund_requests.update(work.tx, [planned])
        case _:
            delay = retry_delay(current.failures) if current.failures else LOOK_UP_AFTER
            unknown = replace(
                _put_off(work, current),
                next_attempt_at=work.now + delay,
                unknown_since=current.unknown_since or current.sent_at,
            )
            await refund_requests.update(work.tx, [unknown])


def _refusal(answer: port.PermanentError | port.NotFoundError) -> tuple[str, str]:
    if isinstance(answer, port.PermanentError):
        return answer.code, answer.detail
    return "charge_missing", "The gateway does not know the charge any more; check it there."


async def _after_lookup(work: Work, call: _Call, current: RefundRequest, answer: _Answer) -> None:
    """Handle the answer to a look-up of a refund that is still open. If the refund was not sent yet, send it next.

    If the charge does not show the refund, repeat the request, provided that the gateway deduplicates refunds and has
    not accepted this refund. If the request must not be repeated, fail the refund after EMPTY_LOOKUPS_NEEDED counted
    look-ups that did not find it (D-33).
    """
    is_answered = isinstance(answer, port.Charge | port.NotFoundError)
    if not is_answered or (isinstance(answer, port.Charge) and _shows(answer, current.refund_id)):
        await refund_requests.update(work.tx, [_put_off(work, current)])
        return
    if current.stage is RefundStage.PLANNED:
        ready = replace(current, looked_up_at=call.reserved_at, next_attempt_at=work.now, lease_until=None)
        await refund_requests.update(work.tx, [ready])
        return
    counts_from = _counts_from(current)
    if call.reserved_at >= counts_from:
        current = replace(current, empty_lookups=current.empty_lookups + 1, looked_up_at=call.reserved_at)
    current = replace(current, unknown_since=current.unknown_since or current.sent_at, lease_until=None)
    if call.gateway.capabilities().refunds == "key" and current.stage is RefundStage.SENDING:
        planned = replace(current, stage=RefundStage.PLANNED, next_attempt_at=work.now)
        await refund_requests.update(work.tx, [planned])
    elif current.empty_lookups >= EMPTY_LOOKUPS_NEEDED:
        detail = "The gateway did not make the refund. Check it there, then ask for another refund."
        await refund_outcomes.fail(work, current, code="not_made", detail=detail)
    else:
        await refund_requests.update(work.tx, [replace(current, next_attempt_at=_counts_from(current))])


def _counts_from(request: RefundRequest) -> datetime:
    """Return the instant from which a look-up that does not find the refund counts."""
    if request.looked_up_at is None:
        since = request.unknown_since or request.sent_at
        assert since is not None, "a refund that is looked up was sent"
        return since + LOOKUP_COUNTS_AFTER
    is_accepted = request.stage is RefundStage.ACCEPTED
    return request.looked_up_at + (MISSING_AFTER if is_accepted else EMPTY_LOOKUP_GAP)


def _shows(charge: port.Charge, refund_id: UUID) -> bool:
    return any(refund.refund_id == refund_id for refund in charge.refunds)
