"""The walls inside PostgreSQL: checks, keys that lead with the account, rows that are kept. Whatever the code does."""

import json
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from tests.integration.populated import connected, copy_into, populate, tables, wall
from tests.world import World, rows

# Copies of a good row with one thing wrong, and the check that refuses each.
CHECKS = rows("""
    table              | changed                                                | check
    product            | "monthly_price_cents": -1                              | product_pricing
    product            | "monthly_price_cents": 1000000000000                   | product_pricing
    product            | "monthly_price_cents": null                            | product_pricing
    product            | "cap_cents": 1                                         | product_pricing
    product            | "endpoint_url": "https://merchant.example"             | product_pricing
    product            | "pricing_mode": "endpoint"                             | product_pricing
    product            | "pricing_mode": "free"                                 | product_pricing
    plan               | "current_version": 0                                   | plan_version_counts
    plan_version       | "period_months": 2                                     | plan_version_period
    plan_version       | "default_payment_method": "cash", "max_installments": 1 | plan_version_method
    plan_version       | "max_installments": 0                                  | plan_version_installments
    plan_version       | "max_installments": 13                                 | plan_version_installments
    plan_version       | "default_payment_method": "pix", "max_installments": 2 | plan_version_installments
    plan_version       | "commitment_cycles": 0                                 | plan_version_commitment
    plan_item          | "position": -1                                         | plan_item_position
    plan_item          | "position": 20                                         | plan_item_position
    plan_discount      | "priority": 20                                         | plan_discount_priority
    plan_discount      | "percent": 0                                           | plan_discount_percent
    plan_discount      | "percent": 101                                         | plan_discount_percent
    plan_discount      | "from_cycle": 0                                        | plan_discount_cycles
    plan_discount      | "from_cycle": 4, "to_cycle": 3                         | plan_discount_cycles
    gateway_connection | "methods": ["card", "cash"]                            | gateway_connection_methods
    gateway_connection | "max_installments": 13                                 | gateway_connection_installments
    subscription       | "status": "canceled"                                   | subscription_status
    subscription       | "status": "paused"                                     | subscription_status
    subscription       | "canceled_at": "2035-01-01"                            | subscription_status
    subscription       | "charge_day": 0                                        | subscription_charge_day
    subscription       | "charge_day": 29                                       | subscription_charge_day
    subscription       | "payment_method": "cash"                               | subscription_method
    subscription       | "payment_method_source": "guess"                       | subscription_method_source
    subscription       | "cycle_count": -1                                      | subscription_cycles
    subscription       | "commitment_cycles": 0                                 | subscription_commitment
    invoice_item       | "pricing_source": "guess"                              | invoice_item_source
    invoice_item       | "amount_cents": 1                                      | invoice_item_table
    invoice_item       | "discount_percent": 21                                 | invoice_item_table
    invoice_item       | "amount_cents": null                                   | invoice_item_status
    invoice_item       | "pricing_status": "pending"                            | invoice_item_status
    invoice_item       | "pricing_source": "manual"                             | invoice_item_table
    charge_attempt     | "state": "lost", "gateway_invoice_id": null            | charge_attempt_state
    charge_attempt     | "state": "sending"                                     | charge_attempt_confirmed
    charge_attempt     | "amount_cents": 0                                      | charge_attempt_amount
    product_mirror     | "mirrored_at": null                                    | product_mirror_done
    test_clock         | "status": "advancing"                                  | test_clock_status
    account            | "mode": "live", "clock_offset": "1 s"                  | account_clock
    account            | "mode": "demo", "clock_offset": "0"                    | account_mode
    account            | "currency": "brl"                                      | account_currency
    account            | "clock_offset": "-1 s"                                 | account_clock
    account_counter    | "invoices_paid": -1                                    | account_counter_not_negative
    idempotency_key    | "answer": null                                         | idempotency_key_answered
    sandbox_charge     | "status": "lost"                                       | sandbox_charge_status
    sandbox_fault      | "times_left": -1                                       | sandbox_fault_times
""")


async def test_checks(world: World):
    """A row that means nothing cannot stand, whoever writes it. [D-28]"""
    await populate(world)
    async with connected(world.database_url, world.account_id) as connection:
        found = [
            (table, changed, await wall(connection, copy_into(table), f"{{{changed}}}"))
            for table, changed, _ in CHECKS
        ]
    assert found == CHECKS


# Rows that would refer to another account's row, and the key that refuses each; `fresh` ids keep other keys content.
FOREIGN = rows("""
    table          | refers to       | fresh                    | key
    plan_version   | plan_id         | plan_version_id          | plan_version_plan_fk
    plan_version   | subscription_id | plan_version_id          | plan_version_subscription_fk
    plan_item      | product_id      | position                 | plan_item_product_fk
    subscription   | plan_id         | subscription_id          | subscription_plan_fk
    subscription   | plan_version_id | subscription_id          | subscription_version_fk
    subscription   | customer_id     | subscription_id          | subscription_customer_fk
    subscription   | connection_id   | subscription_id          | subscription_connection_fk
    invoice_item   | invoice_id      | position                 | invoice_item_invoice_fk
    invoice_item   | product_id      | position                 | invoice_item_product_fk
    charge_attempt | invoice_id      | attempt                  | charge_attempt_invoice_fk
    product_mirror | connection_id   |                          | product_mirror_connection_fk
    product_mirror | product_id      |                          | product_mirror_product_fk
    sandbox_charge | connection_id   | charge_id                | sandbox_charge_connection_fk
    sandbox_fault  | connection_id   | sandbox_fault_id         | sandbox_fault_connection_fk
""")


async def test_no_row_refers_to_another_account(world: World):
    """Every foreign key leads with the account: another's row cannot be named at all. [spec 5.4]"""
    await populate(world)
    other = await world.another()
    theirs = await populate(other)
    async with connected(world.database_url, other.account_id) as connection:
        theirs["plan_version_id"] = str(
            await connection.fetchval("SELECT plan_version_id FROM plan_version LIMIT 1")
        )
    found: list[tuple[str, ...]] = []
    async with connected(world.database_url, world.account_id) as connection:
        for table, column, fresh, _ in FOREIGN:
            changed: dict[str, Any] = (
                {fresh: 7 if fresh in {"position", "attempt"} else str(uuid4())} if fresh else {}
            )
            changed |= {"version": 7} if table == "plan_version" else {}
            changed[column] = theirs[column]
            found.append(
                (table, column, fresh, await wall(connection, copy_into(table), json.dumps(changed)))
            )
    assert found == FOREIGN


FOREIGN_KEYS = """
    SELECT k.conname AS name, k.conrelid::regclass::text AS table, k.confrelid::regclass::text AS target,
        (SELECT array_agg(a.attname::text ORDER BY u.place) FROM unnest(k.conkey) WITH ORDINALITY u (number, place)
            JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = u.number) AS columns,
        (SELECT array_agg(a.attname::text ORDER BY u.place) FROM unnest(k.confkey) WITH ORDINALITY u (number, place)
            JOIN pg_attribute a ON a.attrelid = k.confrelid AND a.attnum = u.number) AS refers_to
    FROM pg_constraint k WHERE k.contype = 'f' AND k.connamespace = 'public'::regnamespace ORDER BY 1
"""


async def test_every_foreign_key_is_the_accounts_own(world: World):
    """No row of any table can be pointed at another account's row, by any key that there is. [spec 5.4]

    The triggers that keep rows as they are stand aside, so that the key itself has to refuse.
    """
    await populate(world)
    other = await world.another()
    await populate(other)
    async with (
        connected(world.database_url, world.account_id) as mine,
        connected(world.database_url, other.account_id) as theirs,
    ):
        keys = await mine.fetch(FOREIGN_KEYS)
        assert all(key["columns"][0] == key["refers_to"][0] == "account_id" for key in keys)
        pointing = [key for key in keys if len(key["columns"]) > 1]
        assert len(pointing) > 20
        for key in pointing:
            wanted = ", ".join(key["refers_to"][1:])
            row = await theirs.fetchrow(f"SELECT {wanted} FROM {key['target']} LIMIT 1")  # noqa: S608 - from the catalog
            if row is None or not any(isinstance(value, UUID) for value in row):
                continue  # a number that each account counts for itself names one's own row
            if not await mine.fetchval(f"SELECT count(*) FROM {key['table']}"):  # noqa: S608 - from the catalog
                continue  # that every table has rows is held by test_row_security.py
            places = ", ".join(f"{name} = ${place}" for place, name in enumerate(key["columns"][1:], 1))
            refused_by = {each["name"] for each in keys if each["target"] == key["table"]} | {key["name"]}
            await mine.execute(f"ALTER TABLE {key['table']} DISABLE TRIGGER USER")
            one = f"ctid = (SELECT min(ctid) FROM {key['table']})"  # noqa: S608 - from the catalog
            update = f"UPDATE {key['table']} SET {places} WHERE {one}"  # noqa: S608 - from the catalog
            assert await wall(mine, update, *row) in refused_by, key["name"]


async def test_the_same_id_in_two_accounts(world: World):
    """Keys lead with the account, so that ids of another account are neither taken nor found out. [spec 5.4]"""
    await populate(world)
    other = await world.another()
    await populate(other)
    async with connected(world.database_url, world.account_id) as connection:
        row = await connection.fetchval("SELECT to_jsonb(c) FROM customer c LIMIT 1")
    async with connected(world.database_url, other.account_id) as connection:
        mine = json.loads(row) | {"account_id": str(other.account_id)}
        insert = "INSERT INTO customer SELECT r.* FROM jsonb_populate_record(NULL::customer, $1::jsonb) AS r"
        assert await wall(connection, insert, json.dumps(mine)) == "yes"


UPDATE = "UPDATE TABLE SET CHANGE"


@pytest.mark.parametrize(
    ("table", "change", "wall_name"),
    rows("""
        table          | change                  | wall
        event          | data = '{}'             | row_kept
        event          | sequence = sequence + 9 | row_kept
        plan_version   | period_months = 12      | row_kept
        plan_item      | position = 7            | row_kept
        plan_discount  | percent = 1             | row_kept
        invoice_item   | amount_cents = 0        | invoice_item_frozen
        invoice_item   | description = 'cheaper' | invoice_item_frozen
        invoice_item   | product_name = 'Other'  | invoice_item_frozen
    """),
    ids=lambda cell: cell,
)
async def test_what_never_changes(world: World, table, change, wall_name):
    """Events, plan versions and closed items are kept as they are. [D-28, D-19, D-37, spec 2.5 snapshot]"""
    await populate(world)
    priced = "WHERE pricing_status = 'priced'" if table == "invoice_item" else ""
    async with connected(world.database_url, world.account_id) as connection:
        update = UPDATE.replace("TABLE", table).replace("CHANGE", f"{change} {priced}")
        assert await wall(connection, update) == wall_name


async def test_a_pending_item(world: World):
    """It closes once, by a price or by skip; the rest of it is frozen already. [D-28, spec 2.5 snapshot]"""
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
        assert await wall(connection, rename) == "invoice_item_frozen"
        for close in (price, skip):
            transaction = connection.transaction()
            await transaction.start()
            assert await connection.execute(close) == "UPDATE 1"
            assert await wall(connection, reopen) == "invoice_item_frozen"
            await transaction.rollback()


async def test_what_is_never_deleted(world: World):
    """Neither what was billed, told or agreed, nor what it stands on. [D-28, spec 3.1 never deleted]"""
    await populate(world)
    kept = (
        "event",
        "plan_version",
        "plan_item",
        "plan_discount",
        "invoice",
        "invoice_item",
        "charge_attempt",
    )
    async with connected(world.database_url, world.account_id) as connection:
        assert set(kept) <= set(await tables(connection))
        for table in kept:
            assert (table, await wall(connection, f"DELETE FROM {table}")) == (table, "row_kept")  # noqa: S608 - above
        for table in ("account", "product", "plan", "customer", "subscription", "gateway_connection"):
            with pytest.raises(asyncpg.ForeignKeyViolationError):
                await connection.execute(f"DELETE FROM {table}")  # noqa: S608 - above
