"""An account with a row in every table, for tests with hand-written SQL."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import asyncpg

from fatura.store.charging import late_charge_checks
from fatura.store.migrations.distribute import use_plain_policies
from fatura.store.restore import lost_invoices
from fatura.store.restore.lost_invoices import LostInvoice
from tests.support.world import Json, Merchant, item

Connection = Any


async def populate(merchant: Merchant) -> dict[str, Json]:
    """Create at least one row in every table. Return the ids of the main rows by column name."""
    await merchant.set_up_gateway(productCatalog=True)
    nobody_listens = {"url": "http://127.0.0.1:1/"}
    assert (await merchant.put("/v1/integration/webhook", nobody_listens)).status == 200
    product = await merchant.product()
    plan = await merchant.plan(item(product, (20, 1, 3)), defaultPaymentMethod="card", maxInstallments=3)
    subscription = await merchant.enroll(plan)
    connection_id = subscription["gatewayConnectionId"]
    fault = {"connectionId": connection_id, "operation": "list_charges", "fault": "server_error", "times": 1}
    assert (await merchant.post("/v1/sandbox/faults", fault)).status == 201
    await merchant.run()
    await merchant.enroll(await merchant.plan(item(await merchant.variable_product())))
    await merchant.run()
    free = await merchant.product(0)  # a free invoice keeps its first status, so tests can copy it
    await merchant.enroll(await merchant.plan(item(free)))
    await merchant.run()
    [invoice] = await merchant.invoices(subscription)
    assert invoice["status"] == "issued"
    async with merchant.deps.db.transaction(merchant.account_id) as tx:
        far_ahead = datetime(2090, 1, 1, tzinfo=UTC)
        await late_charge_checks.plan(tx, UUID(invoice["id"]), 1, next_check_at=far_ahead)
        lost = LostInvoice(
            subscription_id=UUID(subscription["id"]),
            cycle=99,
            invoice_id=uuid4(),
            attempt=1,
            amount_cents=1,
            charge_due_date=None,
            charge_ids=["sbx_lost"],
        )
        await lost_invoices.keep(tx, lost)
    return {
        "product_id": product["id"],
        "plan_id": plan["id"],
        "subscription_id": subscription["id"],
        "customer_id": subscription["customer"]["id"],
        "connection_id": connection_id,
        "invoice_id": invoice["id"],
    }


@asynccontextmanager
async def connected(url: str, account_id: object = "") -> AsyncGenerator[Connection]:
    """Open a connection as the engine's role, with `app.account` set to an account or empty."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(f"SET app.account = '{account_id}'")
        yield connection
    finally:
        await connection.close()


async def tables(connection: Connection) -> list[str]:
    """Return the names of the tables that have an account_id."""
    found = await connection.fetch(
        """
        SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
        WHERE c.relkind = 'r' AND a.attname = 'account_id' AND c.relnamespace = 'public'::regnamespace ORDER BY 1
        """
    )
    return [row["relname"] for row in found]


async def refused_by(connection: Connection, statement: str, *values: object) -> str:
    """Run a statement and roll it back. Return the violated constraint or the SQLSTATE, or "yes" if it succeeded."""
    transaction = connection.transaction()
    await transaction.start()
    try:
        await connection.execute(statement, *values)
    except asyncpg.PostgresError as error:
        return error.constraint_name or error.sqlstate or type(error).__name__
    else:
        return "yes"
    finally:
        await transaction.rollback()


async def with_plain_policies(url: str) -> None:
    """Replace the row policies of all tables by those used with Citus."""
    async with connected(url) as connection:
        for table in await tables(connection):
            await use_plain_policies(connection, table)
