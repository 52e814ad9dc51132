"""PostgreSQL and `invoice_moves` allow exactly the moves that tests/support/invoice_table.py lists."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from fatura.domain.errors import EngineError
from fatura.domain.invoice_states import ENTRY_FACTS, Fact
from fatura.usecases.billing import invoice_moves
from fatura.usecases.billing.invoice_moves import Report
from fatura.usecases.transaction import Work, in_transaction, load_account
from fatura.views.samples import story as samples
from tests.support import invoice_table
from tests.support.populated import connected, refused_by
from tests.support.world import World, rows

STATES: tuple[str, ...] = invoice_table.STATES
WAYS: dict[str, tuple[str, ...]] = {
    "draft": (),
    "awaiting_value": ("awaiting_value",),
    "ready": ("ready",),
    "issued": ("ready", "issued"),
    "paid": ("ready", "issued", "paid"),
    "overdue": ("ready", "issued", "overdue"),
    "canceled": ("ready", "issued", "canceled"),
}
"""For each state, the moves by which a draft invoice reaches this state."""

MOVE: dict[str, str] = {
    "draft": "UPDATE invoice SET status = 'draft' WHERE invoice_id = $1",
    "awaiting_value": "UPDATE invoice SET status = 'awaiting_value' WHERE invoice_id = $1",
    "ready": """
        UPDATE invoice SET status = 'ready', total_cents = coalesce(total_cents, 1000) WHERE invoice_id = $1
    """,
    "issued": """
        UPDATE invoice SET status = 'issued', gateway_invoice_id = coalesce(gateway_invoice_id, 'ch_' || invoice_id),
            issued_at = coalesce(issued_at, now()), charge_due_date = due_date WHERE invoice_id = $1
    """,
    "paid": """
        UPDATE invoice SET status = 'paid', paid_at = coalesce(paid_at, now()),
            total_cents = coalesce(total_cents, 0) WHERE invoice_id = $1
    """,
    "overdue": "UPDATE invoice SET status = 'overdue' WHERE invoice_id = $1",
    "canceled": """
        UPDATE invoice SET status = 'canceled', canceled_at = coalesce(canceled_at, now()) WHERE invoice_id = $1
    """,
}
"""For each state, the statement that moves an invoice to this state and sets the columns that the state requires."""


@pytest.fixture
async def engine_role(world: World) -> "AsyncIterator[asyncpg.Connection[Any]]":
    """A connection with the engine's database role, and with `app.account` set to the account of `world`."""
    async with connected(world.database_url, world.account_id) as connection:
        yield connection


async def drafts(world: World, count: int = 1) -> list[UUID]:
    """Generate draft invoices with one pending item each, and return their ids."""
    plan = await world.plan(await world.variable_product())
    for _ in range(count):
        await world.enroll(plan)
    await world.run("generation")
    return [UUID(invoice["id"]) for invoice in await world.invoices()]


async def bring(connection: "asyncpg.Connection[Any]", invoice_id: UUID, state: str) -> None:
    """Move a draft to a state by allowed moves."""
    for step in WAYS[state]:
        assert await connection.execute(MOVE[step], invoice_id) == "UPDATE 1"
    assert await connection.fetchval("SELECT status FROM invoice WHERE invoice_id = $1", invoice_id) == state


async def in_every_state(world: World, connection: "asyncpg.Connection[Any]") -> dict[str, UUID]:
    found = dict(zip(STATES, await drafts(world, len(STATES)), strict=True))
    for state, invoice_id in found.items():
        await bring(connection, invoice_id, state)
    return found


async def test_postgresql_allows_only_the_moves_of_the_table(world: World, engine_role):
    """[D-28]"""
    found = {
        state: {to: await refused_by(engine_role, MOVE[to], invoice_id) for to in STATES}
        for state, invoice_id in (await in_every_state(world, engine_role)).items()
    }
    said = {"yes": "yes", "no": "invoice_move"}
    assert found == {
        state: {to: said[may] for to, may in cells.items()} for state, cells in invoice_table.MOVES.items()
    }


async def test_invoices_are_inserted_as_draft_ready_or_paid(world: World, engine_role):
    """[D-24, D-28]"""
    birth = """
        INSERT INTO invoice (account_id, invoice_id, subscription_id, plan_version_id, connection_id, cycle, status,
            period_start, period_end, due_date, payment_method, total_cents, currency, paid_at, created_at)
        SELECT account_id, $2, subscription_id, plan_version_id, connection_id, 2, status, period_start,
            period_end, due_date, payment_method, CASE WHEN status = 'paid' THEN 0 ELSE total_cents END, currency,
            paid_at, created_at
        FROM invoice WHERE invoice_id = $1
    """
    found = {
        state: await refused_by(engine_role, birth, invoice_id, uuid4())
        for state, invoice_id in (await in_every_state(world, engine_role)).items()
    }
    assert found == {
        state: "yes" if state in invoice_table.INITIAL_STATES else "invoice_initial_state" for state in STATES
    }


# The last column names the constraint that refuses the change, or contains `yes` if PostgreSQL accepts the change.
CHANGES = rows("""
    state          | change                                     | refused by
    issued         | account_id = gen_random_uuid()             | invoice_frozen
    issued         | invoice_id = gen_random_uuid()             | invoice_frozen
    issued         | subscription_id = gen_random_uuid()        | invoice_frozen
    issued         | connection_id = gen_random_uuid()          | invoice_frozen
    issued         | plan_version_id = gen_random_uuid()        | invoice_frozen
    issued         | cycle = cycle + 1                          | invoice_frozen
    issued         | period_start = period_start - 1            | invoice_frozen
    issued         | period_end = period_end + 1                | invoice_frozen
    issued         | due_date = due_date + 1                    | invoice_frozen
    issued         | payment_method = 'card'                    | invoice_frozen
    issued         | installments = 2                           | invoice_frozen
    issued         | created_at = now()                         | invoice_frozen
    issued         | currency = 'USD'                           | invoice_frozen
    issued         | total_cents = total_cents + 1              | invoice_frozen
    issued         | gateway_invoice_id = 'ch_other'            | invoice_frozen
    issued         | issued_at = issued_at + interval '1 s'     | invoice_frozen
    paid           | paid_at = paid_at + interval '1 s'         | invoice_frozen
    paid           | total_cents = 0                            | invoice_frozen
    canceled       | gateway_invoice_id = NULL                  | invoice_frozen
    canceled       | canceled_at = canceled_at + interval '1 s' | invoice_frozen
    canceled       | canceled_at = NULL                         | invoice_frozen
    paid           | canceled_at = now()                        | invoice_canceled_at
    draft          | status = 'canceled'                        | invoice_canceled_at
    ready          | issue_error_code = 'x'                     | invoice_issue_error
    ready          | issue_error_detail = 'x', issue_error_at = now() | invoice_issue_error
    ready          | ERROR, next_attempt_at = now()             | invoice_issue_error
    ready          | ERROR, next_attempt_at = NULL              | yes
    issued         | ERROR, next_attempt_at = NULL              | invoice_issue_error
    draft          | due_date = due_date + 1                    | invoice_frozen
    draft          | total_cents = 1                            | invoice_total
    awaiting_value | total_cents = 1                            | invoice_total
    awaiting_value | gateway_invoice_id = 'ch', issued_at = now(), charge_due_date = due_date | invoice_charge
    issued         | paid_at = now()                            | invoice_paid_at
    overdue        | paid_at = now()                            | invoice_paid_at
    ready          | issued_at = now()                          | invoice_issued_at
    draft          | status = 'ready'                           | invoice_total
    draft          | status = 'ready', total_cents = 0          | invoice_total
    draft          | status = 'paid', total_cents = 0           | invoice_paid_at
    draft          | status = 'paid', total_cents = 0, paid_at = now(), GATEWAY | invoice_charge
    draft          | status = 'paid', total_cents = 1, paid_at = now() | yes
    ready          | status = 'issued'                          | invoice_charge
    issued         | status = 'paid'                            | invoice_paid_at
    issued         | next_attempt_at = now()                    | yes
    paid           | refunded_at = now()                        | yes
    paid           | disputed_at = now()                        | yes
""")
UPDATE = "UPDATE invoice SET CHANGE WHERE invoice_id = $1"
GATEWAY = "gateway_invoice_id = 'ch', issued_at = now(), charge_due_date = due_date"
ERROR = "issue_error_code = 'x', issue_error_detail = 'x', issue_error_at = now()"


async def test_settled_columns_cannot_change(world: World, engine_role):
    """[D-28, D-9]"""
    invoices = await in_every_state(world, engine_role)
    found: list[tuple[str, ...]] = []
    for state, change, _ in CHANGES:
        update = UPDATE.replace("CHANGE", change.replace("ERROR", ERROR).replace("GATEWAY", GATEWAY))
        found.append((state, change, await refused_by(engine_role, update, invoices[state])))
    assert found == CHANGES


async def test_a_cycle_has_one_invoice(world: World, engine_role):
    """[D-28]"""
    [invoice_id] = await drafts(world)
    again = """
        INSERT INTO invoice (account_id, invoice_id, subscription_id, plan_version_id, connection_id, cycle, status,
            period_start, period_end, due_date, payment_method, currency, created_at)
        SELECT account_id, $2, subscription_id, plan_version_id, connection_id, cycle, status, period_start,
            period_end, due_date, payment_method, currency, created_at FROM invoice WHERE invoice_id = $1
    """
    assert await refused_by(engine_role, again, invoice_id, uuid4()) == "invoice_one_per_cycle"


async def test_a_charge_belongs_to_one_invoice(world: World, engine_role):
    """[D-28]"""
    one, other = await drafts(world, 2)
    await bring(engine_role, one, "issued")
    await bring(engine_role, other, "ready")
    steal = """
        UPDATE invoice SET status = 'issued', issued_at = now(), charge_due_date = due_date,
            gateway_invoice_id = 'ch_' || $2::text WHERE invoice_id = $1
    """
    assert await refused_by(engine_role, steal, other, str(one)) == "invoice_charge_once"


COUNT = """
    UPDATE account_counter SET invoices_STATE = invoices_STATE + 1;
    UPDATE account_counter SET invoices_draft = invoices_draft - 1
"""
"""Moves one invoice from `draft` to STATE in the counters. The statements in MOVE do not change the counters."""


async def reported(world: World, invoice_id: UUID, fact: Fact) -> str:
    """Report a fact. Return the new state, `stays`, `-`, or the HTTP status of the refusal.

    `stays` means that the invoice changed, but not its state. `-` means that nothing changed.
    """
    before = await world.get(f"/v1/invoices/{invoice_id}")
    entry = replace(samples.entry(), invoice_id=invoice_id)

    async def effect(work: Work) -> set[UUID]:
        report = Report(
            invoice_id,
            fact,
            entry=entry if fact in ENTRY_FACTS else None,
            gateway_invoice_id=f"ch_{invoice_id}",
            charge_due_date=work.today,
            poll_at=work.now,
        )
        return await invoice_moves.report(work, [report])

    account = await load_account(world.deps, world.account_id)
    try:
        moved = await in_transaction(world.deps, account, effect)
    except EngineError as refusal:
        return str(refusal.problem.status)
    status = (await world.get(f"/v1/invoices/{invoice_id}")).json["status"]
    if not moved:
        assert status == before.json["status"]
        return "-"
    return "stays" if status == before.json["status"] else status


@pytest.mark.faults
@pytest.mark.parametrize("state", STATES)
async def test_every_fact_has_the_effect_that_the_table_lists(world: World, engine_role, state):
    """[D-28, spec 6.2]"""
    facts = [fact for fact in invoice_table.FACTS if fact != "values_closed"]
    for fact, invoice_id in zip(facts, await drafts(world, len(facts)), strict=True):
        await bring(engine_role, invoice_id, state)
        await engine_role.execute(COUNT.replace("STATE", state))
        emitted = len(await world.events())
        outcome = await reported(world, invoice_id, Fact(fact))
        assert (fact, outcome) == (fact, invoice_table.OUTCOMES[state, fact, 1000])
        events = (await world.events())[emitted:]
        if (fact, outcome) not in invoice_table.EFFECTS:
            assert events == []
            continue
        tells, stamps = invoice_table.EFFECTS[fact, outcome]
        assert [event["type"] for event in events] == [tells]
        shown = (await world.get(f"/v1/invoices/{invoice_id}")).json
        assert (
            events[0]["data"]["invoice"].items()
            >= {
                key: shown[key]
                for key in ("id", "status", "paidAt", "refundedAt", "disputedAt", "canceledAt", "customer")
            }.items()
        )
        [row] = await engine_role.fetch("SELECT * FROM invoice WHERE invoice_id = $1", invoice_id)
        assert all(row[stamp] is not None for stamp in stamps)
    assert not {"list_totals", "event_numbers_without_gaps"} & set(await world.broken())
