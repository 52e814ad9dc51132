"""Steps of the retention scenarios: make rows old, and delete them."""

from datetime import timedelta

import asyncpg

from tests.support.databases import as_superuser
from tests.support.world import Merchant, World

AGE = (
    "UPDATE event SET stored_at = stored_at - $2::interval WHERE account_id = $1 AND sequence <= $3",
    "UPDATE delivery_attempt SET stored_at = stored_at - $2::interval WHERE account_id = $1 AND sequence <= $3",
    "UPDATE audit_entry SET stored_at = stored_at - $2::interval WHERE account_id = $1 AND sequence <= $3",
    "UPDATE price_pull SET closed_at = closed_at - $2::interval WHERE account_id = $1 AND $3::bigint > 0",
    "UPDATE gateway_webhook SET received_at = received_at - $2::interval WHERE account_id = $1 AND $3::bigint > 0",
    "UPDATE provider_call SET stored_at = stored_at - $2::interval WHERE account_id = $1 AND $3::bigint > 0",
    "UPDATE retention SET kept_from = kept_from - $2::interval WHERE account_id = $1 AND $3::bigint > 0",
)
"""Statements that move the times of rows into the past. `age` disables the triggers that refuse such changes."""
ALL = 2**40
EVENT_DAYS, DELIVERY_DAYS, PRICE_CALL_DAYS, AUDIT_DAYS, WEBHOOK_DAYS, CALL_DAYS = 1827, 90, 400, 1827, 90, 400
"""The defaults of the settings FATURA_RETENTION_*."""


async def age(
    world: World, *, days: int, to: int = ALL, merchant: Merchant | None = None, plus: timedelta = timedelta()
) -> None:
    """Make rows older: those without a number, and the events, attempts and entries up to number `to`."""
    account_id = (merchant or world).account_id
    connection = await asyncpg.connect(as_superuser(world.database_url))
    try:
        await connection.execute("SET session_replication_role = replica")
        for statement in AGE:
            await connection.execute(statement, account_id, timedelta(days=days) + plus, to)
    finally:
        await connection.close()


async def count(world: World, table: str) -> int:
    return (await world.sql(f"SELECT count(*) FROM {table}"))[0][0]  # noqa: S608 - names of our tables
