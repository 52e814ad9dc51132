"""The plans of lists: a filter uses its index, and a page reads no more customers than it shows (D-16, D-130)."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import date

import pytest

from fatura.domain.filters import CustomerFilter, InvoiceFilter
from fatura.store.db import connect
from fatura.usecases.billing import invoices
from fatura.usecases.deps import Deps
from fatura.usecases.paging import Page
from fatura.usecases.subscriptions import customers
from fatura.usecases.transaction import in_transaction, load_account
from tests.support.crowd import SUBSCRIBE_MANY
from tests.support.explaining import PLANS, Explaining, nodes
from tests.support.world import World

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


@asynccontextmanager
async def explaining(world: World) -> AsyncGenerator[Deps]:
    """Fill the lists, and yield dependencies whose connections record the plan of every query."""
    plan = await world.plan(await world.product(100))
    await world.sql(SUBSCRIBE_MANY, world.account_id, plan["id"], SUBSCRIPTIONS)
    await world.sql(NAME_AND_EMAIL)
    assert await world.run("generation") == SUBSCRIPTIONS
    await world.sql("ANALYZE customer, subscription, invoice")
    db = await connect(world.database_url, max_connections=2, connection_class=Explaining)
    PLANS.clear()
    try:
        yield replace(world.deps, db=db)
    finally:
        await db.close()


async def test_each_filter_of_customers_uses_its_index(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under Row Level Security, PostgreSQL uses an index only for leakproof operators. [D-130]"""
    async with explaining(world) as deps:
        account = await load_account(world.deps, world.account_id)
        monkeypatch.setattr(customers, "_hashes", lambda _work, document: [b"other", document.encode()])
        for wanted, index in [
            (CustomerFilter(name="Customer bulk-77"), "customer_by_name"),
            (CustomerFilter(email="BULK-77@example.com"), "customer_by_email"),
            (CustomerFilter(document="bulk-77"), "customer_by_document"),
        ]:
            PLANS.clear()
            page = await in_transaction(deps, account, customers.read_page, Page(1, 25), wanted)
            assert page.pagination.total_records == (11 if wanted.name else 1)
            assert len(page.data) == page.pagination.total_records
            for plan in PLANS[-3:-1]:  # the last query reads the customers of the page
                assert index in {node.get("Index Name") for node in nodes(plan)}, plan


async def test_a_page_of_invoices_reads_the_customers_that_it_shows(world: World) -> None:
    """[D-129, D-16]"""
    async with explaining(world) as deps:
        account = await load_account(world.deps, world.account_id)
        due = date.fromisoformat((await world.get("/v1/invoices?pageSize=1")).json["data"][0]["dueDate"])
        for wanted, page in [
            (InvoiceFilter(), PAGE),
            (InvoiceFilter(), Page(SUBSCRIPTIONS // PAGE.size - 1, PAGE.size)),
            (InvoiceFilter(due_from=due), PAGE),
            (InvoiceFilter(customer_external_ref="bulk-77"), Page(1, 25)),
        ]:
            PLANS.clear()
            shown = await in_transaction(deps, account, invoices.read_page, page, wanted)
            assert shown.data
            read = [
                (node["Relation Name"], node["Actual Rows"] * node["Actual Loops"])
                for node in nodes(PLANS[-1])
                if node.get("Relation Name") in {"customer", "subscription"}
            ]
            assert len(read) >= 2
            assert all(count <= page.size for _, count in read), (wanted, page, read)
