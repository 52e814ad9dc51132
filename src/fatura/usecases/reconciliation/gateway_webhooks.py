"""Receive gateways' webhooks, and schedule polls of the charges that a webhook names (D-35, D-162)."""

import asyncio
import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from fatura.domain.account import Account
from fatura.domain.errors import NOT_FOUND, EngineError
from fatura.gateways.answers import MAX_ID_LENGTH
from fatura.gateways.port import AuthFailedError, Webhook, WebhookHint
from fatura.observability import log
from fatura.store.accounts import accounts
from fatura.store.charging import charge_polling
from fatura.store.connections import connections, gateway_webhooks
from fatura.store.db import DatabaseUnavailableError
from fatura.usecases.connections import gateway_connections, poll_rounds
from fatura.usecases.connections.observed_gateway import ObservedGateway
from fatura.usecases.database_clock import WrongClockError
from fatura.usecases.deps import Deps
from fatura.usecases.reconciliation import scheduled_looks
from fatura.usecases.transaction import LaneName, Work, in_transaction

WEBHOOK_MAX_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class AuthenticWebhook:
    """An authentic webhook, with the ids of the charges that it names, or None if it names no charges.

    Copies of a webhook have the same `digest`. It is None if the webhook has no id, so copies are not recognized.
    """

    account: Account
    connection_id: UUID
    charge_ids: Sequence[str] | None
    digest: bytes | None


def check_ids(deps: Deps, account_id: UUID, connection_id: UUID) -> None:
    """Refuse a connection id that the engine has not made for this account. This needs no transaction (D-241).

    Raises EngineError: `engine.not_found`.
    """
    if not deps.tagger.is_connection_id(connection_id, account_id=account_id):
        raise webhook_refused()


async def verify(deps: Deps, account_id: UUID, connection_id: UUID, webhook: Webhook) -> AuthenticWebhook:
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
        hint = gateway.read_webhook(webhook)
    except AuthFailedError as error:
        if webhooks := deps.refused_webhooks.count(connection_id):
            log.warning(
                "gateway.webhook_refused", connection_id=str(connection_id), webhooks=webhooks, error=error
            )
        raise webhook_refused() from None
    named = hint.charge_ids
    if named is not None:
        named = [each for each in named if each.isprintable() and 0 < len(each) <= MAX_ID_LENGTH]
    return AuthenticWebhook(account, connection_id, named, _digest(hint))


def _digest(hint: WebhookHint) -> bytes | None:
    """Return what identifies copies of a webhook, or None if the webhook has no id.

    The names of the charges are included. So if a provider uses an id twice, the second event is not lost.
    """
    if not hint.event_id:
        return None
    return hashlib.sha256(json.dumps([hint.event_id, hint.charge_ids]).encode()).digest()


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


async def accept(deps: Deps, webhook: AuthenticWebhook) -> None:
    """Schedule an immediate poll of each charge that the webhook names (D-35). The effect is stored on return.

    Webhooks of one account that wait at the same time share one transaction (D-266).
    Raises EngineError: `engine.rate_limited`, `engine.unavailable`; DATABASE_FAILURES.
    """
    if webhook.charge_ids is not None and not webhook.charge_ids:
        return
    account_id = webhook.account.account_id
    with deps.open_webhooks.one(account_id):
        await deps.webhook_batches.run(partial(_accept_together, deps), webhook, group=account_id)


async def _accept_together(
    deps: Deps, webhooks: Sequence[AuthenticWebhook]
) -> Sequence[BaseException | None]:
    """Store the effects of one account's webhooks in one transaction. Return None, or an error, for each of them.

    If that fails, each webhook gets a transaction of its own. So a webhook about a locked row fails alone.
    """
    account = webhooks[0].account
    try:
        await in_transaction(deps, account, _take_effect, webhooks)
    except (DatabaseUnavailableError, WrongClockError):
        raise
    except Exception as error:
        if len(webhooks) == 1:
            raise
        log.warning(
            "gateway.webhooks_separated",
            account_id=str(account.account_id),
            webhooks=len(webhooks),
            error=error,
        )
        alone = [in_transaction(deps, account, _take_effect, [each]) for each in webhooks]
        return await asyncio.gather(*alone, return_exceptions=True)
    return [None] * len(webhooks)


async def _take_effect(work: Work, webhooks: Sequence[AuthenticWebhook]) -> None:
    """Make due what the webhooks name, except those that took effect before (D-266).

    - If a named charge belongs to a `ready` invoice, a reissue has replaced the charge. A late look-up reads this
      charge, because a `ready` invoice is not polled.
    - If the engine has not stored a named charge, `scheduled_looks` schedules a read of the charge (D-162).
    - If the webhook names no charges, a round polls all unpaid charges of the connection (D-190).

    The engine ignores the states of charges in the webhook, so a replayed webhook only causes reads.
    """
    new = await _not_stored_before(work, webhooks)
    # before any invoice is locked, as `poll_rounds.request` demands
    for connection_id in sorted({each.connection_id for each in new if each.charge_ids is None}):
        await poll_rounds.request(work, connection_id)
    charges = list(
        dict.fromkeys((each.connection_id, name) for each in new for name in each.charge_ids or ())
    )
    if not charges:
        return
    due = await charge_polling.make_named_due(
        work.tx, charges, now=work.now, real_now=work.deps.clock(), polls_first=True
    )
    due += await charge_polling.make_earlier_due(work.tx, charges, now=work.now)
    if due:
        work.notify(LaneName.RECONCILIATION)
    for connection_id in sorted({connection_id for connection_id, _ in charges}):
        names = [name for of, name in charges if of == connection_id]
        if dropped := await scheduled_looks.look_later(work, connection_id, names):
            await _forget(work, [each for each in new if each.connection_id == connection_id], dropped)


async def _not_stored_before(work: Work, webhooks: Sequence[AuthenticWebhook]) -> Sequence[AuthenticWebhook]:
    """Store the webhooks that have a digest. Leave out those that were stored before."""
    keys = [(each.connection_id, each.digest) for each in webhooks if each.digest is not None]
    if not keys:
        return webhooks
    stored = await gateway_webhooks.add(work.tx, keys, received_at=work.deps.clock())
    return [each for each in webhooks if each.digest is None or (each.connection_id, each.digest) in stored]


async def _forget(work: Work, webhooks: Sequence[AuthenticWebhook], dropped: Collection[str]) -> None:
    """Let copies of the webhooks that name a dropped charge count as new, because the charge may have a place then."""
    without_effect = [
        (each.connection_id, each.digest)
        for each in webhooks
        if each.digest is not None and not set(dropped).isdisjoint(each.charge_ids or ())
    ]
    if without_effect:
        await gateway_webhooks.remove(work.tx, without_effect)
