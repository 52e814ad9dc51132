"""Make a call to the sandbox fail as a queued fault says, with the errors of a real adapter (D-46, D-61)."""

import asyncio

from fatura.domain.sandbox import SandboxFault, SandboxOperation
from fatura.gateways import port

_CREATES = frozenset({SandboxOperation.CREATE_CHARGE, SandboxOperation.CREATE_PRODUCT})
_WRITES = _CREATES | {SandboxOperation.CANCEL_CHARGE, SandboxOperation.REFUND_CHARGE}


async def fail_before(operation: SandboxOperation, fault: SandboxFault | None) -> None:
    """Raise the error of a fault that prevents the call. With `hang`, wait until the caller cancels the call."""
    match fault:
        case SandboxFault.HANG:
            await asyncio.Event().wait()
        case SandboxFault.TIMEOUT_BEFORE | SandboxFault.SERVER_ERROR:
            raise _no_answer(operation, fault)
        case SandboxFault.RATE_LIMITED:
            raise port.TransientError(fault, http_status=429)
        case SandboxFault.UNAUTHORIZED:
            raise port.AuthFailedError("A queued fault refuses the credentials.")
        case SandboxFault.UNKNOWN if operation in _CREATES:
            raise port.PermanentError("unknown", "A queued fault: the gateway does not know what to create.")
        case SandboxFault.UNKNOWN:
            raise port.NotFoundError("A queued fault: the gateway knows no such charge.")
        case SandboxFault.REJECTED:
            raise port.PermanentError("rejected", "A queued fault refuses this call.")
        case SandboxFault.TIMEOUT_AFTER | None:
            return


def fail_after(operation: SandboxOperation, fault: SandboxFault | None) -> None:
    """Raise the error of a fault that discards the answer of a call."""
    if fault is SandboxFault.TIMEOUT_AFTER:
        raise _no_answer(operation, fault)


def _no_answer(operation: SandboxOperation, fault: SandboxFault) -> port.GatewayError:
    return port.UnknownOutcomeError(fault) if operation in _WRITES else port.TransientError(fault)
