"""Update a refund after the answer to its request or look-up, and schedule the next call (D-33, D-53)."""

from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from fatura.domain.charging import (
    EMPTY_LOOKUP_GAP,
    EMPTY_LOOKUPS_NEEDED,
    LOOKUP_COUNTS_AFTER,
    MISSING_AFTER,
    next_late_look_at,
    retry_delay,
)
from fatura.domain.refunds import RefundRequest, RefundStage
from fatura.gateways import port
from fatura.store.charging import refund_requests
from fatura.usecases.payments import refund_outcomes
from fatura.usecases.transaction import Work

LOOK_UP_AFTER = timedelta(seconds=5)
"""Delay before the first look-up of a refund whose answer was lost."""

Answer = port.Charge | port.GatewayError | TimeoutError


def put_off(work: Work, request: RefundRequest) -> RefundRequest:
    failures = request.failures + 1
    return replace(
        request, failures=failures, next_attempt_at=work.now + retry_delay(failures), lease_until=None
    )


async def after_sending(work: Work, current: RefundRequest, answer: Answer) -> None:
    """Handle the gateway's answer to the request of an open refund.

    If the gateway refuses a repeated request, the refund fails only after EMPTY_LOOKUPS_NEEDED look-ups did not find
    the refund. The gateway may refuse the repeat because the earlier request has made the refund, and nothing is left
    to refund.
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
            planned = replace(put_off(work, current), stage=RefundStage.PLANNED)
            await refund_requests.update(work.tx, [planned])
        case _:
            delay = retry_delay(current.failures) if current.failures else LOOK_UP_AFTER
            unknown = replace(
                put_off(work, current),
                next_attempt_at=work.now + delay,
                unknown_since=current.unknown_since or current.sent_at,
            )
            await refund_requests.update(work.tx, [unknown])


def _refusal(answer: port.PermanentError | port.NotFoundError) -> tuple[str, str]:
    if isinstance(answer, port.PermanentError):
        return answer.code, answer.detail
    return "charge_missing", "The gateway does not know the charge any more; check it there."


async def after_look_up(
    work: Work, current: RefundRequest, answer: Answer, *, asked_at: datetime, may_repeat: bool
) -> None:
    """Handle the answer to a look-up of a refund that is not done. `asked_at` is when the look-up was reserved.

    If the gateway did not answer, or the charge shows the refund as pending, look the refund up again later. If the
    charge does not show the refund, the stage of the refund decides (D-33):

    - PLANNED: send the request next.
    - SENDING: if `may_repeat` is true, send the request again next.
    - FAILED: schedule a late look-up.
    - SENDING without `may_repeat`, and ACCEPTED: the request must not be repeated. Fail the refund after
      EMPTY_LOOKUPS_NEEDED counted look-ups.
    """
    is_answered = isinstance(answer, port.Charge | port.NotFoundError)
    shown = _shown(answer, current.refund_id) if isinstance(answer, port.Charge) else None
    if current.stage is RefundStage.FAILED and is_answered and shown is not port.RefundState.PENDING:
        assert current.closed_at is not None, "a failed refund is closed"
        next_attempt_at = next_late_look_at(current.closed_at, now=work.now)
        later = replace(current, next_attempt_at=next_attempt_at, lease_until=None)
        await refund_requests.update(work.tx, [later])
        return
    if not is_answered or shown is not None:
        await refund_requests.update(work.tx, [put_off(work, current)])
        return
    is_planned = current.stage is RefundStage.PLANNED
    if not is_planned:
        current = replace(current, unknown_since=current.unknown_since or current.sent_at)
    is_counted = current.unknown_since is not None and asked_at >= _counts_from(current)
    looks = current.empty_lookups + is_counted
    current = replace(current, empty_lookups=looks, looked_up_at=asked_at, lease_until=None)
    if is_planned or (may_repeat and current.stage is RefundStage.SENDING):
        planned = replace(current, stage=RefundStage.PLANNED, next_attempt_at=work.now)
        await refund_requests.update(work.tx, [planned])
    elif looks >= EMPTY_LOOKUPS_NEEDED:
        detail = "The gateway did not make the refund. Check it there, then ask for another refund."
        await refund_outcomes.fail(work, current, code="not_made", detail=detail)
    else:
        await refund_requests.update(work.tx, [replace(current, next_attempt_at=_counts_from(current))])


def _counts_from(request: RefundRequest) -> datetime:
    """Return the earliest time from which a look-up that does not find the refund counts as an empty look-up."""
    if not request.empty_lookups or request.looked_up_at is None:
        since = request.unknown_since or request.sent_at
        assert since is not None, "a refund that is looked up was sent"
        return since + LOOKUP_COUNTS_AFTER
    is_accepted = request.stage is RefundStage.ACCEPTED
    return request.looked_up_at + (MISSING_AFTER if is_accepted else EMPTY_LOOKUP_GAP)


def _shown(charge: port.Charge, refund_id: UUID) -> port.RefundState | None:
    return next((refund.state for refund in charge.refunds if refund.refund_id == refund_id), None)
