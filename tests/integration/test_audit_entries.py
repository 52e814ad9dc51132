"""The database keeps audit entries until they are old, and each filter of the log reads few entries (D-224, D-225)."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest

from fatura.domain.audit import ActorKind
from fatura.domain.filters import AuditFilter
from fatura.store.db import connect
from fatura.usecases.audit import log
from fatura.usecases.deps import Deps
from fatura.usecases.transaction import in_transaction, load_account
from tests.support.explaining import PLANS, Explaining, nodes
from tests.support.populated import connected, refused_by
from tests.support.world import NOW, World

ENTRIES = 20_000
RARE = UUID(int=7)
FILL = """
    INSERT INTO audit_entry (account_id, sequence, audit_entry_id, created_at, actor_kind, actor_id, actor_name, action,
        resource_type, resource_id, request_id, stored_at)
    SELECT $1, n + 1, gen_random_uuid(), $2::timestamptz + n * interval '1 second', 'api_key',
        CASE WHEN n % 5000 = 0 THEN $3::uuid ELSE $1 END, 'bulk',
        CASE WHEN n % 5000 = 1 THEN 'product.update' ELSE 'product.create' END, 'product',
        CASE WHEN n % 5000 = 2 THEN 'rare' ELSE 'usual' END, 'x', now()
    FROM generate_series(1, $4::int) n
"""
COUNT = "UPDATE account_counter SET last_audit_sequence = $2, last_audited_at = $3 WHERE account_id = $1"


async def test_the_database_keeps_entries_until_they_are_old(world: World):
    """[D-225]"""
    for _ in range(3):
        await world.product()
    change = "UPDATE audit_entry SET actor_name = 'nobody' WHERE sequence = 1"
    delete = "DELETE FROM audit_entry WHERE sequence <= 2"
    async with connected(world.database_url, world.account_id) as connection:
        assert [await refused_by(connection, each) for each in (change, delete)] == ["row_kept", "row_kept"]
        async with connection.transaction():
            await connection.execute("SET LOCAL app.retention = 'on'")
            assert await refused_by(connection, change) == "row_kept"
            assert await connection.execute(delete) == "DELETE 2"
        assert await refused_by(connection, delete.replace("<= 2", "= 3")) == "row_kept"
    assert len(await world.audit()) == 2
    assert await world.broken() == []


@pytest.fixture
async def explaining(world: World) -> AsyncIterator[Deps]:
    """Add many audit entries to the account, and return dependencies that record query plans."""
    last = NOW + timedelta(seconds=ENTRIES)
    await world.sql(FILL, world.account_id, NOW, RARE, ENTRIES)
    await world.sql(COUNT, world.account_id, ENTRIES + 1, last)
    await world.sql("ANALYZE audit_entry")
    db = await connect(world.database_url, max_connections=2, connection_class=Explaining)
    yield replace(world.deps, db=db)
    await db.close()


FILTERS: list[tuple[AuditFilter, int, int]] = [
    (AuditFilter(), ENTRIES - 5, 6),
    (AuditFilter(actor_id=RARE), 0, 4),
    (AuditFilter(action="product.update"), 0, 4),
    (AuditFilter(resource_id="rare"), 0, 4),
    (AuditFilter(actor_kind=ActorKind.ENGINE), 0, 0),
    (AuditFilter(actor_kind=ActorKind.API_KEY), 0, 50),
    (AuditFilter(at_from=NOW + timedelta(seconds=ENTRIES - 9)), 0, 10),
    (AuditFilter(at_from=NOW + timedelta(hours=2), at_to=NOW + timedelta(hours=2, seconds=4)), 0, 5),
    (AuditFilter(at_to=NOW), 0, 1),
    (AuditFilter(resource_id="rare", at_from=NOW + timedelta(seconds=15_000)), 0, 1),
]
"""Each row has a filter, a cursor, and the number of entries on the page after the cursor."""


async def test_each_filter_reads_few_entries(world: World, explaining: Deps):
    """[D-224]"""
    account = await load_account(world.deps, world.account_id)
    for wanted, after, count in FILTERS:
        PLANS.clear()
        page = await in_transaction(explaining, account, log.read, after=after, limit=50, wanted=wanted)
        assert len(page.data) == count, wanted
        for plan in PLANS:
            read = [
                node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
                for node in nodes(plan)
                if node.get("Relation Name") == "audit_entry"
            ]
            assert max(read, default=0) <= 60, plan


async def test_an_entry_without_its_actor_is_refused(world: World):
    """[D-63]"""
    insert = """
        INSERT INTO audit_entry (account_id, sequence, audit_entry_id, created_at, actor_kind, actor_name, action,
            resource_type, resource_id, stored_at)
        SELECT account_id, 99, gen_random_uuid(), now(), 'KIND', 'x', 'product.create', 'product', 'x', now()
        FROM account
    """
    async with connected(world.database_url, world.account_id) as connection:
        for kind in ("api_key", "user", "nobody"):
            assert await refused_by(connection, insert.replace("KIND", kind)) == "audit_entry_actor"
        for kind in ("operator", "engine"):
            assert await refused_by(connection, insert.replace("KIND", kind)) == "yes"
