"""An account with many subscribers, used by several worker processes."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import asyncpg

from fatura import settings
from fatura.bootstrap import wire
from fatura.domain.credentials import Mode
from fatura.store.db import connect
from fatura.store.vault import Vault
from fatura.usecases.accounts import accounts, tag_key
from tests.support.databases import as_owner
from tests.support.fatura_processes import KEY_RING
from tests.support.operator import OPERATOR
from tests.support.populated import connected
from tests.support.unlimited import UNLIMITED
from tests.support.world import Answer, Json, Merchant, api_client, ignore_notification

PATIENCE_SECONDS = 120
ANALYZE_SECONDS = 2

SUBSCRIBE_MANY = """
    WITH made AS (
        INSERT INTO customer (account_id, customer_id, external_ref, name, name_key, email, email_key,
            created_at)
        SELECT $1, gen_random_uuid(), 'bulk-' || n, 'Ana', 'ana', 'ana@example.com', 'ana@example.com', now()
        FROM generate_series(1, $3::int) n
        RETURNING customer_id
    ), counted AS (
        UPDATE account_counter
        SET customers = customers + $3::int, subscriptions_active = subscriptions_active + $3::int
        WHERE account_id = $1
    ), subscribed AS (
        INSERT INTO subscription (account_id, subscription_id, plan_id, plan_version_id, plan_version, customized,
            customer_id, status, charge_day, payment_method, payment_method_source, connection_id, start_cycle,
            cycle_count, next_period_start, next_due_date, generate_at, started_at)
        SELECT $1, gen_random_uuid(), v.plan_id, v.plan_version_id, 1, false, made.customer_id, 'active', 10, 'pix',
            'plan_default', g.connection_id, 1, 0, '2026-01-10', '2026-01-10', now() - interval '1 day', now()
        FROM made, plan_version v, gateway_connection g
        WHERE v.account_id = $1 AND v.plan_id = $2::text::uuid AND g.account_id = $1
        RETURNING subscription_id, plan_version_id, started_at
    )
    INSERT INTO subscription_terms (account_id, subscription_id, number, from_cycle, plan_version_id, reason,
        changed_at)
    SELECT $1, n.subscription_id, 1, 1, n.plan_version_id, 'enrolled', n.started_at FROM subscribed n
"""
"""Inserts the rows that many requests would create: customers with due subscriptions."""


class Crowd:
    def __init__(self, merchant: Merchant, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        self.merchant = merchant
        self._connection = connection

    async def sql(self, statement: str, *values: object) -> list[asyncpg.Record]:
        """Run a statement whose `$1` is the account id."""
        return await self._connection.fetch(statement, self.merchant.account_id, *values)

    async def subscribe(self, plan: Json, *, count: int) -> None:
        """Subscribe many customers to a plan. All subscriptions are due."""
        await self.sql(SUBSCRIBE_MANY, plan["id"], count)

    async def fall_due(self) -> None:
        """Make every subscription due now. Normally, the engine waits 24 hours between two missed cycles (D-5)."""
        await self.sql("UPDATE subscription SET generate_at = now() WHERE account_id = $1")

    async def pass_minutes(self, minutes: int) -> Answer:
        """Advance the test clock, and wait until a worker has done the work that becomes due."""
        now = datetime.fromisoformat((await self.merchant.get("/v1/test-clock")).json["now"])
        target = (now + timedelta(minutes=minutes)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return await self.merchant.post("/v1/test-clock/advance", {"to": target})

    async def end_leases(self) -> None:
        """Expire the leases of invoices and of the test clock. A killed worker's leases last up to 60 s."""
        await self.sql("UPDATE invoice SET lease_until = now() - interval '1 second' WHERE account_id = $1")
        await self.sql(
            "UPDATE test_clock SET lease_until = now() - interval '1 second' WHERE account_id = $1"
        )

    async def until(self, statement: str, count: int) -> None:
        """Wait until the count that `statement` reads is at least `count`."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await self.sql(statement))[0][0] < count:  # noqa: ASYNC110 - other processes do the work
                await asyncio.sleep(0.02)


async def _analyze_often(database_url: str) -> None:
    """Analyze the growing tables, as autovacuum does. Otherwise, PostgreSQL uses plans that suit small tables."""
    async with connected(as_owner(database_url)) as owner:
        while True:
            await asyncio.sleep(ANALYZE_SECONDS)
            await owner.execute("ANALYZE")


@asynccontextmanager
async def open_crowd(database_url: str) -> AsyncGenerator[Crowd]:
    """Open an account and run its API in this process. Worker processes can use its database and key ring."""
    read = settings.read(UNLIMITED)
    db = await connect(database_url, max_connections=5)
    try:
        vault = Vault([KEY_RING])
        tagger = await tag_key.load(db, vault)
        deps = wire(read, db, vault=vault, tagger=tagger, notify=ignore_notification)
        async with api_client(deps) as client:
            opened = await accounts.open_account(deps, name="Crowd", mode=Mode.SANDBOX, opened_by=OPERATOR)
            async with connected(database_url, opened.account_id) as connection:
                analyzing = asyncio.create_task(_analyze_often(database_url))
                try:
                    yield Crowd(Merchant(deps, client, opened), connection)
                finally:
                    analyzing.cancel()
                    await asyncio.wait([analyzing])
    finally:
        await db.close()
