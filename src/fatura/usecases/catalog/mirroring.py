"""Show products in the catalogs of gateways that have one, in the background (spec 2.2)."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from fatura.domain.account import Account
from fatura.domain.charging import retry_delay
from fatura.gateways.port import (
    CALL_TIMEOUT_SECONDS,
    AuthFailedError,
    Gateway,
    GatewayError,
    PermanentError,
    ProductMirror,
)
from fatura.observability import log
from fatura.store.catalog import mirrors
from fatura.store.catalog.mirrors import ClaimedMirror
from fatura.store.charging import connections
from fatura.usecases.charging import gateway_connections
from fatura.usecases.deps import Deps
from fatura.usecases.transaction import Work, in_transaction

LEASE = timedelta(seconds=60)


async def mirror(deps: Deps, account: Account, *, limit: int) -> int:
    """Mirror up to `limit` due products, all at once; return how many were tried."""

    async def reserve(work: Work) -> Sequence[tuple[ClaimedMirror, Gateway | None]]:
        real_now = deps.clock()
        pairs = await mirrors.claim(
            work.tx, now=work.now, real_now=real_now, lease_until=real_now + LEASE, limit=limit
        )
        if not pairs:
            return []
        stored = {each.connection.connection_id: each for each in await connections.find_all(work.tx)}
        claimed = await mirrors.claimed(work.tx, [pair[0] for pair in pairs], [pair[1] for pair in pairs])
        usable = {
            key: gateway_connections.open_gateway(work, each)
            for key, each in stored.items()
            if each.connection.active
        }
        return [(each, usable.get(each.connection_id)) for each in claimed]

    jobs = await in_transaction(deps, account, reserve)
    ended = await asyncio.gather(
        *(_carry_out(deps, account, claimed, gateway) for claimed, gateway in jobs), return_exceptions=True
    )
    for (claimed, _), failure in zip(jobs, ended, strict=True):
        if failure is not None:  # one product's failure stops no other; its lease ends, and it is tried again
            log.error("mirroring.failed", product_id=str(claimed.product_id), exc_info=failure)
    return len(jobs)


async def _carry_out(deps: Deps, account: Account, claimed: ClaimedMirror, gateway: Gateway | None) -> None:
    product = ProductMirror(claimed.product_id, claimed.name, claimed.description)
    answer: str | Exception
    try:
        if gateway is None:
            raise AuthFailedError("the connection is inactive, or its credentials do not open")
        async with asyncio.timeout(CALL_TIMEOUT_SECONDS):
            answer = await gateway.mirror_product(product)
    except (GatewayError, TimeoutError) as error:
        log.warning("gateway.product_not_mirrored", product_id=str(claimed.product_id), error=str(error))
        answer = error

    async def record(work: Work) -> None:
        if isinstance(answer, str):
            await mirrors.record_done(
                work.tx,
                claimed.connection_id,
                claimed.product_id,
                claimed_for=claimed.next_attempt_at,
                gateway_product_id=answer,
                mirrored_at=work.now,
            )
            return
        again = None if isinstance(answer, PermanentError) else work.now + retry_delay(claimed.failures + 1)
        await mirrors.record_failure(
            work.tx, claimed.connection_id, claimed.product_id, error=str(answer), next_attempt_at=again
        )

    await in_transaction(deps, account, record)
