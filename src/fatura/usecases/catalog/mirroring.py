"""Copy products in the background to the gateways that have a product catalog (spec 2.2)."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from fatura.domain.account import Account
from fatura.domain.charging import retry_delay
from fatura.gateways.port import (
    CALL_TIMEOUT_SECONDS,
    AuthFailedError,
    GatewayError,
    PermanentError,
    ProductMirror,
    TransientError,
)
from fatura.observability import log
from fatura.store import suspension
from fatura.store.catalog import mirrors
from fatura.store.catalog.mirrors import ClaimedMirror
from fatura.usecases.connections import connection_health, gateway_connections
from fatura.usecases.connections.observed_gateway import ObservedGateway
from fatura.usecases.deps import Deps
from fatura.usecases.one_by_one import PUT_OFF_BY, each_alone_if_one_fails
from fatura.usecases.transaction import DATABASE_FAILURES, Work, in_transaction

LEASE = timedelta(seconds=60)


async def mirror(deps: Deps, account: Account, *, limit: int) -> int:
    """Claim up to `limit` products whose copy is due, and copy them concurrently; return how many were tried."""
    claimed = await in_transaction(deps, account, _claim, limit=limit)
    results = await asyncio.gather(
        *(_call_and_record(deps, account, each, gateway) for each, gateway in claimed), return_exceptions=True
    )
    await connection_health.record(deps, account, [gateway for _, gateway in claimed if gateway])
    for (each, _), failure in zip(claimed, results, strict=True):
        if failure is not None:  # when the lease of the copy expires, a worker tries again
            log.error("mirroring.failed", product_id=str(each.product_id), exc_info=failure)
    return len(claimed)


async def _claim(work: Work, *, limit: int) -> Sequence[tuple[ClaimedMirror, ObservedGateway | None]]:
    """Lease products whose copy is due. Return each with its gateway, or with None if no call can be made now.

    While the account is suspended, lease none (D-242).
    """
    if not await suspension.may_work(work.tx):
        return []
    real_now = work.deps.clock()
    keys = await mirrors.claim(
        work.tx, now=work.now, real_now=real_now, lease_until=real_now + LEASE, limit=limit
    )
    return await each_alone_if_one_fails(work, keys, _due_copies, put_off=_put_off)


async def _put_off(work: Work, key: tuple[UUID, UUID]) -> None:
    connection_id, product_id = key
    log.exception("mirroring.put_off", connection_id=str(connection_id), product_id=str(product_id))
    await mirrors.put_off(work.tx, key, until=work.now + PUT_OFF_BY)


async def _due_copies(
    work: Work, keys: Sequence[tuple[UUID, UUID]]
) -> Sequence[tuple[ClaimedMirror, ObservedGateway | None]]:
    claimed = await mirrors.claimed(work.tx, keys)
    opened = await gateway_connections.open_gateways(work, {each.connection_id for each in claimed})
    gateways = {
        connection_id: each.gateway
        for connection_id, each in opened.items()
        if each.stored.connection.active and not each.stored.health.is_failing
    }
    return [(each, gateways.get(each.connection_id)) for each in claimed]


async def _call_and_record(
    deps: Deps, account: Account, claimed: ClaimedMirror, gateway: ObservedGateway | None
) -> None:
    try:
        gateway_product_id = await _call(claimed, gateway)
        await in_transaction(deps, account, _record_done, claimed, gateway_product_id)
    except (GatewayError, TimeoutError) as error:
        log.info("gateway.product_not_mirrored", product_id=str(claimed.product_id), error=error)
        await in_transaction(deps, account, _record_failure, claimed, error)
    except DATABASE_FAILURES:
        raise
    except Exception:  # noqa: BLE001 - a defect must not repeat the call without a pause
        log.exception("mirroring.failed", product_id=str(claimed.product_id))
        error = TransientError("an unexpected error; the log has the cause")
        await in_transaction(deps, account, _record_failure, claimed, error)


async def _call(claimed: ClaimedMirror, gateway: ObservedGateway | None) -> str:
    """Copy the product. Return the gateway's id of the copy. Raises GatewayError, TimeoutError."""
    if gateway is None:
        raise AuthFailedError("the connection is inactive or failing, or its credentials do not open")
    async with asyncio.timeout(CALL_TIMEOUT_SECONDS):
        return await gateway.mirror_product(
            ProductMirror(claimed.product_id, claimed.name, claimed.description)
        )


async def _record_done(work: Work, claimed: ClaimedMirror, gateway_product_id: str) -> None:
    await mirrors.record_done(work.tx, claimed, gateway_product_id=gateway_product_id, mirrored_at=work.now)


async def _record_failure(work: Work, claimed: ClaimedMirror, error: GatewayError | TimeoutError) -> None:
    retry_at = None if isinstance(error, PermanentError) else work.now + retry_delay(claimed.failures + 1)
    await mirrors.record_failure(work.tx, claimed, error=str(error), next_attempt_at=retry_at)
