"""Discounts on invoices, and subscriptions that a billing run cannot bill."""

from fatura.usecases.billing import generation
from fatura.usecases.transaction import in_transaction, load_account
from tests.support.sandbox_steps import pass_time
from tests.support.world import World, columns, item, rows


async def test_a_discount_applies_to_the_first_three_cycles(world: World) -> None:
    """[spec 2.3 discount resolution, D-4, D-7]"""
    plan = await world.plan(item(await world.product(9990), (20, 1, 3)))
    await world.advance("2035-01-05")
    subscription = await world.enroll(plan, chargeDay=10)

    await world.advance("2035-04-11")

    assert columns(await world.invoices(subscription), "cycle", "dueDate", "totalCents", "status") == rows("""
        cycle | due        | total | status
        1     | 2035-01-10 | 7992  | paid
        2     | 2035-02-10 | 7992  | paid
        3     | 2035-03-10 | 7992  | paid
        4     | 2035-04-10 | 9990  | paid
    """)
    assert await world.broken() == []


async def test_a_subscription_that_cannot_be_billed_delays_no_other(world: World) -> None:
    """[D-5]"""
    plan = await world.plan()
    failing, other = [await world.enroll(plan) for _ in range(2)]
    for statement in REFUSE_INVOICES:
        await world.sql(statement.replace("{subscription_id}", failing["id"]))

    await world.run("generation")

    assert [each["subscriptionId"] for each in await world.invoices()] == [other["id"]]
    await world.sql("DROP TRIGGER refuse_invoice ON invoice")
    await world.advance(days=1)
    assert columns(await world.invoices(failing), "cycle", "dueDate") == [("1", failing["nextDueDate"])]
    assert await world.broken() == []


REFUSE_INVOICES = (
    """
    CREATE FUNCTION refuse_invoice() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF NEW.subscription_id = '{subscription_id}' THEN RAISE EXCEPTION 'refused'; END IF;
        RETURN NEW;
    END $$
    """,
    "CREATE TRIGGER refuse_invoice BEFORE INSERT ON invoice FOR EACH ROW EXECUTE FUNCTION refuse_invoice()",
)


async def test_a_subscription_billed_by_another_worker_is_not_put_off(world: World) -> None:
    """One worker failed to bill a cycle that another worker has billed. The failure must not delay the next cycle.
    [D-4, D-142]
    """
    await world.enroll(await world.plan())
    await world.run("generation")
    [row] = await world.sql(
        "SELECT subscription_id FROM subscription WHERE account_id = $1", world.account_id
    )
    account = await load_account(world.deps, world.account_id)

    await in_transaction(world.deps, account, generation._put_off, row["subscription_id"])
    await pass_time(world, hours=2)

    assert [invoice["cycle"] for invoice in await world.invoices()] == [1]
