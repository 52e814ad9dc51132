"""A webhook that names no charge causes a round: a poll of all unpaid charges of the connection (D-190)."""

import asyncio
from datetime import timedelta

import pytest

from fatura.usecases.connections import poll_rounds
from fatura.usecases.transaction import load_account
from tests.support.captured_logs import captured_logs
from tests.support.refused_writes import refuse
from tests.support.sandbox_steps import (
    connection_id,
    issued_invoice,
    pass_time,
    read,
    reads_held,
    row_held,
    until_waiting,
)
from tests.support.webhook_steps import SECRET, hook, issued_with_webhooks, paid_unnoticed
from tests.support.world import Json, World

DUE = "SELECT count(*) FROM invoice v JOIN account a USING (account_id) WHERE v.next_attempt_at <= now() + clock_offset"


@pytest.fixture
async def issued(world: World) -> Json:
    return await issued_with_webhooks(world)


async def notify(world: World, *, times: int = 1) -> None:
    """Send webhooks that name no charge."""
    for _ in range(times):
        assert (await (await hook(world, None)).send(world)).status == 200


async def advance(world: World) -> bool:
    """Run one batch of a round that is due. Return whether the round has further batches."""
    return await poll_rounds.advance(world.deps, await load_account(world.deps, world.account_id))


async def due(world: World) -> int:
    """Return how many invoices are due for polling."""
    return (await world.sql(DUE))[0][0]


async def statuses(world: World) -> set[str]:
    return {each["status"] for each in await world.invoices()}


async def test_webhooks_cause_at_most_one_round_a_minute(world: World, issued: Json):
    """The later webhooks of a minute cause one more round at the end of the minute. [D-190]"""
    await notify(world)
    assert await world.run("reconciliation") == 1
    await paid_unnoticed(world, issued)

    await notify(world, times=5)

    assert await world.run("reconciliation") == 0
    assert (await read(world, issued))["status"] == "issued"
    await pass_time(world, minutes=1)
    assert (await read(world, issued))["status"] == "paid"
    await pass_time(world, minutes=10)
    assert await world.sql("SELECT FROM poll_round WHERE next_step_at IS NOT NULL") == []


async def test_a_webhook_reads_no_invoices(world: World, issued: Json):
    """Only the workers read invoices. [D-190]"""
    async with reads_held(world, "invoice"):
        await notify(world, times=2)
    assert await world.run("reconciliation") == 1
    assert (await read(world, issued))["status"] == "issued"


async def test_a_round_works_in_batches_and_continues_after_a_crash(
    world: World, issued: Json, monkeypatch: pytest.MonkeyPatch
):
    """Each batch is a transaction, so a process that dies between two batches loses nothing. [D-190]"""
    monkeypatch.setattr(poll_rounds, "BATCH", 2)
    for each in [issued, *[await issued_invoice(world) for _ in range(4)]]:
        await paid_unnoticed(world, each)
    await notify(world)

    assert (await advance(world), await due(world)) == (True, 2)
    assert (await advance(world), await due(world)) == (True, 4)
    await world.run("reconciliation")

    assert await statuses(world) == {"paid"}


async def test_a_webhook_during_a_round_causes_another_round(
    world: World, issued: Json, monkeypatch: pytest.MonkeyPatch
):
    """The running round has visited the first invoice before the webhooks arrive. [D-190]"""
    monkeypatch.setattr(poll_rounds, "BATCH", 1)
    second = await issued_invoice(world)
    await notify(world)
    assert await advance(world)
    await notify(world, times=3)
    await world.run("reconciliation")

    for each in (issued, second):
        await paid_unnoticed(world, each)
    assert await world.run("reconciliation") == 0
    await pass_time(world, minutes=1)

    assert await statuses(world) == {"paid"}


async def test_concurrent_workers_share_a_round(world: World, issued: Json, monkeypatch: pytest.MonkeyPatch):
    """[D-190]"""
    monkeypatch.setattr(poll_rounds, "BATCH", 1)
    for each in [issued, *[await issued_invoice(world) for _ in range(3)]]:
        await paid_unnoticed(world, each)
    await notify(world)

    await asyncio.gather(*(world.run("reconciliation") for _ in range(3)))
    await world.run("reconciliation")

    assert await statuses(world) == {"paid"}


async def test_a_round_locks_invoices_in_id_order(world: World, issued: Json):
    """Because all code locks invoices in this order, a round causes no deadlock. [D-190]"""
    second = await issued_invoice(world)
    await world.made(f"/v1/sandbox/charges/{issued['gatewayInvoiceId']}/refuse")
    await world.run("reconciliation")
    await notify(world)
    free = "SELECT invoice_id::text FROM invoice FOR NO KEY UPDATE SKIP LOCKED"
    async with row_held(world, "invoice", invoice_id=issued["id"]):
        running = asyncio.create_task(world.run("reconciliation"))
        await until_waiting(world)
        assert [row["invoice_id"] for row in await world.sql(free)] == [second["id"]]
    assert await running == 2


async def test_a_webhook_during_a_batch_causes_another_round(world: World, issued: Json):
    """The batch leaves an invoice alone whose poll is due already. This poll may read the charge too early. [D-190]"""
    await notify(world)
    async with row_held(world, "invoice", invoice_id=issued["id"]):
        running = asyncio.create_task(world.run("reconciliation"))
        await until_waiting(world)
        sending = asyncio.create_task(notify(world))
        await until_waiting(world, statements=2)
    await sending
    assert await running == 1
    await paid_unnoticed(world, issued)
    await pass_time(world, minutes=1)
    assert (await read(world, issued))["status"] == "paid"


async def test_new_settings_of_a_sandbox_connection_start_a_round_at_once(world: World, issued: Json):
    """Such a round does not wait for the end of the minute. [D-46, D-190]"""
    await notify(world)
    await world.run("reconciliation")
    await notify(world)
    await paid_unnoticed(world, issued)

    await world.set_up_gateway(behaviour="pay_on_due")

    await world.run("reconciliation")
    assert (await read(world, issued))["status"] == "paid"


async def test_a_round_that_began_in_the_future_delays_the_next_one_by_a_minute(world: World, issued: Json):
    """A host whose clock was a day ahead began the round. [D-190]"""
    await notify(world)
    await world.run("reconciliation")
    await world.sql("UPDATE poll_round SET began_at = began_at + interval '1 day' RETURNING 1")
    await paid_unnoticed(world, issued)
    await notify(world)
    await pass_time(world, minutes=1)
    assert (await read(world, issued))["status"] == "paid"


async def test_a_long_round_lets_the_rounds_of_other_connections_begin(
    world: World, issued: Json, monkeypatch: pytest.MonkeyPatch
):
    """[D-190]"""
    monkeypatch.setattr(poll_rounds, "BATCH", 1)
    for _ in range(4):
        await issued_invoice(world)
    other = (await world.connect(webhookSecret=SECRET))["connectionId"]
    await notify(world)
    assert await advance(world)
    assert (await (await hook(world, None, connection=other)).send(world)).status == 200
    assert await advance(world)
    assert await advance(world)
    begun = await world.sql("SELECT FROM poll_round WHERE done_to IS NOT NULL")
    assert len(begun) == 2


async def test_the_next_round_waits_until_the_budget_has_allowed_all_polls(world: World, issued: Json):
    """If the next round began sooner, charges of an earlier round could wait for their poll forever. [D-190]"""
    await issued_invoice(world)
    await notify(world)
    await advance(world)
    assert [row["made_due"] for row in await world.sql("SELECT made_due FROM poll_round")] == [2]
    await world.sql("UPDATE connection_health SET polls_per_minute = 120")
    await world.sql("UPDATE poll_round SET made_due = 180")  # as if the connection had 180 unpaid charges

    await notify(world)

    [times] = await world.sql("SELECT next_step_at - began_at AS pause FROM poll_round")
    assert times["pause"] == timedelta(seconds=90)


async def test_a_round_that_cannot_continue_delays_no_other_round(world: World, issued: Json):
    """The round of the other connection is due later. [D-186, D-190]"""
    connection = (await world.connect(webhookSecret=SECRET, behaviour="never_pay"))["connectionId"]
    subscription = await world.enroll(await world.plan(), gatewayConnectionId=connection)
    await world.run("generation", "issuance")
    (other,) = await world.invoices(subscription)
    for each in (issued, other):
        await paid_unnoticed(world, each)
    await refuse(
        world,
        "poll_round",
        "UPDATE",
        f"NEW.began_at IS NOT NULL AND NEW.connection_id = '{await connection_id(world)}'",
    )
    await notify(world)
    assert (await (await hook(world, None, connection=connection)).send(world)).status == 200

    with captured_logs() as logs:
        await world.run("reconciliation")

    assert [(await read(world, each))["status"] for each in (issued, other)] == ["issued", "paid"]
    assert logs.getvalue().count("round.put_off") == 1
    await world.sql("DROP TRIGGER refuse ON poll_round")
    await pass_time(world, minutes=11)
    assert await statuses(world) == {"paid"}
    assert await world.broken() == []


async def test_an_invoice_that_cannot_be_polled_does_not_stop_its_round(world: World, issued: Json):
    """[D-186, D-190]"""
    other = await issued_invoice(world)
    for each in (issued, other):
        await paid_unnoticed(world, each)
    await refuse(world, "invoice", "UPDATE", f"NEW.invoice_id = '{issued['id']}'")
    await notify(world)

    with captured_logs() as logs:
        await world.run("reconciliation")

    assert [(await read(world, each))["status"] for each in (issued, other)] == ["issued", "paid"]
    assert logs.getvalue().count("round.invoice_skipped") == 1
    assert await world.broken() == []
