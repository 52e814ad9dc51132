"""Probe failing connections: make the calls of one waiting invoice, and resume all work if the calls succeed (D-55)."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from fatura.domain.account import Account
from fatura.gateways.port import CALL_TIMEOUT_SECONDS, GatewayError
from fatura.observability import log
from fatura.store.connections import connection_health as stored_health
from fatura.usecases.charging import gateway_calls, issuance
from fatura.usecases.charging.gateway_calls import GatewayCall
from fatura.usecases.connections import connection_health, gateway_connections
from fatura.usecases.connections.observed_gateway import ObservedGateway
from fatura.usecases.deps import Deps
from fatura.usecases.one_by_one import each_alone_if_one_fails
from fatura.usecases.reconciliation import polling
from fatura.usecases.transaction import DATABASE_FAILURES, Work, in_transaction

LEASE = timedelta(seconds=110)
"""How long a worker leases the probe of a connection, in real time."""
assert LEASE.total_seconds() > gateway_calls.SEND_WITHIN_SECONDS + 3 * CALL_TIMEOUT_SECONDS


@dataclass(frozen=True, slots=True)
class _Probe:
    """A leased probe. `gateway` is None if the connection's credentials cannot be decrypted."""

    connection_id: UUID
    gateway: ObservedGateway | None
    is_active: bool


async def probe(deps: Deps, account: Account) -> int:
    """Probe the account's failing connections whose probe is due, and return how many were probed."""
    probes = await in_transaction(deps, account, _claim)
    failures = await asyncio.gather(*(_send(deps, account, each) for each in probes), return_exceptions=True)
    for each, failure in zip(probes, failures, strict=True):
        if failure is not None:  # the connection is probed again when the lease has expired
            log.error("gateway.probe_failed", connection_id=str(each.connection_id), exc_info=failure)
    return len(probes)


async def _claim(work: Work) -> Sequence[_Probe]:
    real_now = work.deps.clock()
    ids = await stored_health.claim_probes(
        work.tx, now=work.now, real_now=real_now, lease_until=real_now + LEASE
    )
    return await each_alone_if_one_fails(work, ids, _opened, put_off=_put_off)


async def _opened(work: Work, connection_ids: Sequence[UUID]) -> Sequence[_Probe]:
    opened = await gateway_connections.open_gateways(work, connection_ids, is_probe=True)
    return [
        _Probe(each, opened[each].gateway, opened[each].stored.connection.active) for each in connection_ids
    ]


async def _put_off(work: Work, connection_id: UUID) -> None:
    log.exception("gateway.probe_put_off", connection_id=str(connection_id))
    try:
        async with work.savepoint():
            await connection_health.put_off_probe(work, connection_id)
    except DATABASE_FAILURES:
        raise
    except Exception:  # noqa: BLE001 - for example, the event cannot be built; the lease puts the probe off
        log.exception("gateway.probe_not_put_off", connection_id=str(connection_id))


async def _send(deps: Deps, account: Account, probe: _Probe) -> None:
    """Issue a `ready` invoice that waits for the connection, or else poll another invoice that waits for it.

    If neither made a call, check the credentials at the provider. Then record how the calls ended. An inactive
    connection issues no invoice. If the credentials cannot be decrypted, record a failed call without making one.
    """
    if probe.gateway is None:
        await connection_health.record_probe(
            deps, account, probe.connection_id, [connection_health.UNREADABLE]
        )
        return
    calls: Sequence[GatewayCall] = ()
    if probe.is_active:
        calls = await in_transaction(deps, account, issuance.reserve_probe, probe.connection_id)
    if calls:
        gateway = calls[0].gateway
        await issuance.call_and_record(deps, account, calls)
    else:
        gateway = await polling.probe(deps, account, probe.connection_id)
    if gateway is None or not gateway.results:
        gateway = probe.gateway
        await _check_credentials(gateway)
    await connection_health.record_probe(deps, account, probe.connection_id, gateway.results)


async def _check_credentials(gateway: ObservedGateway) -> None:
    try:
        async with asyncio.timeout(CALL_TIMEOUT_SECONDS):
            await gateway.check_credentials()
    except (GatewayError, TimeoutError) as error:
        log.debug("gateway.probe_unanswered", connection_id=str(gateway.connection_id), error=error)
