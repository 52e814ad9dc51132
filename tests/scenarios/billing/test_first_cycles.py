"""Due dates and periods of a subscription's first invoices (D-2, D-3, D-4)."""

import pytest

from tests.support.world import Json, World, columns, item, rows

PERIODS = """
    SELECT cycle, period_start, period_end, due_date FROM invoice WHERE subscription_id = $1 ORDER BY cycle
"""


async def covered(world: World, subscription: Json) -> list[tuple[str, ...]]:
    """Return each invoice's cycle, due date, and the first and last day of its period."""
    found = await world.sql(PERIODS, subscription["id"])
    return [
        tuple(str(row[name]) for name in ("cycle", "due_date", "period_start", "period_end")) for row in found
    ]


@pytest.mark.parametrize(
    ("fields", "charge_day", "months", "expected"),
    [
        pytest.param(
            {},
            28,
            1,
            """
            cycle | due        | from       | to
            1     | 2035-02-03 | 2035-01-31 | 2035-02-27
            2     | 2035-02-28 | 2035-02-28 | 2035-03-27
            3     | 2035-03-28 | 2035-03-28 | 2035-04-27
            """,
            id="neither field: due in three days, then on the day of creation, at most the 28th",
        ),
        pytest.param(
            {"chargeDay": 10},
            10,
            1,
            """
            cycle | due        | from       | to
            1     | 2035-02-10 | 2035-02-10 | 2035-03-09
            2     | 2035-03-10 | 2035-03-10 | 2035-04-09
            3     | 2035-04-10 | 2035-04-10 | 2035-05-09
            """,
            id="a charge day",
        ),
        pytest.param(
            {"chargeDay": 2},
            2,
            1,
            """
            cycle | due        | from       | to
            1     | 2035-03-02 | 2035-03-02 | 2035-04-01
            2     | 2035-04-02 | 2035-04-02 | 2035-05-01
            3     | 2035-05-02 | 2035-05-02 | 2035-06-01
            """,
            id="a charge day less than three days ahead",
        ),
        pytest.param(
            {"firstChargeDate": "2035-01-31"},
            28,
            1,
            """
            cycle | due        | from       | to
            1     | 2035-01-31 | 2035-01-31 | 2035-02-27
            2     | 2035-02-28 | 2035-02-28 | 2035-03-27
            3     | 2035-03-28 | 2035-03-28 | 2035-04-27
            """,
            id="a first charge date of today",
        ),
        pytest.param(
            {"firstChargeDate": "2035-02-20", "chargeDay": 5},
            5,
            3,
            """
            cycle | due        | from       | to
            1     | 2035-02-20 | 2035-02-20 | 2035-06-04
            2     | 2035-06-05 | 2035-06-05 | 2035-09-04
            """,
            id="both fields: cycle 2 starts on the first charge day after a whole period",
        ),
        pytest.param(
            {"firstChargeDate": "2035-03-01"},
            1,
            12,
            """
            cycle | due        | from       | to
            1     | 2035-03-01 | 2035-03-01 | 2036-02-29
            """,
            id="a year",
        ),
    ],
)
async def test_due_dates_and_periods_of_the_first_cycles(world: World, fields, charge_day, months, expected):
    """[D-3, D-4, spec 4.4 chargeDay, spec 4.4 firstChargeDate]"""
    await world.advance("2035-01-31")
    subscription = await world.enroll(await world.plan(periodMonths=months), **fields)
    first_due = rows(expected)[0][1]
    assert (subscription["chargeDay"], subscription["nextDueDate"]) == (charge_day, first_due)

    await world.advance(rows(expected)[-1][1])
    assert await covered(world, subscription) == rows(expected)
    assert await world.broken() == []


async def test_an_invoice_is_generated_three_days_before_its_due_date(world: World):
    """Generation happens when the third day before the due date begins in Sao Paulo. [D-2, spec 8 generation lead]"""
    await world.advance("2035-01-05")
    subscription = await world.enroll(await world.plan(), chargeDay=20)
    await world.advance("2035-01-17T02:59:59.000Z")
    assert await world.invoices(subscription) == []
    await world.advance("2035-01-17T03:00:00.000Z")
    [invoice] = await world.invoices(subscription)
    assert invoice["dueDate"] == "2035-01-20"
    assert invoice["createdAt"].startswith("2035-01-17T03:00:0"), "shortly after the instant of generation"


async def test_one_invoice_is_generated_on_a_local_day(world: World):
    """Adapted from billing_spec.rb of getlago/lago-api, which uses America/Bogota. [D-1, D-4]"""
    await world.advance("2035-02-02T03:00:00Z")
    subscription = await world.enroll(await world.plan(), firstChargeDate="2035-02-02")
    # This instant is 23:00 on 02-26 in Sao Paulo. Lago's test expects the invoice on its due date, 03-02. Fatura
    # generates the invoice three days before, on 02-27.
    await world.advance("2035-02-27T02:00:00Z")
    assert len(await world.invoices(subscription)) == 1
    for hour in ("03:00:00", "04:00:00", "12:00:00", "20:00:00", "23:59:59"):
        await world.advance(f"2035-02-27T{hour}Z")
        await world.run("generation")
        assert len(await world.invoices(subscription)) == 2
    await world.advance("2035-02-28T03:00:00Z")
    await world.run("generation")
    assert columns(await world.invoices(subscription), "cycle", "dueDate") == [
        ("1", "2035-02-02"),
        ("2", "2035-03-02"),
    ]


@pytest.mark.faults
async def test_discounts_count_cycles_and_not_months(world: World):
    """[spec 2.3 discount resolution, spec 2.3 amount, D-7]"""
    await world.advance("2035-01-05")
    product = await world.product(3333)
    plan = await world.plan(item(product, (50, 2, 2), (10, 1, 3)), periodMonths=3)
    subscription = await world.enroll(plan, firstChargeDate="2035-01-10")
    await world.advance("2035-10-10")
    assert columns(await world.invoices(subscription), "cycle", "dueDate", "totalCents") == rows("""
        cycle | due        | total
        1     | 2035-01-10 | 8999
        2     | 2035-04-10 | 5000
        3     | 2035-07-10 | 8999
        4     | 2035-10-10 | 9999
    """)
