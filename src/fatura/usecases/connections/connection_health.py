"""Record how calls to gateways ended; then schedule probes, emit events and resume waiting work (D-55)."""

import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from uuid import UUID

from fatura.domain.account import Account
from fatura.domain.gateway_health import (
    CREDENTIALS_UNREADABLE,
    HEALTHY,
    MAX_JITTER_PERMILLE,
    CallError,
    CallResult,
    ConnectionHealth,
)
from fatura.observability import log
from fatura.store.charging import waiting
from fatura.store.connections import connection_health as stored_health
from fatura.store.connections import connections
from fatura.store.connections.connections import StoredConnection
from fatura.usecases.connections.observed_gateway import ObservedGateway
from fatura.usecases.deps import Deps
from fatura.usecases.transaction import LaneName, Work, in_transaction
from fatura.views.events import ConnectionDataView, ConnectionErrorDataView
from fatura.views.integration import ConnectionErrorView, ConnectionView

WAKE_LIMIT = 1000
"""Maximum number of waiting invoices that a recovery makes due. The others become due within about an hour."""

WOKEN_EACH_SECOND = 64
UNREADABLE = CallResult(
    CallError(CREDENTIALS_UNREADABLE, "The credentials cannot be decrypted; send them again.")
)


_Store = Callable[[Work, UUID, Sequence[CallResult]], Awaitable[ConnectionHealth]]


async def record(deps: Deps, account: Account, gateways: Iterable[ObservedGateway]) -> None:
    """Store the results of the connections' calls since the previous `record`.

    A failure to store is logged, not raised. If a connection had no failures and no call failed, nothing is written.
    `record_probe` stores the results of probes.
    """
    for gateway in {id(each): each for each in gateways}.values():
        if not gateway.is_probe:
            await _record(deps, account, gateway, _store)


async def record_check(
    deps: Deps, account: Account, gateway: ObservedGateway, *, used: StoredConnection
) -> None:
    """Store the result of a check like `record`, but only if the connection still has the credentials it `used`.

    Otherwise, the merchant has replaced the credentials during the call, which says nothing about the new ones.
    """
    await _record(deps, account, gateway, partial(_store_if_used, used=used))


async def _record(deps: Deps, account: Account, gateway: ObservedGateway, store: _Store) -> None:
    results, gateway.results = gateway.results, []
    if any(each.error is None for each in results):
        deps.answering.note(account.account_id)
    if results and (gateway.has_failures or any(each.error for each in results)):
        try:
            health = await in_transaction(deps, account, store, gateway.connection_id, results)
        except Exception:  # noqa: BLE001 - the answers are recorded already; only the health is lost
            log.exception("gateway.health_not_recorded", connection_id=str(gateway.connection_id))
        else:
            gateway.has_failures = health != HEALTHY


async def _store_if_used(
    work: Work, connection_id: UUID, results: Sequence[CallResult], *, used: StoredConnection
) -> ConnectionHealth:
    # a change of the credentials that has not committed yet waits for this lock, and then makes the health good again
    before = await stored_health.lock(work.tx, connection_id)
    now = await connections.find(work.tx, connection_id)
    assert now is not None, "connections are never deleted"
    if now.credentials_sealed != used.credentials_sealed:
        return before
    return await _store(work, connection_id, results)


async def count_unreadable(work: Work, connection_id: UUID) -> None:
    """Count the unreadable credentials of a connection like a failed call, although no call was made."""
    await _store(work, connection_id, [UNREADABLE])


async def record_probe(
    deps: Deps, account: Account, connection_id: UUID, results: Sequence[CallResult]
) -> None:
    """Store how the calls of a probe ended, and end the lease.

    If the connection is failing after these calls, schedule the next probe. A call with an invalid answer adds no
    result. So `results` can be empty, and the connection then stays failing.
    """
    if any(each.error is None for each in results):
        deps.answering.note(account.account_id)
    await in_transaction(deps, account, _store, connection_id, results, is_probe=True)


async def put_off_probe(work: Work, connection_id: UUID) -> None:
    """End the lease of a probe that made no call because of an unexpected error; schedule the next probe (D-186)."""
    await _store(work, connection_id, [], is_probe=True)


async def _store(
    work: Work, connection_id: UUID, results: Sequence[CallResult], *, is_probe: bool = False
) -> ConnectionHealth:
    before = await stored_health.lock(work.tx, connection_id)
    await work.refresh()
    after = before.after_calls(
        results,
        now=work.now,
        is_probe=is_probe,
        jitter_permille=random.randint(0, MAX_JITTER_PERMILLE),  # noqa: S311 - spreads load
    )
    await _change(work, connection_id, before, after, ends_lease=is_probe)
    return after


async def recover(work: Work, connection_id: UUID) -> None:
    """Treat a connection as working, because the provider has accepted new credentials (D-55)."""
    before = await stored_health.lock(work.tx, connection_id)
    await _change(work, connection_id, before, HEALTHY, ends_lease=True)


async def probe_now(work: Work, connection_id: UUID) -> None:
    """Make the next probe of a failing connection due now, because a person has changed the connection."""
    before = await stored_health.lock(work.tx, connection_id)
    if before.is_failing:
        after = replace(before, next_probe_at=work.now)
        await stored_health.update(work.tx, connection_id, after, ends_lease=False)
        work.notify(LaneName.GATEWAY_PROBE)


async def wake(work: Work, connection_id: UUID) -> None:
    """Let up to WAKE_LIMIT invoices that wait for a connection become due: WOKEN_EACH_SECOND in each second."""
    found = await waiting.lock(work.tx, connection_id, due_after=work.now, limit=WAKE_LIMIT)
    if found:
        due_at = [work.now + timedelta(seconds=place // WOKEN_EACH_SECOND) for place in range(len(found))]
        await waiting.wake(work.tx, found, due_at=due_at)
        work.notify(LaneName.ISSUANCE, LaneName.RECONCILIATION)


async def _change(
    work: Work, connection_id: UUID, before: ConnectionHealth, after: ConnectionHealth, *, ends_lease: bool
) -> None:
    should_emit = after.should_emit_failing(now=work.now)
    if should_emit:
        after = replace(after, emitted=True)
    if after != before or ends_lease:
        await stored_health.update(work.tx, connection_id, after, ends_lease=ends_lease)
    if before.is_failing and not after.is_failing:
        await wake(work, connection_id)
    await _report(work, connection_id, before, after)


async def _report(work: Work, connection_id: UUID, before: ConnectionHealth, after: ConnectionHealth) -> None:
    """Log when a connection starts failing or recovers.

    Emit `connection.failing` only after all calls, or all reads, have failed for an hour. If the connection recovers
    after this event, emit `connection.recovered` (D-55).
    """
    shown = after.shown_error
    code = None if shown is None else shown.code
    if after.is_failing and not before.is_failing:
        log.warning("gateway.connection_failing", connection_id=str(connection_id), code=code)
        work.notify(LaneName.GATEWAY_PROBE)
    if before.is_failing and not after.is_failing:
        log.info("gateway.connection_recovered", connection_id=str(connection_id))
    if after.emitted and not before.emitted and shown is not None:
        view = await _view(work, connection_id)
        error = ConnectionErrorView.of(shown)
        work.emit("connection.failing", ConnectionErrorDataView(connection=view, error=error))
    if before.emitted and not after.emitted:
        work.emit("connection.recovered", ConnectionDataView(connection=await _view(work, connection_id)))


async def _view(work: Work, connection_id: UUID) -> ConnectionView:
    stored = await connections.find(work.tx, connection_id)
    assert stored is not None, "a connection is never deleted"
    return ConnectionView.of(
        stored.connection, stored.health, settings=stored.settings, paused_at=stored.paused_at
    )
