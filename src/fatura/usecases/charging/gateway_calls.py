"""Call a gateway for a charge, with no transaction open (D-33)."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto

from fatura.domain.charge import InvoiceCharge
from fatura.gateways import port
from fatura.store.charging.claims import ClaimedInvoice
from fatura.usecases.connections.observed_gateway import ObservedGateway
from fatura.usecases.deps import Deps
from fatura.usecases.operations import call_counts

SEND_WITHIN_SECONDS = 30
"""Maximum time between reserving a charge and sending its request, so that the call ends before the lease expires."""


class CallKind(Enum):
    SEND = auto()
    """Create the charge."""
    REPEAT = auto()
    """Send the same request again; the gateway deduplicates it."""
    LOOK_UP = auto()
    """Ask whether an earlier request created the charge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayCall:
    """A call to make, as decided when the charge was reserved.

    `reserved_at` is on the account's clock, `reserved_at_real` is real time, `send_before` is on the process's
    monotonic clock. A SEND and a REPEAT have a `request`. For a REPEAT, `earlier_sent_at` is when the earlier request
    was sent, on the account's clock.
    """

    kind: CallKind
    invoice: ClaimedInvoice
    charge: InvoiceCharge
    gateway: ObservedGateway
    reserved_at: datetime
    reserved_at_real: datetime
    send_before: float = 0.0
    request: port.ChargeRequest | None = None
    earlier_sent_at: datetime | None = None


class LookupUnsupportedError(port.GatewayError):
    """The gateway offers no look-ups, so a person must find out whether the charge exists (D-33)."""


class SeveralChargesError(port.GatewayError):
    """`fatura restored` found several charges for one request. A person must cancel all but one (D-123)."""


@dataclass(frozen=True, slots=True)
class FoundCharges:
    """The charges that `fatura restored` found for one request: the one to adopt, and the canceled others (D-123)."""

    adopted: port.Charge
    others: Sequence[port.Charge]


GatewayAnswer = port.Charge | FoundCharges | port.GatewayError | None
"""The result of a call: a charge, found charges, a failure, or None for an empty look-up."""
AnsweredCall = tuple[GatewayCall, GatewayAnswer]


async def make(deps: Deps, call: GatewayCall) -> GatewayAnswer:
    """Make a call and return its answer. A GatewayError or a timeout is returned; other exceptions are raised."""
    answer: GatewayAnswer
    try:
        if call.kind is CallKind.LOOK_UP:
            answer = await _look_up(call)
        else:
            answer = await _send(deps, call)
    except TimeoutError:
        answer = port.TransientError("no answer to a look-up in time")
    except port.GatewayError as error:
        answer = error
    counted = answer.adopted if isinstance(answer, FoundCharges) else answer
    call_counts.charge_attempts.labels(call_counts.charge_outcome(counted)).inc()
    return answer


async def _look_up(call: GatewayCall) -> port.Charge | FoundCharges | None:
    if call.charge.known_charge_ids:
        return await _found_charges(call)
    if call.gateway.capabilities().idempotency == "none":
        raise LookupUnsupportedError
    async with asyncio.timeout(port.CALL_TIMEOUT_SECONDS):
        return await call.gateway.find_charge(call.charge.invoice_id, call.charge.number)


async def _found_charges(call: GatewayCall) -> FoundCharges:
    """Return the charges that `fatura restored` found for this request (D-123).

    Of several charges, the invoice adopts the only one that is not canceled, or the newest one if all are canceled.
    Raises SeveralChargesError if more than one is not canceled.
    """
    async with asyncio.timeout(port.CALL_TIMEOUT_SECONDS):
        known = [await call.gateway.get_charge(charge_id) for charge_id in call.charge.known_charge_ids]
    live = [charge for charge in known if charge.state is not port.ChargeState.CANCELED]
    if len(live) > 1:
        raise SeveralChargesError(", ".join(charge.charge_id for charge in live))
    adopted = live[0] if live else max(known, key=lambda charge: charge.attempt)
    return FoundCharges(adopted, [charge for charge in known if charge is not adopted])


async def _send(deps: Deps, call: GatewayCall) -> port.Charge:
    """Create the charge. Raises TransientError if this worker was suspended so long that its lease may have expired."""
    assert call.request is not None, "a call that sends has a request"
    frozen = deps.clock() - call.reserved_at_real > timedelta(seconds=SEND_WITHIN_SECONDS)
    # check real time and the monotonic clock, because either may stop while the machine is suspended
    if frozen or time.monotonic() > call.send_before:
        raise port.TransientError("the worker was frozen and its lease may have expired; nothing was sent")
    try:
        async with asyncio.timeout(port.CALL_TIMEOUT_SECONDS):
            return await _create_charge(call, call.request)
    except TimeoutError as error:
        raise port.UnknownOutcomeError(f"no answer within {port.CALL_TIMEOUT_SECONDS} s") from error


async def _create_charge(call: GatewayCall, request: port.ChargeRequest) -> port.Charge:
    try:
        return await call.gateway.create_charge(request)
    except port.PermanentError:
        if call.kind is not CallKind.REPEAT:
            raise
        # the refusal may mean that the earlier request created the charge, so look it up
        charge = await call.gateway.find_charge(request.invoice_id, request.attempt)
        if charge is None:
            raise
        return charge
