"""While an account is suspended, Fatura generates no invoice and sends no charge, refund or event (D-242, D-244)."""

import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import pairwise
from uuid import UUID

import pytest

from fatura.domain.account import Account
from fatura.usecases.accounts import suspension
from fatura.usecases.catalog import mirroring, propagation
from fatura.usecases.deps import Deps
from fatura.usecases.pricing import price_pull
from fatura.usecases.restore import comparison
from fatura.usecases.sandbox import test_clock
from fatura.usecases.subscriptions import connection_moves
from fatura.usecases.transaction import in_transaction, load_account
from fatura.usecases.webhooks import delivery
from fatura.workers.lanes import LANES
from tests.support.expect import problem
from tests.support.operator import OPERATOR
from tests.support.receiver import open_receiver
from tests.support.sandbox_steps import (
    charges,
    connection_id,
    issued_invoice,
    move,
    pay_silently,
    queue_fault,
    read,
    ready_invoice,
    skip_days,
)
from tests.support.webhook_steps import hook, issued_with_webhooks
from tests.support.world import Json, Merchant, World, columns, rows, scrape

DAY = timedelta(hours=24)


async def suspend(merchant: Merchant) -> datetime:
    return await suspension.suspend(merchant.deps, merchant.account_id, asked_by=OPERATOR)


async def resume(merchant: Merchant) -> bool:
    return await suspension.resume(merchant.deps, merchant.account_id, asked_by=OPERATOR)


async def due(world: World) -> set[str]:
    """Return the names of the lanes in which the account has due work."""
    return {
        lane.name
        for lane in LANES
        if world.account_id in {each.account_id for each in await lane.due(world.deps)}
    }


async def jump(world: World, **duration: float) -> None:
    """Move the account's clock, without running lanes."""
    await world.sql("UPDATE account SET clock_offset = clock_offset + $1::interval", timedelta(**duration))


def gaps(instants: Sequence[str]) -> list[timedelta]:
    return [
        later - earlier
        for earlier, later in pairwise(sorted(datetime.fromisoformat(each) for each in instants))
    ]


async def charged_at(world: World) -> list[str]:
    """Return the times, on the account's clock, at which charges were sent to the gateway."""
    sent = await world.sql("SELECT sent_at FROM charge WHERE stage <> 'planned' ORDER BY sent_at")
    return [each["sent_at"].isoformat() for each in sent]


async def stored_events(world: World) -> int:
    """Count the events in the database, because the API refuses the keys of a suspended account."""
    return (await world.sql("SELECT count(*) FROM event"))[0][0]


async def status(world: World, invoice: Json) -> str:
    return (await world.sql("SELECT status FROM invoice WHERE invoice_id = $1", UUID(invoice["id"])))[0][0]


async def test_keys_of_a_suspended_account_are_refused(world: World):
    """[D-242, D-10]"""
    product = await world.product()
    plan = await world.plan(product)
    await suspend(world)

    refused = [
        await world.get(f"/v1/products/{product['id']}"),
        await world.get("/v1/events"),
        await world.post("/v1/products", {"name": ""}),
        await world.post("/v1/subscriptions", {"planId": plan["id"]}),
        await world.patch("/v1/products/no-id", {}),
        await world.delete("/v1/integration/webhook"),
        await world.post("/v1/integration/api-keys", {"name": "x"}),
        await world.post("/v1/test-clock/advance", {"days": 1}),
    ]
    assert {problem(each) for each in refused} == {(403, "engine.account_suspended", None)}
    assert (await world.call("GET", "/v1/products", headers={"Authorization": "Bearer rk_x"})).status == 401

    assert await resume(world)
    assert (await world.post("/v1/products", {"name": ""})).status == 400


async def test_other_accounts_are_not_affected(world: World):
    """[D-242]"""
    other = await world.another()
    await suspend(world)
    await other.enroll(await other.plan())
    await world.run()
    assert [each["status"] for each in await other.invoices()] == ["issued"]


async def test_a_suspended_account_is_not_billed_and_not_found(world: World):
    """[D-242, D-5]"""
    await world.set_up_gateway(productCatalog=True, behaviour="never_pay")
    async with open_receiver() as receiver:
        await world.put("/v1/integration/webhook", {"url": receiver.url})
        variable = await world.variable_product()
        await world.enroll(await world.plan(variable))
        await world.enroll(await world.plan())
        await ready_invoice(world)
        await suspend(world)
        before = await stored_events(world)
        await jump(world, days=40)

        await world.run("sweep")
        assert await world.run() == 0

        assert await due(world) == set()
        assert await stored_events(world) == before
        assert receiver.received == []
        assert await charged_at(world) == []
        assert await world.broken() == []
        assert 'fatura_oldest_work_seconds{lane="generation"} 0.0' in await scrape(world.deps)
        assert "fatura_suspended_accounts 1.0" in await scrape(world.deps)

        await resume(world)
        assert await world.run() > 0
        assert len(receiver.received) >= before
        assert {each["status"] for each in await world.invoices()} >= {"awaiting_value", "issued"}
        assert "fatura_suspended_accounts 0.0" in await scrape(world.deps)


@pytest.mark.parametrize("stopped", ["suspended", "frozen"])
async def test_work_is_late_only_from_when_the_account_continues(world: World, stopped: str):
    """[D-242, D-123]"""
    await world.enroll(await world.plan())
    await ready_invoice(world)
    leased = "UPDATE invoice SET lease_until = now() - interval '1 hour' WHERE status = 'ready'"
    if stopped == "suspended":
        await suspend(world)
    else:
        await comparison.freeze(world.deps, world.account_id)
    await world.sql(leased)
    await jump(world, days=40)
    assert await world.broken() == []
    if stopped == "suspended":
        await resume(world)
    else:
        await comparison.compare(world.deps, world.account_id, since=world.deps.clock())

    assert await world.broken() == []
    assert 'fatura_oldest_work_seconds{lane="issuance"} 0.' in await scrape(world.deps)

    await jump(world, hours=2)
    assert set(await world.broken()) == {"due_work_is_claimed_in_an_hour", "leases_expire"}
    await world.run()
    assert await world.broken() == []


async def test_payments_of_existing_charges_are_recorded(world: World):
    """Of two payments, a webhook reports one, and a poll finds the other. [D-242, D-35 webhook]"""
    first = await issued_with_webhooks(world)
    second = await issued_invoice(world)
    await world.run()
    webhook = await hook(world, first)
    await suspend(world)
    await pay_silently(world, first["gatewayInvoiceId"])
    assert (await webhook.send(world)).status == 200
    await world.run()
    assert await status(world, first) == "paid"

    await pay_silently(world, second["gatewayInvoiceId"])
    await skip_days(world, 2)

    assert await status(world, second) == "paid"
    assert await world.broken() == []


async def test_pending_refunds_wait_until_the_account_is_resumed(world: World):
    """[D-242, D-53]"""
    invoice = await issued_invoice(world)
    [charge] = await charges(world)
    await move(world, charge, "pay")
    await world.run()
    await queue_fault(world, "refund_charge", "rate_limited")
    assert (await world.post(f"/v1/invoices/{invoice['id']}/refunds", {})).status == 202
    await suspend(world)
    await skip_days(world, 2)
    assert (await world.sql("SELECT count(*) FROM payment_entry WHERE kind = 'refund'"))[0][0] == 0

    await resume(world)
    await skip_days(world, 1)
    assert (await read(world, invoice))["refundedCents"] == invoice["totalCents"]


@pytest.mark.faults
async def test_missed_cycles_are_billed_one_a_day_after_the_account_is_resumed(world: World):
    """[D-242, D-5, D-244]"""
    await world.set_up_gateway(behaviour="never_pay")
    await world.advance("2035-01-05")
    subscription = await world.enroll(await world.plan(), chargeDay=10)
    await world.advance("2035-01-08")
    await suspend(world)
    await jump(world, days=100)  # 18 April
    await world.run()
    await resume(world)
    await skip_days(world, 30)

    listed = await world.invoices(subscription)
    assert columns(listed, "cycle", "dueDate") == rows("""
        cycle | due
        1     | 2035-01-10
        2     | 2035-02-10
        3     | 2035-03-10
        4     | 2035-04-10
        5     | 2035-05-10
    """)
    assert min(gaps([each["createdAt"] for each in listed])) >= DAY
    assert min(gaps(await charged_at(world))) >= DAY
    assert await world.broken() == []


@pytest.mark.faults
@pytest.mark.parametrize("hours_before", [0.5, 3, 23.9])
async def test_the_next_cycle_follows_a_missed_one_after_a_day(world: World, hours_before: float):
    """The account is resumed shortly before the subscription's next cycle is due. [D-242, D-244, D-5]"""
    await world.advance("2035-01-05")
    await world.enroll(await world.plan(), chargeDay=10)
    await world.advance("2035-01-08")
    now = datetime.fromisoformat((await world.get("/v1/test-clock")).json["now"])
    await suspend(world)
    due_at = datetime.fromisoformat("2035-03-07T00:00:00-03:00") - timedelta(hours=hours_before)
    await world.sql(
        "UPDATE account SET clock_offset = clock_offset + ($1::timestamptz - $2::timestamptz)",
        due_at,
        now,
    )
    await resume(world)
    await world.run()
    for _ in range(30):
        await jump(world, hours=2)
        await world.run()

    listed = await world.invoices()
    assert columns(listed, "dueDate") == [("2035-01-10",), ("2035-02-10",), ("2035-03-10",)]
    assert min(gaps([each["createdAt"] for each in listed])) >= DAY
    assert min(gaps(await charged_at(world))) >= DAY


@pytest.mark.parametrize("order", [("issuance", "generation", "issuance"), ("generation", "issuance")])
async def test_a_missed_cycle_is_charged_a_day_after_an_invoice_that_waited(
    world: World, order: Sequence[str]
):
    """The account is suspended before its first invoice is issued. [D-242, D-244, D-57]"""
    await world.set_up_gateway(behaviour="never_pay")
    await world.advance("2035-01-05")
    subscription = await world.enroll(await world.plan(), chargeDay=10)
    await jump(world, days=3)
    await world.run("generation")
    await suspend(world)
    await jump(world, days=31)
    await resume(world)
    for lane in order:
        await world.run(lane)
    await skip_days(world, 2)

    assert len(await world.invoices(subscription)) == len(await charged_at(world)) == 2
    assert min(gaps(await charged_at(world))) >= DAY


async def test_suspending_and_resuming_twice_changes_nothing(world: World):
    """[D-242, D-223]"""
    since = await suspend(world)
    assert await suspend(world) == since
    assert await resume(world)
    assert not await resume(world)

    entries = await world.audit("account.suspend", "account.resume")

    assert [(each["action"], each["actor"]["kind"]) for each in entries] == [
        ("account.suspend", "operator"),
        ("account.resume", "operator"),
    ]
    assert [list(each["before"]) for each in entries] == [["suspendedAt"]] * 2


async def test_polls_continue_while_a_suspended_account_has_an_advancing_clock(world: World):
    """[D-242, D-45]"""
    invoice = await issued_invoice(world)
    await world.run()
    await world.sql(
        """
        UPDATE connection_health SET failures = 3, failing_since = now(), next_probe_at = '2001-01-01',
            error_code = 'x', error_detail = 'x'
        """
    )
    await world.sql("UPDATE test_clock SET status = 'advancing', target_at = now() + interval '20 years'")
    await jump(world, days=2)
    assert await due(world) == {"test_clock"}

    await suspend(world)

    assert await due(world) == {"reconciliation", "sweep", "gateway_probe"}
    await world.sql(
        """
        UPDATE connection_health SET failures = 0, failing_since = NULL, next_probe_at = NULL, error_code = NULL,
            error_detail = NULL
        """
    )
    await pay_silently(world)
    await world.run()
    assert await status(world, invoice) == "paid"

    await resume(world)
    assert "test_clock" in await due(world)
    await world.sql("UPDATE test_clock SET status = 'ready', target_at = NULL")


async def test_an_advancing_clock_stops_at_once(world: World):
    """A worker is moving the test clock when the account is suspended. After the account is resumed, any worker can
    move the clock on. [D-242]
    """
    await world.sql("UPDATE test_clock SET status = 'advancing', target_at = now() + interval '20 years'")
    runs = list[str]()

    async def run(_deps: Deps, _account: Account) -> int:
        runs.append("lane")
        await suspend(world)
        return 1

    account = await load_account(world.deps, world.account_id)
    began = time.monotonic()
    await test_clock.advance_to_target(world.deps, account, {"issuance": run})

    assert time.monotonic() - began < test_clock.RUN_SECONDS
    assert runs == ["lane"]
    assert await load_account(world.deps, world.account_id) == account
    await resume(world)
    assert "test_clock" in await due(world)
    await world.sql("UPDATE test_clock SET status = 'ready', target_at = NULL")


async def test_a_batch_that_begins_after_the_suspension_calls_nobody(world: World):
    """A worker found the account's due work before the suspension. [D-242]"""
    await world.set_up_gateway(productCatalog=True)
    async with open_receiver() as receiver:
        await world.put("/v1/integration/webhook", {"url": receiver.url})
        plan = await world.plan(await world.variable_product())
        await world.enroll(plan)
        await world.run("generation")
        await suspend(world)
        account = await load_account(world.deps, world.account_id)

        assert await delivery.deliver(world.deps, account) == 0
        assert await price_pull.pull(world.deps, account, limit=9) == 0
        assert await mirroring.mirror(world.deps, account, limit=9) == 0

        assert receiver.received == []
    assert await world.sql("SELECT 1 FROM pricing_attempt") == []
    assert (
        await world.sql(
            "SELECT 1 FROM product_mirror WHERE lease_until IS NOT NULL OR mirrored_at IS NOT NULL"
        )
        == []
    )


async def test_no_subscription_moves_in_a_suspended_account(world: World):
    """A worker found the account's due work before the suspension. [D-242]"""
    plan = await world.plan()
    await world.enroll(plan)
    old, new = await connection_id(world), (await world.connect())["connectionId"]
    account = await load_account(world.deps, world.account_id)
    start_move = partial(connection_moves._start, from_id=UUID(old), to_id=UUID(new))
    start_propagation = partial(propagation._start, plan_id=UUID(plan["id"]), from_version=None)
    await in_transaction(world.deps, account, start_move)
    await in_transaction(world.deps, account, start_propagation)
    await suspend(world)
    for lane in (propagation, connection_moves):
        assert await lane.run(world.deps, account) == 0
    await resume(world)
    for lane in (propagation, connection_moves):
        assert await lane.run(world.deps, account) > 0
