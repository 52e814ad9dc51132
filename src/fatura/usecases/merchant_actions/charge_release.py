"""Cancel a charge at the gateway, before its invoice is canceled or gets another charge (D-27, D-51)."""

import asyncio
from datetime import timedelta
from uuid import UUID

from fatura.domain.account import Account
from fatura.gateways import port
from fatura.store.connections import connections
from fatura.usecases.connections import gateway_connections
from fatura.usecases.connections.observed_gateway import ObservedGateway
from fatura.usecases.deps import Deps
from fatura.usecases.payments import gateway_payments
from fatura.usecases.payments.gateway_payments import ChargeAnswer
from fatura.usecases.transaction import Work, in_transaction

POLL_AFTER = timedelta(seconds=port.CALL_TIMEOUT_SECONDS + 10)
"""Delay before the charge is polled if this process dies during the call."""
UNREADABLE = (
    "The gateway connection's credentials cannot be decrypted; send them again, then repeat the request."
)

Answer = port.Charge | port.GatewayError | TimeoutError


async def open_gateway(work: Work, connection_id: UUID) -> ObservedGateway | None:
    """Return the adapter of a connection, active or not; None if its credentials cannot be decrypted."""
    stored = await connections.find(work.tx, connection_id)
    assert stored is not None, "an invoice's connection exists"
    return gateway_connections.open_gateway(work, stored)


async def cancel(gateway: port.Gateway, gateway_invoice_id: str, *, invoice_id: UUID) -> Answer:
    """Ask the gateway to cancel a charge of an invoice, and return its answer.

    Errors and timeouts are returned, not raised.
    """
    try:
        async with asyncio.timeout(port.CALL_TIMEOUT_SECONDS):
            answer = await gateway.cancel_charge(gateway_invoice_id)
    except (port.GatewayError, TimeoutError) as error:
        return error
    if answer.invoice_id != invoice_id:
        return port.InvalidAnswerError("the charge has the reference of another invoice")
    return answer


async def record_payments(
    deps: Deps, account: Account, gateway: ObservedGateway, canceled: port.Charge
) -> None:
    """Record the payments that the gateway returned with a canceled charge (D-50).

    They may be newer than the last poll, and the charges of a canceled invoice are not polled.
    """
    if canceled.entries:
        answers = [ChargeAnswer(canceled.invoice_id, gateway.connection_id, canceled)]
        due_again = {canceled.invoice_id}
        await in_transaction(deps, account, gateway_payments.record, answers, due_again=due_again)


def refusal(answer: Answer) -> str:
    """Return the reason to show to the client, for an answer that does not confirm the cancellation."""
    match answer:
        case port.Charge(state=port.ChargeState.PAID):
            return "The charge has been paid; refund the payment instead."
        case port.Charge():
            return f"The gateway did not cancel the charge, which is {answer.state} there."
        case port.NotFoundError():
            return "The gateway does not know the invoice's charge; check it there."
        case port.AuthFailedError():
            return "The gateway refuses the connection's credentials; send new ones, then repeat the request."
        case port.PermanentError(detail=detail):
            return f"The gateway refuses to cancel the charge: {detail}"
        case _:
            return (
                "The gateway did not confirm that the charge is canceled; read the invoice, then try again."
            )
