"""After an outage, each missed cycle is billed once, in order, one per day, with its own due date (D-5)."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from fatura.store.accounts import accounts
from fatura.usecases.transaction import Work, in_transaction, load_account
from tests.support.sandbox_steps import charges, now
from tests.support.world import Json, Merchant, World, columns, item, rows

HOUR = timedelta(hours=1)


async def sleep_until(merchant: Merchant, instant: str) -> None:
    """Set the account's clock without running workers, as in an outage."""
    target = datetime.fromisoformat(instant).astimezone(UTC)
    account = await load_account(merchant.deps, merchant.account_id)
    await in_transaction(merchant.deps, account, _set_clock, target)


async def _set_clock(work: Work, target: datetime) -> None:
    await accounts.set_clock_offset(work.tx, target - work.deps.clock())


async def sleep(merchant: Merchant, duration: timedelta) -> None:
    await sleep_until(merchant, (await now(merchant) + duration).isoformat())


def gaps(invoices: Sequence[Json]) -> list[timedelta]:
    """Return how much time passed between the creation of each invoice and the next one."""
    created = [datetime.fromisoformat(each["createdAt"]) for each in invoices]
    return [later - earlier for earlier, later in pairwise(created)]


@pytest.mark.faults
async def test_missed_cycles_are_billed_one_a_day(world: World):
    """Each invoice has its own due date, the current price, and the discount of its cycle.
    [D-5, spec 2.4 cycleCount]
    """
    await world.advance("2035-01-05")
    product = await world.product(1000)
    plan = await world.plan(item(product, (50, 1, 2), (10, 4, 4)))
    subscription = await world.enroll(plan, chargeDay=10)
    await sleep_until(world, "2035-05-20T15:00:00Z")
    await world.patch(f"/v1/products/{product['id']}", {"monthlyPriceCents": 2000})

    await world.run("generation")
    await world.run("generation")
    assert columns(await world.invoices(), "cycle", "dueDate") == [("1", "2035-01-10")]
    await world.advance("2035-07-10")

    listed = await world.invoices(subscription)
    assert [
        (*row, created[:10])
        for row, created in zip(
            columns(listed, "cycle", "dueDate", "totalCents"),
            [each["createdAt"] for each in listed],
            strict=True,
        )
    ] == rows("""
        cycle | due        | total | created
        1     | 2035-01-10 | 1000  | 2035-05-20
        2     | 2035-02-10 | 1000  | 2035-05-21
        3     | 2035-03-10 | 2000  | 2035-05-22
        4     | 2035-04-10 | 1800  | 2035-05-23
        5     | 2035-05-10 | 2000  | 2035-05-24
        6     | 2035-06-10 | 2000  | 2035-06-07
        7     | 2035-07-10 | 2000  | 2035-07-07
    """)
    assert all(gap >= timedelta(hours=24) for gap in gaps(listed))
    assert await world.broken() == [], "the invariants include adjoining periods and contiguous cycles"


async def test_a_late_invoice_is_charged_today(world: World):
    """A charge that is created after the invoice's due date is due on the day of its creation.
    The invoice becomes overdue only after that day. [D-5, D-26]
    """
    await world.set_up_gateway(behaviour="never_pay")
    await world.advance("2035-01-05")
    subscription = await world.enroll(await world.plan(), chargeDay=10)
    await sleep_until(world, "2035-02-08T15:00:00Z")

    await world.run()
    [late] = await world.invoices(subscription)
    assert (late["dueDate"], late["status"]) == ("2035-01-10", "issued")
    assert [charge["dueDate"] for charge in await charges(world, late)] == ["2035-02-08"]
    await world.advance("2035-02-09T02:59:00Z")
    assert columns(await world.invoices(), "dueDate", "status") == [("2035-01-10", "issued")]
    await world.advance("2035-02-10")
    assert columns(await world.invoices(), "dueDate", "status") == rows("""
        due        | status
        2035-01-10 | overdue
        2035-02-10 | issued
    """)
    [_, second] = await world.invoices(subscription)
    assert [charge["dueDate"] for charge in await charges(world, second)] == ["2035-02-10"]


async def test_the_next_missed_cycle_waits_24_hours(world: World):
    """[D-5]"""
    await world.advance("2035-01-05")
    await world.enroll(await world.plan(), chargeDay=10)
    await sleep_until(world, "2035-06-01T15:00:00Z")
    await world.run("generation")
    for _ in range(3):
        await sleep(world, 7 * HOUR)
        await world.run("generation")
    assert len(await world.invoices()) == 1
    await sleep(world, 3 * HOUR)
    await world.run("generation")
    assert len(await world.invoices()) == 2


async def test_cycles_missed_in_a_second_outage_are_billed_one_a_day(world: World):
    """[D-5]"""
    await world.advance("2035-01-05")
    subscription = await world.enroll(await world.plan(), chargeDay=10)
    await sleep_until(world, "2035-03-20T15:00:00Z")
    await world.run("generation")
    await sleep_until(world, "2035-05-01T09:00:00Z")
    await world.run("generation")
    await world.advance("2035-05-07")
    listed = await world.invoices(subscription)
    assert columns(listed, "cycle", "dueDate") == [(str(n), f"2035-0{n}-10") for n in range(1, 6)]
    assert all(gap >= timedelta(hours=24) for gap in gaps(listed))
    assert await world.broken() == []


async def test_cancellation_ends_the_catch_up(world: World):
    """[D-5, spec 3.2 subscription canceled]"""
    await world.advance("2035-01-05")
    subscription = await world.enroll(await world.plan(), chargeDay=10)
    await sleep_until(world, "2035-04-20T15:00:00Z")
    await world.run()
    canceled = await world.made(f"/v1/subscriptions/{subscription['id']}/cancel")
    await world.advance(days=10)
    assert columns(await world.invoices(), "cycle", "dueDate") == [("1", "2035-01-10")]
    assert canceled["commitment"]["completed"] == 1
    assert canceled["nextDueDate"] == "2035-02-10"


async def test_new_terms_count_from_the_next_missed_cycle(world: World):
    """[D-5, D-6]"""
    await world.advance("2035-01-05")
    product = await world.product(1000)
    subscription = await world.enroll(await world.plan(product), chargeDay=10)
    await sleep_until(world, "2035-04-20T15:00:00Z")
    await world.run("generation")
    terms = {"periodMonths": 3, "defaultPaymentMethod": "pix", "items": [item(product)]}
    await world.made(f"/v1/subscriptions/{subscription['id']}/customize", terms)
    await world.advance("2035-05-08")
    assert columns(await world.invoices(), "cycle", "dueDate", "totalCents") == rows("""
        cycle | due        | total
        1     | 2035-01-10 | 1000
        2     | 2035-02-10 | 3000
        3     | 2035-05-10 | 3000
    """)
    assert await world.broken() == []


@pytest.mark.faults
@pytest.mark.parametrize("months", [1, 3, 6, 12])
async def test_each_missed_cycle_is_billed_once_for_every_period(world: World, months: int):
    """[D-5, D-4]"""
    await world.advance("2035-01-05")
    subscription = await world.enroll(await world.plan(periodMonths=months), firstChargeDate="2035-01-31")
    await sleep_until(world, "2037-01-20T15:00:00Z")
    await world.advance("2037-02-19")
    listed = await world.invoices(subscription)
    # The first due date is the requested 01-31. Later due dates are on the 28th, the latest possible charge
    # day. The test ends before 2037-02-25, when the invoice that is due on 2037-02-28 would be generated.
    later = [f"{2035 + n * months // 12}-{n * months % 12 + 1:02}-28" for n in range(1, 24 // months + 1)]
    assert [each["dueDate"] for each in listed] == ["2035-01-31", *later]
    assert await world.broken() == []


async def test_an_outage_of_one_clock_affects_no_other_account(world: World):
    """[D-1, D-5]"""
    other = await world.another()
    theirs = await other.enroll(await other.plan())
    await world.enroll(await world.plan())
    await sleep(world, timedelta(days=100))
    await world.run("generation")
    await world.run("generation")
    assert columns(await other.invoices(), "cycle", "dueDate") == [("1", theirs["nextDueDate"])]


async def test_a_cycle_generated_late_does_not_shift_the_next_one(world: World):
    """The outage ends one hour after the first cycle's generation was due. [D-5, D-2]"""
    await world.advance("2035-01-05")
    await world.enroll(await world.plan(), chargeDay=10)
    await sleep_until(world, "2035-01-07T04:00:00Z")
    await world.run("generation")
    await world.advance("2035-02-10")
    created = [datetime.fromisoformat(each["createdAt"]) for each in await world.invoices()]
    assert created[0] - datetime(2035, 1, 7, 4, tzinfo=UTC) < timedelta(minutes=1)
    assert timedelta(0) <= created[1] - datetime(2035, 2, 7, 3, tzinfo=UTC) < timedelta(minutes=1)
