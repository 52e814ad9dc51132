"""Make the gateway call that a charge needs, while no transaction is open (D-33)."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum, auto

from fatura.domain.charge import InvoiceCharge
from fatura.gateways import port
from fatura.observability import log
from fatura.store.charging.claims import ClaimedInvoice
from fatura.usecases.connections.charge_calls import CallsAbout
from fatura.usecases.connections.observed_gateway import ObservedGateway
from fatura.usecases.deps import Deps
from fatura.usecases.operations import call_counts

SEND_WITHIN_SECONDS = 30
"""Maximum time between reserving a charge and sending its request, so that the call ends before the lease expires."""

READS_AT_ONCE = 5
"""Maximum number of found charges of one invoice that are read at the same time."""

UNEXPECTED = "the gateway's adapter failed unexpectedly; the log has the cause"
"""Reason of the GatewayError that replaces an unexpected exception of an adapter."""

CLOSED = frozenset({port.ChargeState.CANCELED, port.ChargeState.EXPIRED})


class CallKind(Enum):
    SEND = auto()
    """Create the charge."""
    REPEAT = auto()
    """Send the same request again; the gateway deduplicates it."""
    LOOK_UP = auto()
    """Search for the charge that an earlier request may have created, or read the charges found for the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayCall:
    """A call to make, as decided when the charge was reserved.

    `reserved_at` is on the account's clock, `reserved_at_real` is real time, `send_before` is on the process's
    monotonic clock. A SEND and a REPEAT have a `request`. `earlier_sent_at` is when an earlier call sent the
    charge's request, on the account's clock, or None. A REPEAT always has an `earlier_sent_at`.
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

    @property
    def is_sent(self) -> bool:
        """Return whether the call sends a request that may create a charge."""
        return self.kind is not CallKind.LOOK_UP

    @property
    def made(self) -> CallsAbout:
        """Return the HTTP exchanges of this call."""
        found = [(self.charge.invoice_id, self.charge.number), *self.charge.known_charge_ids]
        if self.request is not None:
            found.append((self.request.invoice_id, self.request.attempt))
        return CallsAbout(self.charge.charge_id, self.gateway, found)


class LookupUnsupportedError(port.GatewayError):
    """The gateway offers no look-ups, so a person must find out whether the charge exists (D-33)."""


@dataclass(frozen=True, slots=True)
class FoundCharges:
    """The charges of one request: the engine has read them by their ids, or found them by the reference (D-181).

    `missing` has the ids of the charges that the gateway does not know, refuses to show, or shows wrongly.
    `search_error` says why the search for more charges showed none. An issuance look-up sets it only if nobody can pay
    `charges` now. A late look-up sets it only if the search failed. `elsewhere` has the ids of charges that a late
    look-up found with the reference of another attempt or invoice.
    """

    charges: Sequence[port.Charge]
    missing: Sequence[str]
    search_error: port.GatewayError | None = None
    elsewhere: Sequence[str] = ()


class OtherInvoiceError(port.NotFoundError):
    """The charge has the reference of another invoice, so the gateway has no charge of this invoice with this id."""


GatewayAnswer = port.Charge | FoundCharges | port.GatewayError | None
"""The result of a call: a charge, found charges, a failure, or None for an empty look-up."""
AnsweredCall = tuple[GatewayCall, GatewayAnswer]


async def make(deps: Deps, call: GatewayCall) -> GatewayAnswer:
    """Make a call and return its answer.

    Every exception is returned as a GatewayError, so that the engine paces the next calls and reports the delay (D-34).
    """
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
    except Exception:  # noqa: BLE001 - a defect of an adapter must not repeat the call without a pause
        log.exception("charge.call_failed", invoice_id=str(call.invoice.invoice_id))
        failed = port.TransientError if call.kind is CallKind.LOOK_UP else port.UnknownOutcomeError
        answer = failed(UNEXPECTED)
    counted = next(iter(answer.charges), None) if isinstance(answer, FoundCharges) else answer
    call_counts.charge_attempts.labels(call_counts.charge_outcome(counted)).inc()
    return answer


async def _look_up(call: GatewayCall) -> port.Charge | FoundCharges | None:
    """Read by their ids the charges that were found for the request, and search for more charges by the reference.

    A found charge does not end the search, because the payer may have paid another charge (D-181). If the search and
    the read disagree about a charge, the read counts, because lists can be out of date. But if a charge cannot be read
    and the list shows its payments, the list counts, because payments do not disappear.
    """
    known, has_lookup = call.charge.known_charge_ids, call.gateway.capabilities().idempotency != "none"
    if not known:
        if not has_lookup:
            raise LookupUnsupportedError
        return await _find(call)
    if not has_lookup:
        return await _read_found(call)
    read, found = await asyncio.gather(_read_found(call), _search_beside(call))
    if isinstance(found, port.GatewayError):
        is_closed = all(each.state in CLOSED for each in read.charges)
        return replace(read, search_error=found) if is_closed else read
    listed = [each for each in found.charges if each.entries or each.charge_id not in read.missing]
    shown = {each.charge_id: each for each in [*listed, *read.charges]}
    # a canceled charge that cannot be read counts as missing, although its listed payments are recorded
    counted = {each.charge_id for each in listed if each.state is not port.ChargeState.CANCELED}
    counted.update(each.charge_id for each in read.charges)
    missing = [each for each in dict.fromkeys([*read.missing, *found.missing]) if each not in counted]
    return FoundCharges(list(shown.values()), missing)


async def _search_beside(call: GatewayCall) -> FoundCharges | port.GatewayError:
    """Return the charges with the request's reference, or an error if the search failed or shows no charge.

    Raises AuthFailedError.
    """
    try:
        found, invalid = await search(call)
    except port.AuthFailedError:
        raise
    except TimeoutError:
        return port.TransientError("no answer to a look-up in time")
    except port.GatewayError as error:
        return error
    if not found and not invalid:
        return port.NotFoundError("the search shows no charge")
    return FoundCharges(found, invalid)


async def search(call: GatewayCall) -> tuple[Sequence[port.Charge], Sequence[str]]:
    """Return the valid charges with the request's reference, and the ids of the invalid ones.

    Raises GatewayError, TimeoutError.
    """
    async with asyncio.timeout(port.CALL_TIMEOUT_SECONDS):
        return await call.gateway.look_up(call.charge.invoice_id, call.charge.number)


async def _find(call: GatewayCall) -> port.Charge | FoundCharges | None:
    """Search for charges by the reference, and return all of them: the payer can pay any charge that is not canceled.

    An invalid charge counts as missing, because the payer may have paid it (D-181).
    """
    found, invalid = await search(call)
    return FoundCharges(found, invalid) if invalid or len(found) > 1 else next(iter(found), None)


async def _read_found(call: GatewayCall) -> FoundCharges:
    """Read the charges found for the request.

    Raises AuthFailedError, or a TransientError that names a charge about which the gateway did not answer.
    """
    found: list[port.Charge] = []
    missing: list[str] = []
    for charge_id, answer in (await read(call, call.charge.known_charge_ids)).items():
        match answer:
            case port.Charge():
                found.append(answer)
            case port.AuthFailedError():
                raise answer
            case port.NotFoundError() | port.PermanentError() | port.InvalidAnswerError():
                log.info("charge.found_charge_not_shown", charge_id=charge_id, error=answer)
                missing.append(charge_id)
            case _:
                reason = f"The charge {charge_id} was found, but cannot be read: {str(answer) or 'no answer'}"
                raise port.TransientError(reason) from answer
    return FoundCharges(found, missing)


async def read(call: GatewayCall, charge_ids: Sequence[str]) -> Mapping[str, port.Charge | port.GatewayError]:
    """Read charges of the call's invoice. For each id, return the charge or the error of the read."""
    places = asyncio.Semaphore(READS_AT_ONCE)
    answers = await asyncio.gather(*(_read_in_turn(call, each, places) for each in charge_ids))
    return dict(zip(charge_ids, answers, strict=True))


async def _read_in_turn(
    call: GatewayCall, charge_id: str, places: asyncio.Semaphore
) -> port.Charge | port.GatewayError:
    try:
        async with places, asyncio.timeout(port.CALL_TIMEOUT_SECONDS):
            charge = await call.gateway.get_charge(charge_id)
    except TimeoutError:
        return port.TransientError("no answer in time")
    except port.GatewayError as error:
        return error
    except Exception:  # noqa: BLE001 - a defect of an adapter must not hide the other charges
        log.exception("charge.read_failed", charge_id=charge_id)
        return port.TransientError(UNEXPECTED)
    try:
        return charge.of_invoice(call.charge.invoice_id)
    except port.InvalidAnswerError as error:
        return OtherInvoiceError(str(error))


async def _send(deps: Deps, call: GatewayCall) -> port.Charge | FoundCharges:
    """Send the request that creates the charge.

    Raises TransientError, without sending, if this worker stood still so long that its lease may have expired. Raises
    UnknownOutcomeError if no answer arrives in time, and the GatewayErrors of the adapter.
    """
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


async def _create_charge(call: GatewayCall, request: port.ChargeRequest) -> port.Charge | FoundCharges:
    try:
        return await call.gateway.create_charge(request)
    except port.PermanentError:
        if call.earlier_sent_at is None or call.gateway.capabilities().idempotency == "none":
            raise
        # the refusal may mean that the earlier request created the charge, so look it up
        found = await _find(call)
        if found is None or (call.kind is CallKind.SEND and _is_canceled(found)):
            raise
        return found


def _is_canceled(found: port.Charge | FoundCharges) -> bool:
    """Return whether all found charges are canceled, and none is missing.

    If the gateway refuses a SEND and shows only canceled charges, the refusal counts as the answer. Late look-ups
    record the payments of the canceled charges.
    """
    if isinstance(found, port.Charge):
        return found.state is port.ChargeState.CANCELED
    return not found.missing and all(each.state is port.ChargeState.CANCELED for each in found.charges)
