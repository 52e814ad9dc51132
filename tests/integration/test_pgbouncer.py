"""The engine behind pgbouncer in transaction mode: each transaction may use another server connection."""

import asyncio
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from fatura.store.vault import new_key
from tests.faults.stack import Client, Stack, open_stack
from tests.support.fatura_processes import environment, run
from tests.support.pgbouncer_process import PROGRAM, SERVER_CONNECTIONS, pgbouncer

pytestmark = [
    pytest.mark.skipif(PROGRAM is None, reason="pgbouncer is not installed (`apt-get install pgbouncer`)"),
    pytest.mark.timeout(300),
]
MERCHANTS = 4


@pytest.mark.faults
async def test_merchants_are_billed_through_a_pooler(database_url: str, tmp_path: Path):
    """[D-47]"""
    with (
        pgbouncer(database_url, tmp_path) as pooler_url,
        open_stack(database_url, tmp_path, ring=new_key(), FATURA_POOLER_URL=pooler_url) as stack,
    ):
        billed = await asyncio.gather(*(_bill(stack, number) for number in range(MERCHANTS)))
        assert [len(of_one) for of_one in billed] == [2] * MERCHANTS
        invoices = [invoice for of_one in billed for invoice in of_one]
        assert len({invoice["subscriptionId"] for invoice in invoices}) == MERCHANTS
        assert {(invoice["status"], invoice["totalCents"]) for invoice in invoices} == {("paid", 9990)}
        await _assert_shared(database_url, pooler_url)
        checked = await asyncio.to_thread(run, "check", env=stack.environment())
    assert (checked.returncode, checked.stdout) == (
        0,
        f"clean: every invariant holds in {MERCHANTS} account(s)\n",
    )


async def _bill(stack: Stack, number: int) -> list[Any]:
    """Subscribe a customer, advance the test clock by 40 days, and return the invoices."""
    client = Client(stack, (await stack.open_account()).api_key)
    try:
        pricing = {"mode": "fixed", "monthlyPriceCents": 9990}
        product = (await client.ask("POST", "/v1/products", {"name": "Gym", "pricing": pricing})).json()
        terms = {"name": "Plan", "periodMonths": 1, "defaultPaymentMethod": "pix"}
        items = [{"productId": product["id"], "discounts": []}]
        plan = (await client.ask("POST", "/v1/plans", {**terms, "items": items})).json()
        customer = {"externalRef": f"customer-{number}", "name": "Ana", "email": "ana@example.com"}
        bound = await client.ask("POST", "/v1/subscriptions", {"planId": plan["id"], "customer": customer})
        assert bound.status_code == 201, bound.text
        now = datetime.fromisoformat((await client.ask("GET", "/v1/test-clock")).json()["now"])
        target = (now + timedelta(days=40)).date().isoformat()
        # after a lost answer, a request with `to` may be repeated, but one with `days` may not
        advanced = await client.ask("POST", "/v1/test-clock/advance", {"to": target})
        assert advanced.status_code in {200, 409}, advanced.text
        async with asyncio.timeout(200):
            await _clock_is_ready(client)
        return (await client.ask("GET", "/v1/invoices")).json()["data"]
    finally:
        await client.close()


async def _clock_is_ready(client: Client) -> None:
    while True:
        if (await client.ask("GET", "/v1/test-clock")).json()["status"] == "ready":
            return
        await asyncio.sleep(0.2)


async def _assert_shared(database_url: str, pooler_url: str) -> None:
    """Check that the pooler opened few connections to PostgreSQL and left `app.account` unset in each.

    LISTEN must have a connection of its own, and so must the health checks of each of the three processes.
    """
    direct = await asyncpg.connect(database_url)
    pooled = [await asyncpg.connect(pooler_url, statement_cache_size=0) for _ in range(SERVER_CONNECTIONS)]
    try:
        for connection in pooled:  # each open transaction occupies a server connection
            await connection.execute("BEGIN")
            assert not await connection.fetchval("SELECT current_setting('app.account', true)")
            assert await connection.fetchval("SHOW lock_timeout") == "0"
        names = {row["name"]: row["sessions"] for row in await direct.fetch(_SESSIONS)}
        assert (names.pop("fatura listen"), names.pop("fatura ping")) == (1, 3)
        assert sum(names.values()) <= SERVER_CONNECTIONS + 1, names  # one more for the connection `direct`
    finally:
        for connection in [*pooled, direct]:
            await connection.close()


_SESSIONS = """
SELECT application_name AS name, count(*) AS sessions FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend' GROUP BY 1
"""


@pytest.mark.faults
async def test_migrations_refuse_a_pooler(database_url: str, tmp_path: Path):
    """An advisory lock belongs to one server connection, but pgbouncer uses several. [D-47]"""
    with pgbouncer(database_url, tmp_path) as pooler_url:
        refused = await asyncio.to_thread(run, "migrate", env=environment(pooler_url))
    assert refused.returncode == 1
    assert "name PostgreSQL itself in FATURA_DATABASE_URL" in refused.stderr
