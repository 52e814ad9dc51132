"""A cancellation that waited for a lock is dated when it happens, not when it was asked."""

import asyncio
from datetime import datetime, timedelta

import asyncpg

from tests.support.world import World


async def test_canceled_at_is_after_the_wait(world: World) -> None:
    """Nothing that was billed during the wait lies after it. [spec 3.2 subscription canceled]"""
    subscription = await world.enroll(await world.plan())
    holder = await asyncpg.connect(world.database_url)
    await holder.execute(f"SET app.account = '{world.account_id}'")
    async with holder.transaction():
        await holder.execute("SELECT FROM subscription FOR NO KEY UPDATE")
        canceling = asyncio.create_task(world.post(f"/v1/subscriptions/{subscription['id']}/cancel"))
        waiting = "SELECT count(*) AS n FROM pg_locks WHERE NOT granted"
        while not (await world.sql(waiting))[0]["n"]:  # noqa: ASYNC110 - the database has no event for it
            await asyncio.sleep(0.01)
        await world.sql("UPDATE account SET clock_offset = clock_offset + interval '2 days'")
    await holder.close()

    canceled = (await canceling).json
    started = datetime.fromisoformat(subscription["startedAt"])
    assert datetime.fromisoformat(canceled["canceledAt"]) >= started + timedelta(days=2)
