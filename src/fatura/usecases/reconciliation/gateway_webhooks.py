"""Receive gateways' webhooks, and schedule polls of the charges that a webhook names (D-35, D-162)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from fatura.domain.account import Account
from fatura.domain.errors import NOT_FOUND, EngineError
from fatura.gateways.answers import MAX_ID_LENGTH
from fatura.gateways.port import AuthFailedError, Webhook
from fatura.observability import log
from fatura.store.accounts import accounts
from fatura.store.charging import charge_polling
from fatura.store.connections import connections
from fatura.usecases.connections import gateway_connections, poll_rounds
from fatura.usecases.connections.observed_gateway import ObservedGateway
from fatura.usecases.deps import Deps
from fatura.usecases.reconciliation import scheduled_looks
from fatura.usecases.transaction import LaneName, Work, in_transaction

WEBHOOK_MAX_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class VerifiedWebhook:
    """An authentic webhook, with the ids of the charges that it names, or None if it names no charges."""

    account: Account
    connection_id: UUID
    charge_ids: Sequence[str] | None


def check_ids(deps: Deps, account_id: UUID, connection_id: UUID) -> None:
    """Refuse a connection id that the engine has not made for this account. This needs no transaction (D-241).

    Raises EngineError: `engine.not_found`.
    """
    if not deps.tagger.is_connection_id(connection_id, account_id=account_id):
        raise webhook_refused()


async def verify(deps: Deps, account_id: UUID, connection_id: UUID, webhook: Webhook) -> VerifiedWebhook:
    """Return the webhook's contents if it is authentic (D-35). The caller has called `check_ids`.

    Look-ups for one account use one database connection, however many webhooks arrive at the same time (D-241).
    Raises EngineError: `engine.not_found`, for every webhook that is refused.
    """
    found = await deps.webhook_lookups.get(
        partial(_find, deps, account_id, connection_id), group=account_id, key=(account_id, connection_id)
    )
    if found is None:
        raise webhook_refused()
    account, gateway = found
    try:
        return VerifiedWebhook(account, connection_id, gateway.read_webhook(webhook).charge_ids)
    except AuthFailedError as error:
        if webhooks := deps.refused_webhooks.count(connection_id):
            log.warning(
                "gateway.webhook_refused", connection_id=str(connection_id), webhooks=webhooks, error=error
            )
        raise webhook_refused() from None


async def _find(deps: Deps, account_id: UUID, connection_id: UUID) -> tuple[Account, ObservedGateway] | None:
    """Return the account, and a connection's gateway.

    Return None if there is no such account or connection, or if the connection's credentials are unreadable.
    """
    async with deps.db.transaction(account_id, quick=True) as tx:
        account = await accounts.load(tx)
        stored = await connections.find(tx, connection_id)
        if account is None or stored is None:
            return None
        work = Work(deps, tx, account, account.now(deps.clock()))
        gateway = gateway_connections.open_gateway(work, stored)
    return None if gateway is None else (account, gateway)


def webhook_refused() -> EngineError:
    """Return the same error for every refused webhook, so that it reveals no account or connection."""
    return EngineError(
        NOT_FOUND, "No gateway connection takes this webhook; check its URL, and the secret that signs it."
    )


async def accept(deps: Deps, verified: VerifiedWebhook) -> None:
    """Schedule an immediate poll of each charge that an authentic webhook names (D-35).

    - If a named charge belongs to a `ready` invoice, a reissue has replaced the charge. A late look-up reads this
      charge, because a `ready` invoice is not polled.
    - If the engine has not stored a named charge, `scheduled_looks` schedules a read of the charge (D-162).
    - If the webhook names no charges, a round polls all unpaid charges of the connection (D-190).

    The engine ignores the states of charges in the webhook, so a replayed webhook only causes reads.
    """
    await in_transaction(deps, verified.account, _make_due, verified.connection_id, verified.charge_ids)


async def _make_due(work: Work, connection_id: UUID, named: Sequence[str] | None) -> None:
    if named is None:
        await poll_rounds.request(work, connection_id)
        return
    storable = [each for each in named if each.isprintable() and 0 < len(each) <= MAX_ID_LENGTH]
    charges = [(connection_id, each) for each in storable]
    due = await charge_polling.make_named_due(
        work.tx, charges, now=work.now, real_now=work.deps.clock(), polls_first=True
    )
    due += await charge_polling.make_earlier_due(work.tx, connection_id, storable, now=work.now)
    await scheduled_looks.look_later(work, connection_id, storable)
    if due:
        work.notify(LaneName.RECONCILIATION)
