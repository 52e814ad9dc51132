"""A payment provider's own webhooks: authenticated its way, believed in nothing, they wake the asking (D-35)."""

from uuid import UUID

from fatura.domain.errors import NOT_FOUND, EngineError
from fatura.gateways.port import AuthFailedError, Webhook
from fatura.observability import log
from fatura.store.charging import charge_polling, connections
from fatura.usecases.charging import gateway_connections
from fatura.usecases.deps import Deps
from fatura.usecases.lane_names import LaneName
from fatura.usecases.transaction import Work, in_transaction, load_account

MAX_BYTES = 64 * 1024
"""How large a webhook may be."""


def refused() -> EngineError:
    """Answer alike, byte for byte, whatever is wrong: strangers learn neither accounts nor connections from it."""
    return EngineError(
        NOT_FOUND,
        "No gateway connection takes this webhook; check its URL, and the secret that signs it.",
    )


async def receive(deps: Deps, account_id: UUID, connection_id: UUID, webhook: Webhook) -> None:
    """Have the charges that an authentic webhook names, or all open ones, asked after at once (D-35).

    Whatever it says of their state is not looked at, so that a replay, or a stolen secret, changes nothing.
    Raises EngineError: `engine.not_found`, for all that is not authentic.
    """
    try:
        account = await load_account(deps, account_id)
    except EngineError:
        raise refused() from None

    async def wake(work: Work) -> None:
        await _wake(work, connection_id, webhook)

    await in_transaction(deps, account, wake)


async def _wake(work: Work, connection_id: UUID, webhook: Webhook) -> None:
    stored = await connections.find(work.tx, connection_id)
    gateway = None if stored is None else gateway_connections.opened(work, stored)
    if gateway is None:
        raise refused()
    try:
        named = gateway.read_webhook(webhook).charge_ids
    except AuthFailedError as error:
        log.warning("gateway.webhook_refused", connection_id=str(connection_id), error=str(error))
        raise refused() from None
    real_now = work.deps.clock()
    if named is None:
        woken = await charge_polling.wake_open(work.tx, connection_id, now=work.now, real_now=real_now)
    else:
        storable = [each for each in named if each.isprintable()]
        woken = await charge_polling.wake_named(
            work.tx, connection_id, storable, now=work.now, real_now=real_now
        )
    if woken:
        work.notify(LaneName.RECONCILIATION)


__all__ = ["MAX_BYTES", "Webhook", "receive", "refused"]
