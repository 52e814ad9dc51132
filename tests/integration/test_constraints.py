"""Statements that the constraints accept. tests/faults/constraints tries invalid statements."""

import json

from tests.support.populated import connected, populate, refused_by
from tests.support.world import World


async def test_two_accounts_may_have_rows_with_the_same_id(world: World):
    """[spec 5.4]"""
    await populate(world)
    other = await world.another()
    await populate(other)
    async with connected(world.database_url, world.account_id) as connection:
        row = await connection.fetchval("SELECT to_jsonb(c) FROM customer c LIMIT 1")
    async with connected(world.database_url, other.account_id) as connection:
        mine = json.loads(row) | {"account_id": str(other.account_id)}
        insert = "INSERT INTO customer SELECT r.* FROM jsonb_populate_record(NULL::customer, $1::jsonb) AS r"
        assert await refused_by(connection, insert, json.dumps(mine)) == "yes"


async def test_a_pending_item_is_priced_or_skipped_once(world: World):
    """[D-28, spec 2.5 snapshot]"""
    await populate(world)
    price = (
        "UPDATE invoice_item SET pricing_status = 'priced', amount_cents = 5 WHERE pricing_status = 'pending'"
    )
    skip = "UPDATE invoice_item SET pricing_status = 'skipped' WHERE pricing_status = 'pending'"
    rename = "UPDATE invoice_item SET product_name = 'Other' WHERE pricing_status = 'pending'"
    reopen = """
        UPDATE invoice_item SET pricing_status = 'pending', amount_cents = NULL WHERE pricing_source = 'endpoint'
    """
    async with connected(world.database_url, world.account_id) as connection:
        assert await refused_by(connection, rename) == "invoice_item_frozen"
        for close in (price, skip):
            transaction = connection.transaction()
            await transaction.start()
            assert await connection.execute(close) == "UPDATE 1"
            assert await refused_by(connection, reopen) == "invoice_item_frozen"
            await transaction.rollback()
