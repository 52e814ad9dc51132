"""A claim is a statement with which a worker takes due rows. With any query plan, it takes no more than its limit."""

from datetime import timedelta

import pytest

from fatura.store.catalog import mirrors
from fatura.store.charging import claims
from fatura.store.db import Tx
from fatura.store.pricing import price_pulls
from tests.support.populated import connected
from tests.support.world import World

DUE = 10
LIMIT = 4
TEMPTING = (
    "enable_hashjoin",
    "enable_mergejoin",
    "enable_hashagg",
    "enable_sort",
    "enable_material",
    "enable_memoize",
)
"""Planner settings that the test turns off, to tempt PostgreSQL to run a sub-select once per row.

With such a query plan, a badly written claim would lock more rows than its limit.
"""


async def fill(world: World) -> None:
    """Create more than LIMIT of each: `ready` invoices, pending prices, and products to be mirrored."""
    await world.connect(productCatalog=True)
    fixed = await world.plan(*[await world.product(100) for _ in range(5)])
    variable = await world.plan(*[await world.variable_product() for _ in range(5)])
    gateway = (await world.get("/v1/integration")).json["gateways"][0]["connectionId"]
    for plan in (fixed, variable):
        for _ in range(DUE):
            await world.enroll(plan, gatewayConnectionId=gateway)
    await world.run("generation")


@pytest.mark.parametrize("tempted", [False, True])
async def test_no_claim_exceeds_its_limit(world: World, tempted: bool) -> None:  # noqa: FBT001 - passed by parametrize
    """[D-28]"""
    await fill(world)
    async with connected(world.database_url, world.account_id) as connection:
        for setting in TEMPTING if tempted else ():
            await connection.execute(f"SET {setting} = off")
        tx, real_now = Tx(connection, world.account_id), world.deps.clock()
        now, lease_until = real_now + timedelta(days=36500), real_now + timedelta(minutes=1)
        for _ in range(2):
            ready = await claims.claim_ready(
                tx, now=now, real_now=real_now, lease_until=lease_until, limit=LIMIT
            )
            pulls = await price_pulls.claim(
                tx, now=now, real_now=real_now, lease_until=lease_until, limit=LIMIT
            )
            mirrored = await mirrors.claim(
                tx, now=now, real_now=real_now, lease_until=lease_until, limit=LIMIT
            )
            assert (len(ready), len(pulls), len(mirrored)) == (LIMIT, LIMIT, LIMIT)
