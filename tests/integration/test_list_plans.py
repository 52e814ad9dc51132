"""Query plans of lists: filters use indexes, and a page reads only customers that it shows (D-16, D-130)."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import date

import pytest
import pytest_asyncio

from fatura.domain.filters import CustomerFilter, InvoiceFilter
from fatura.store.db import connect
from fatura.usecases.billing import invoices
from fatura.usecases.deps import Deps
from fatura.usecases.paging import Page
from fatura.usecases.subscriptions import customers
from fatura.usecases.transaction import in_transaction, load_account
from tests.conftest import fresh_database
from tests.support.crowd import SUBSCRIBE_MANY
from tests.support.explaining import PLANS, Explaining, nodes
from tests.support.world import World, open_world

pytestmark = pytest.mark.asyncio(loop_scope="module")

SUBSCRIPTIONS = 3_000
PAGE = Page(2, 25)
NAME_AND_EMAIL = """
    UPDATE customer c SET name = n.name, name_key = lower(n.name), email = n.email, email_key = n.email,
        document_sealed = n.hash, document_hash = n.hash
    FROM (
        SELECT x.customer_id, 'Customer ' || x.external_ref AS name, x.external_ref || '@example.com' AS email,
            convert_to(x.external_ref, 'UTF8') AS hash
        FROM customer x
    ) n
    WHERE c.customer_id = n.customer_id
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def billed(server_url: str) -> AsyncIterator[World]:
    """An account with SUBSCRIPTIONS customers and invoices, which all tests of this file share."""
    async with fresh_database(server_url) as url, open_world(url) as world:
        plan = await world.plan(await world.product(100))
        await world.sql(SUBSCRIBE_MANY, world.account_id, plan["id"], SUBSCRIPTIONS)
        await world.sql(NAME_AND_EMAIL)
        assert await world.run("generation") == SUBSCRIPTIONS
        await world.sql("ANALYZE customer, subscription, invoice")
        yield world


@pytest_asyncio.fixture(loop_scope="module")
async def explaining(billed: World) -> AsyncIterator[Deps]:
    db = await connect(billed.database_url, max_connections=2, connection_class=Explaining)
    yield replace(billed.deps, db=db)
    await db.close()


async def test_each_filter_of_customers_uses_its_index(
    billed: World, explaining: Deps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With Row Level Security, PostgreSQL uses indexes only for filters with leakproof operators. [D-130]"""
    account = await load_account(billed.deps, billed.account_id)
    monkeypatch.setattr(customers, "_hashes", lambda _work, document: [b"other", document.encode()])
    for wanted, index in [
        (CustomerFilter(name="Customer bulk-77"), "customer_by_name"),
        (CustomerFilter(email="BULK-77@example.com"), "customer_by_email"),
        (CustomerFilter(document="bulk-77"), "customer_by_document"),
    ]:
        PLANS.clear()
        page = await in_transaction(explaining, account, customers.read_page, Page(1, 25), wanted)
        assert page.pagination.total_records == (11 if wanted.name else 1)
        assert len(page.data) == page.pagination.total_records
        # The last query reads the found customers by id. The two queries before it count and find them.
        for plan in PLANS[-3:-1]:
            assert index in {node.get("Index Name") for node in nodes(plan)}, plan


async def test_a_page_of_invoices_reads_the_customers_that_it_shows(billed: World, explaining: Deps) -> None:
    """[D-129, D-16]"""
    account = await load_account(billed.deps, billed.account_id)
    due = date.fromisoformat((await billed.get("/v1/invoices?pageSize=1")).json["data"][0]["dueDate"])
    for wanted, page in [
        (InvoiceFilter(), PAGE),
        (InvoiceFilter(), Page(SUBSCRIPTIONS // PAGE.size - 1, PAGE.size)),
        (InvoiceFilter(due_from=due), PAGE),
        (InvoiceFilter(customer_external_ref="bulk-77"), Page(1, 25)),
    ]:
        PLANS.clear()
        shown = await in_transaction(explaining, account, invoices.read_page, page, wanted)
        assert shown.data
        read = [
            (node["Relation Name"], node["Actual Rows"] * node["Actual Loops"])
            for node in nodes(PLANS[-1])
            if node.get("Relation Name") in {"customer", "subscription"}
        ]
        assert len(read) >= 2
        assert all(count <= page.size for _, count in read), (wanted, page, read)
