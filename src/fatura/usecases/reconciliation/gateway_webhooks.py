"""Receive gateways' webhooks, which schedule polls of the charges that they name (D-35, D-162)."""

from uuid import UUID

from fatura.domain.errors import NOT_FOUND, EngineError
from fatura.gateways.answers import MAX_ID_LENGTH
from fatura.gateways.port import AuthFailedError, Webhook
from fatura.observability import log
from fatura.store.charging import charge_polling
from fatura.store.connections import connections
from fatura.usecases.connections import gateway_connections
from fatura.usecases.deps import Deps
from fatura.usecases.reconciliation import unmatched_charges
from fatura.usecases.transaction import LaneName, Work, in_transaction, load_account

WEBHOOK_MAX_BYTES = 64 * 1024


async def receive_webhook(deps: Deps, account_id: UUID, connection_id: UUID, webhook: Webhook) -> None:
    """Verify a gateway's webhook, and schedule an immediate poll of each charge that it names (D-35).

    If the webhook names no charges, the charges of all unpaid invoices of the connection are polled. If it names a
    charge that the engine has not stored, `unmatched_charges` reads that charge later (D-162). Charge states in the
    webhook are ignored, so a replayed webhook causes only a poll.
    Raises EngineError: `engine.not_found`, for every webhook that is refused.
    """
    try:
        account = await load_account(deps, account_id)
    except EngineError:
        raise webhook_refused() from None
    await in_transaction(deps, account, _make_due, connection_id, webhook)


def webhook_refused() -> EngineError:
    """Return the same error for every refused webhook, to not reveal which accounts or connections exist."""
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
        storable = [each for each in named if each.isprintable() and 0 < len(each) <= MAX_ID_LENGTH]
        due = await charge_polling.make_named_due(
            work.tx, connection_id, storable, now=work.now, real_now=real_now
        )
        due += await charge_polling.make_earlier_due(work.tx, connection_id, storable, now=work.now)
        await unmatched_charges.look_later(work, connection_id, storable)
    if due:
        work.notify(LaneName.RECONCILIATION)
