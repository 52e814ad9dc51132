"""Query plans of a round of polls: each batch of the round reads few of the account's invoices (D-190)."""

from dataclasses import replace

import asyncpg
import pytest

from fatura.store.db import connect
from fatura.usecases.connections import poll_rounds
from fatura.usecases.transaction import load_account
from tests.support.crowd import SUBSCRIBE_MANY
from tests.support.explaining import PLANS, Explaining, nodes
from tests.support.webhook_steps import hook, issued_with_webhooks
from tests.support.world import Json, World

INVOICES = 2_000
BATCH = 100
ISSUE = """
    UPDATE invoice SET status = CASE WHEN hashtext(invoice_id::text) % 2 = 0 THEN 'issued' ELSE 'overdue' END,
        gateway_invoice_id = invoice_id::text, issued_at = now(), charge_due_date = due_date,
        next_attempt_at = '2090-01-01'
    WHERE status = 'ready'
"""


def read(plan: Json) -> int:
    """Return how many rows the scans of a plan have read."""
    return sum(
        node["Actual Loops"] * (node["Actual Rows"] + node.get("Rows Removed by Filter", 0))
        for node in nodes(plan)
        if "Scan" in node["Node Type"]
    )


async def test_a_batch_of_a_round_reads_few_invoices(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Early and late batches read about the same number of rows. [D-190]"""
    monkeypatch.setattr(poll_rounds, "BATCH", BATCH)
    await issued_with_webhooks(world)
    plan = await world.plan()
    await world.sql(SUBSCRIBE_MANY, world.account_id, plan["id"], INVOICES)
    await world.run("generation")
    owner = await asyncpg.connect(world.database_url.replace("://fatura@", "://postgres@"))
    await owner.execute("SET session_replication_role = replica")
    await owner.execute(ISSUE)
    await owner.close()
    assert (await (await hook(world, None)).send(world)).status == 200

    db = await connect(world.database_url, max_connections=2, connection_class=Explaining)
    account = await load_account(world.deps, world.account_id)
    PLANS.clear()
    batches = 1
    while await poll_rounds.advance(replace(world.deps, db=db), account):
        batches += 1
    await db.close()

    assert batches == INVOICES // BATCH + 1
    assert len(PLANS) >= batches
    assert max(map(read, PLANS)) <= 4 * BATCH
