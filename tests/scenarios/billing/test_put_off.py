"""If a subscription cannot be billed, Fatura reports the failure and bills the same cycle later (D-142)."""

from typing import Any

import pytest

from tests.scenarios.billing.test_billing import REFUSE_INVOICES
from tests.support.event_fields import fields, fields_of_sample
from tests.support.sandbox_steps import pass_time
from tests.support.world import Json, World, columns, item, rows, scrape

MEND = "DROP TRIGGER refuse_invoice ON invoice; DROP FUNCTION refuse_invoice()"


async def refuse(world: World, subscription: Json) -> None:
    """Make PostgreSQL refuse the invoices of a subscription, to simulate an unexpected error."""
    for statement in REFUSE_INVOICES:
        await world.sql(statement.replace("{subscription_id}", subscription["id"]))


async def mend(world: World) -> None:
    for statement in MEND.split("; "):
        await world.sql(statement)


async def stored(world: World, subscription: Json) -> Any:
    [row] = await world.sql(
        "SELECT failures, put_off_until, generate_at FROM subscription WHERE subscription_id = $1",
        subscription["id"],
    )
    return row


async def metric(world: World, name: str) -> float:
    text = await scrape(world.deps)
    [line] = [line for line in text.splitlines() if line.startswith(f"{name} ")]
    return float(line.split()[1])


async def test_a_failure_is_counted_and_reported_once(world: World):
    """[D-142, D-36]"""
    failing = await world.enroll(await world.plan())
    due_at = (await stored(world, failing))["generate_at"]
    await refuse(world, failing)

    await world.run("generation")
    first = await stored(world, failing)
    await pass_time(world, hours=3, minutes=10)

    after = await stored(world, failing)
    assert (first["failures"], first["generate_at"]) == (1, due_at)
    assert (after["failures"], after["generate_at"]) == (4, due_at)
    [event] = await world.events("subscription.billing_failed")
    assert event["data"]["subscription"]["id"] == failing["id"]
    assert event["data"]["error"]["code"] == "unexpected_error"
    assert "cycle 1 " in event["data"]["error"]["detail"]
    assert fields(event) == fields_of_sample(event["type"])
    assert await metric(world, "fatura_subscriptions_put_off") == 1
    assert await world.broken() == []


@pytest.mark.faults
async def test_billing_resumes_with_the_same_cycle_and_due_date(world: World):
    """[D-142, D-5]"""
    await world.advance("2035-01-05")
    failing = await world.enroll(await world.plan(item(await world.product(1000), (50, 2, 2))), chargeDay=10)
    await world.advance("2035-01-20")
    await refuse(world, failing)
    await world.advance("2035-02-15")
    assert (await stored(world, failing))["failures"] > 24
    await mend(world)
    await world.advance("2035-03-10")

    assert columns(await world.invoices(failing), "cycle", "dueDate", "totalCents") == rows("""
        cycle | due        | total
        1     | 2035-01-10 | 1000
        2     | 2035-02-10 | 500
        3     | 2035-03-10 | 1000
    """)
    after = await stored(world, failing)
    assert (after["failures"], after["put_off_until"]) == (0, None)
    assert len(await world.events("subscription.billing_failed")) == 1
    assert await metric(world, "fatura_subscriptions_put_off") == 0
    assert await world.broken() == []


@pytest.mark.faults
async def test_the_next_failure_after_an_invoice_is_reported_again(world: World):
    """[D-142]"""
    await world.advance("2035-01-05")
    failing = await world.enroll(await world.plan(), chargeDay=10)
    for month in (1, 2):
        await refuse(world, failing)
        await world.advance(f"2035-0{month}-10")
        await mend(world)
        await world.advance(f"2035-0{month}-11")
    assert len(await world.events("subscription.billing_failed")) == 2
    assert [each["cycle"] for each in await world.invoices(failing)] == [1, 2]


async def test_a_retry_makes_no_batch_fail(world: World):
    """The failing subscription is retried in its own batch, so the batch of the other subscriptions succeeds.
    [D-142, D-28]
    """
    plan = await world.plan()
    failing = await world.enroll(plan)
    await refuse(world, failing)
    await world.run("generation")
    others = [await world.enroll(plan) for _ in range(60)]
    await world.sql("UPDATE subscription SET put_off_until = now() WHERE failures > 0")

    assert await world.run("generation") == 61

    created = {each["createdAt"] for each in await world.events("invoice.created")}
    assert len(created) == 1, "all other subscriptions were billed in one transaction"
    assert len(await world.invoices()) == len(others)
    assert (await stored(world, failing))["failures"] == 2


async def test_a_subscription_that_cannot_be_read_is_put_off(world: World):
    """The test removes one subscription's payment method, so that its row cannot be read. [D-142]"""
    plan = await world.plan()
    failing, other = await world.enroll(plan), await world.enroll(plan)
    await world.sql("ALTER TABLE subscription ALTER COLUMN payment_method DROP NOT NULL")
    await world.sql(
        "UPDATE subscription SET payment_method = NULL WHERE subscription_id = $1::text::uuid", failing["id"]
    )

    await world.run("generation")

    assert (await stored(world, failing))["failures"] == 1
    assert len(await world.sql("SELECT FROM invoice")) == 1
    await world.sql("UPDATE subscription SET payment_method = 'pix' WHERE payment_method IS NULL")
    await pass_time(world, hours=2)
    assert [len(await world.invoices(each)) for each in (failing, other)] == [1, 1]
    assert await world.broken() == []


async def test_a_failure_that_cannot_be_reported_at_first_is_reported_later(world: World):
    """At the first failure, the subscription cannot be read, so no event can be built. [D-142]"""
    failing = await world.enroll(await world.plan())
    await refuse(world, failing)
    await world.sql("ALTER TABLE subscription ALTER COLUMN payment_method DROP NOT NULL")
    await world.sql("UPDATE subscription SET payment_method = NULL")
    await world.run("generation")
    assert await world.events("subscription.billing_failed") == []

    await world.sql("UPDATE subscription SET payment_method = 'pix'")
    await pass_time(world, hours=3)

    [event] = await world.events("subscription.billing_failed")
    assert event["data"]["subscription"]["id"] == failing["id"]
    assert await world.broken() == []


async def test_a_subscription_can_be_canceled_while_it_is_put_off(world: World):
    """[D-142, spec 4.4 commitment]"""
    failing = await world.enroll(await world.plan())
    await refuse(world, failing)
    await world.run("generation")
    canceled = await world.made(f"/v1/subscriptions/{failing['id']}/cancel")
    assert canceled["commitment"]["completed"] == 0
    await mend(world)
    await world.advance(days=3)
    assert await world.invoices() == []
    assert await metric(world, "fatura_subscriptions_put_off") == 0
    assert await world.broken() == []
