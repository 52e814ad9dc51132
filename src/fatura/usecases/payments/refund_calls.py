"""Send refunds to gateways, and look up refunds that are in progress or whose answer was lost (D-33, D-53).

The route that creates a refund calls `settle_one`. If the API process dies, a worker continues the refund with
`settle_due`.
"""

import asyncio
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum, auto
from uuid import UUID

from fatura.domain.account import Account
from fatura.domain.charging import EMPTY_LOOKUPS_NEEDED
from fatura.domain.refunds import RefundRequest, RefundStage, is_left
from fatura.gateways import port
from fatura.observability import log
from fatura.store import leases
from fatura.store.billing import payment_entries
from fatura.store.charging import refund_requests
from fatura.store.restore import frozen_accounts
from fatura.usecases.connections import charge_calls, connection_health, gateway_connections
from fatura.usecases.connections.charge_calls import CallsAbout
from fatura.usecases.connections.observed_gateway import ObservedGateway
from fatura.usecases.deps import Deps
from fatura.usecases.one_by_one import PUT_OFF_BY, each_alone_if_one_fails
from fatura.usecases.open_call_limit import Places
from fatura.usecases.payments import gateway_payments, refund_answers, refund_outcomes
from fatura.usecases.payments.gateway_payments import ChargeAnswer
from fatura.usecases.payments.refund_answers import Answer
from fatura.usecases.transaction import DATABASE_FAILURES, Work, in_transaction

LEASE = timedelta(seconds=60)
"""How long a process leases a refund to send it or to look it up, in real time."""
SEND_WITHIN_SECONDS = 30
"""Maximum time between reserving and sending, so that the call ends before the lease expires."""
assert LEASE.total_seconds() > SEND_WITHIN_SECONDS + port.CALL_TIMEOUT_SECONDS
LOOKED_UP_WITHIN = timedelta(minutes=1)
"""Maximum time from a look-up of a refund to the refund's request, if the look-up is required (D-53, D-151)."""


class _CallKind(Enum):
    SEND = auto()
    """Ask for the refund. If the gateway deduplicates refunds, this can be a repeat of an earlier request."""
    LOOK_UP = auto()
    """Read the charge, which shows its refunds.

    If the answer to a request was lost, a look-up must precede the next request. A look-up must also precede a first
    request in three cases:

    - The gateway does not deduplicate refunds, and a restored database may lack an earlier request (D-123).
    - The gateway may still make an earlier refund of the charge.
    - The charge was not polled since a restore.
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


async def settle_due(deps: Deps, account: Account, *, limit: int) -> int:
    """Claim up to `limit` refunds that are due, and send them or look them up. Return how many were claimed.

    If a look-up must precede a request, send the request right after the look-up, in the same batch. In a later batch,
    other due refunds could come first. The look-up could then always be older than LOOKED_UP_WITHIN, and the refund
    would never be sent.
    """
    limit = deps.answering.limit(account.account_id, limit)
    claimed, calls = await in_transaction(deps, account, _claim_due, limit=limit)
    await _call_and_record(deps, account, calls)
    looked_up = [each.request.refund_id for each in calls if each.kind is _CallKind.LOOK_UP]
    if looked_up:
        calls = await in_transaction(deps, account, _claim_looked_up, looked_up)
        await _call_and_record(deps, account, calls)
    return claimed


async def settle_one(deps: Deps, account: Account, refund_id: UUID, *, places: Places) -> None:
    """Send a refund that was not sent yet. Look up a sent refund that is due; repeat its request only if that is safe.

    Count each call in `places`, which limits open calls (D-175). Raises EngineError: the errors of `Places.take`.
    """
    for _ in range(2):
        calls = await in_transaction(deps, account, _claim_one, refund_id, places)
        await _call_and_record(deps, account, calls)
        if not calls or calls[0].kind is _CallKind.SEND:
            return


async def _claim_due(work: Work, *, limit: int) -> tuple[int, Sequence[_Call]]:
    """Lease up to `limit` refunds that are due. Return how many were due, and the calls to make.

    While the account is frozen after a restore, lease none (D-123).
    """
    if not await frozen_accounts.may_record(work.tx):
        return 0, []
    due = await refund_requests.lock_due(work.tx, now=work.now, real_now=work.deps.clock(), limit=limit)
    return len(due), await each_alone_if_one_fails(work, due, _reserve_due, put_off=_put_off_failing)


async def _claim_looked_up(work: Work, refund_ids: Sequence[UUID]) -> Sequence[_Call]:
    """Lease the given refunds that are due again after a look-up without a result. Return the calls to make."""
    if not await frozen_accounts.may_record(work.tx):
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
    """Lease a refund that is unsent or due, unless another process has leased it. Return its next call, if any."""
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
    not_left = await _not_left(work, requests)
    requests = await _fail_unmade(work, requests, not_left)
    if not requests:
        return []
    opened = await gateway_connections.open_for_calls(work, _connections_of(requests))
    is_suspended = not await frozen_accounts.may_charge(work.tx)
    unsafe = await refund_requests.to_look_up(work.tx, [each.refund_id for each in requests])
    real_now, calls, changed = work.deps.clock(), list[_Call](), list[RefundRequest]()
    for request in requests:
        assert request.connection_id is not None, "an open refund has a connection"
        connection = opened[request.connection_id]
        is_held = is_suspended or not connection.stored.connection.active or request.refund_id in not_left
        is_left_out = leaves_out_failing and connection.stored.health.is_failing
        kind, stage = None, request.stage
        if connection.gateway is not None and not is_left_out:
            refunds = connection.gateway.capabilities().refunds
            if refunds != "key" and request.unknown_since is not None and stage is RefundStage.PLANNED:
                # the repeat was planned while the gateway deduplicated refunds; now a repeat could refund twice
                stage = RefundStage.SENDING
            is_safe = request.refund_id not in unsafe and refunds != "lookup"
            kind = _kind(work, replace(request, stage=stage), is_safe=is_safe, is_held=is_held)
        if connection.gateway is None or kind is None:
            changed.append(refund_answers.put_off(work, request))
            continue
        leased = replace(request, stage=stage, next_attempt_at=work.now, lease_until=real_now + LEASE)
        if kind is _CallKind.SEND:
            leased = replace(leased, stage=RefundStage.SENDING, sent_at=work.now)
        changed.append(leased)
        calls.append(
            _Call(
                kind=kind,
                request=leased,
                gateway=connection.gateway,
                reserved_at=work.now,
                reserved_at_real=real_now,
                send_before=time.monotonic() + SEND_WITHIN_SECONDS,
            )
        )
    await refund_requests.update(work.tx, changed)
    return calls


def _kind(work: Work, request: RefundRequest, *, is_safe: bool, is_held: bool) -> _CallKind | None:
    """Return the next call for a refund, or None if the refund must wait.

    With `is_safe`, a first request may be sent without a look-up. With `is_held`, the refund must not be sent now.
    """
    if request.stage is not RefundStage.PLANNED:
        return _CallKind.LOOK_UP
    may_be_made = request.unknown_since is not None
    if is_held and (not may_be_made or _was_just_looked_up(work, request)):
        return None
    if (is_safe and not may_be_made) or _was_just_looked_up(work, request):
        return _CallKind.SEND
    return _CallKind.LOOK_UP


def _was_just_looked_up(work: Work, request: RefundRequest) -> bool:
    """Return whether a recent look-up did not find the refund.

    The look-up must be newer than the newest request, and at most LOOKED_UP_WITHIN old.
    """
    at, sent_at = request.looked_up_at, request.sent_at
    return at is not None and work.now - at <= LOOKED_UP_WITHIN and (sent_at is None or at > sent_at)


async def _not_left(work: Work, requests: Sequence[RefundRequest]) -> set[UUID]:
    """Return the planned refunds that exceed the amount left of their payments, for example after a dispute."""
    planned = [each for each in requests if each.stage is RefundStage.PLANNED]
    ledgers = await payment_entries.of_invoices(work.tx, [each.invoice_id for each in planned])
    return {each.refund_id for each in planned if not is_left(ledgers.get(each.invoice_id, ()), each)}


async def _fail_unmade(
    work: Work, requests: Sequence[RefundRequest], not_left: Collection[UUID]
) -> Sequence[RefundRequest]:
    """Fail each refund in `not_left` that the gateway has not made. Return the other refunds.

    If the gateway may have made a refund, the amount that is left may be too low because of this refund itself. Fail
    such a refund only after EMPTY_LOOKUPS_NEEDED counted look-ups did not find it.
    """
    kept: list[RefundRequest] = []
    for request in requests:
        is_unmade = request.unknown_since is None or (
            request.empty_lookups >= EMPTY_LOOKUPS_NEEDED and _was_just_looked_up(work, request)
        )
        if request.refund_id in not_left and is_unmade:
            detail = "The payment was disputed or refunded meanwhile, so this amount is not left of it."
            await refund_outcomes.fail(work, request, code="not_left", detail=detail)
        else:
            kept.append(request)
    return kept


def _connections_of(requests: Sequence[RefundRequest]) -> set[UUID]:
    return {request.connection_id for request in requests if request.connection_id is not None}


async def _call_and_record(deps: Deps, account: Account, calls: Sequence[_Call]) -> None:
    ended = await asyncio.gather(
        *(_call_and_record_one(deps, account, each) for each in calls), return_exceptions=True
    )
    await connection_health.record(deps, account, [call.gateway for call in calls])
    for call, failure in zip(calls, ended, strict=True):
        if failure is not None:  # the refund is due again when its lease has expired, if it is not put off
            log.error("refund.call_failed", refund_id=str(call.request.refund_id), exc_info=failure)
            if not isinstance(failure, DATABASE_FAILURES):
                await in_transaction(deps, account, _put_off_unrecorded, call.request)


async def _put_off_unrecorded(work: Work, request: RefundRequest) -> None:
    """Put off a refund whose answer cannot be recorded, unless another process has leased it."""
    await payment_entries.lock_invoices(work.tx, [request.invoice_id])
    (current,) = await refund_requests.lock(work.tx, [request.refund_id])
    if current.lease_until == request.lease_until:
        await refund_requests.put_off(work.tx, request.refund_id, until=work.now + PUT_OFF_BY)


async def _call_and_record_one(deps: Deps, account: Account, call: _Call) -> None:
    answer, connection_id = await _make(deps, call), call.request.connection_id
    assert connection_id is not None, "an open refund has a connection"
    if isinstance(answer, port.Charge):
        found = ChargeAnswer(call.request.invoice_id, connection_id, answer)
        await gateway_payments.record_ahead(deps, account, [found])
    await in_transaction(deps, account, _record, call, answer)


async def _make(deps: Deps, call: _Call) -> Answer:
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


async def _record(work: Work, call: _Call, answer: Answer) -> None:
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
    await _record_exchange(work, call, answer)
    (current,) = await refund_requests.lock(work.tx, [request.refund_id])
    if current.lease_until != request.lease_until:
        return
    if call.kind is _CallKind.LOOK_UP:
        may_repeat = call.gateway.capabilities().refunds == "key"
        await refund_answers.after_look_up(
            work, current, answer, asked_at=call.reserved_at, may_repeat=may_repeat
        )
    else:
        await refund_answers.after_sending(work, current, answer)


async def _record_exchange(work: Work, call: _Call, answer: Answer) -> None:
    """Store the call for the merchant, except a look-up that does not show the end of the refund (D-267)."""
    request = call.request
    has_ended = isinstance(answer, port.Charge) and any(
        each.refund_id == request.refund_id and each.state is not port.RefundState.PENDING
        for each in answer.refunds
    )
    is_shown = call.kind is _CallKind.SEND or has_ended
    if is_shown and request.charge_id is not None and request.gateway_charge_id is not None:
        made = CallsAbout(request.charge_id, call.gateway, [request.gateway_charge_id])
        await charge_calls.record(work, [made])
