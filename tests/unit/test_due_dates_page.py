"""Each example on the page about due dates, periods and amounts is what the domain's functions return."""

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from fatura.domain.calendar import (
    first_cycle,
    generation_instant,
    local_date,
    next_generation_instant,
    next_period_start,
)
from fatura.domain.charging import charge_due_date, last_payment_day
from fatura.domain.money import item_amount_cents
from fatura.domain.offer import PaymentMethod

PRICE_PAGE = Path(__file__).parents[2] / "docs/how-to/write-a-price-endpoint.md"
PAGE = Path(__file__).parents[2] / "docs/explanation/due-dates-periods-and-amounts.md"
DATE = re.compile(r"\d{4}-\d\d-\d\d")


def table(*header: str, page: Path = PAGE) -> list[list[str]]:
    """Return the rows of the page's table that has this header. Each row is a list of cells."""
    _, found, after = page.read_text("utf-8").partition(f"| {' | '.join(header)} |\n")
    assert found, header
    rows = after.partition("\n\n")[0].splitlines()[1:]
    return [[cell.strip() for cell in row[1:-1].split("|")] for row in rows]


def dates(text: str) -> list[date]:
    return [date.fromisoformat(found) for found in DATE.findall(text)]


CYCLES = table("Today", "You send", "Period", "Charge day", "Cycle 1", "Cycle 2", "Cycle 3 due")
MISSED = table("Cycle", "`dueDate`", "Generated", "Due date at the gateway")
OVERDUE = table("Method", "Due date at the gateway", "Last day of payment")
AMOUNTS = table("Monthly price", "Months", "Discount", "Exact value", "Item amount")


def test_the_price_calls_on_the_other_page_come_before_their_periods():
    """[D-2, D-4]"""
    calls = table(
        "The call comes on", "`cycle`", "`period`", "The usage that your server bills", page=PRICE_PAGE
    )
    cycle = first_cycle(date(2026, 11, 5), charge_day=10, first_charge_date=None)
    start, due = cycle.period_start, cycle.due_date
    for number, (called, shown, period, _) in enumerate(calls, 1):
        after = next_period_start(start, charge_day=10, period_months=1)
        assert dates(called) == [local_date(generation_instant(due))]
        assert int(shown) == number
        assert dates(period) == [start, after - timedelta(days=1)]
        start = due = after


@pytest.mark.parametrize("row", CYCLES, ids=lambda row: f"{row[0]}, {row[1]}")
def test_a_first_cycle_and_its_successors_have_the_dates_on_the_page(row: Sequence[str]):
    """[D-3, D-4]"""
    today, sent, period, charge_day, first, second, third_due = row
    named_day = re.search(r"`chargeDay` (\d+)", sent)
    named_date = re.search(r"`firstChargeDate` (\S{10})", sent)
    cycle = first_cycle(
        date.fromisoformat(today),
        charge_day=int(named_day[1]) if named_day else None,
        first_charge_date=date.fromisoformat(named_date[1]) if named_date else None,
    )
    assert cycle.charge_day == int(charge_day)
    starts = [cycle.period_start]
    for _ in range(2):
        months = int(period.split()[0])
        starts.append(next_period_start(starts[-1], charge_day=cycle.charge_day, period_months=months))
    ends = [start - timedelta(days=1) for start in starts[1:]]
    assert dates(first) == [starts[0], ends[0], cycle.due_date]
    assert dates(second) == [starts[1], ends[1], starts[1]]
    assert dates(third_due) == [starts[2]]


def test_missed_cycles_are_generated_at_the_instants_on_the_page():
    """[D-5]"""
    generated_at = datetime(2027, 2, 15, 12, tzinfo=UTC)  # the outage ends, and workers run again
    for cycle, due, generated, at_gateway in MISSED:
        due_date = date.fromisoformat(due)
        if cycle != "1":
            generated_at = next_generation_instant(due_date, generated_at=generated_at)
        assert generated.removesuffix(", on schedule") == generated_at.strftime("%Y-%m-%d %H:%M UTC")
        assert ("on schedule" in generated) == (generated_at == generation_instant(due_date))
        assert dates(at_gateway) == [charge_due_date(due_date, today=generated_at.date())]


@pytest.mark.parametrize(("method", "due", "last"), OVERDUE)
def test_a_payment_is_awaited_until_the_day_on_the_page(method: str, due: str, last: str):
    """[D-26]"""
    ((due_date,), (last_day,)) = dates(due), dates(last)
    assert last_payment_day(due_date, PaymentMethod(method)) == last_day
    assert due.startswith(f"{due_date:%A} ")
    assert last.startswith(f"{last_day:%A} ")


@pytest.mark.parametrize(("price", "months", "discount", "exact", "amount"), AMOUNTS)
def test_an_item_costs_the_amount_on_the_page(
    price: str, months: str, discount: str, exact: str, amount: str
):
    """[D-7]"""
    cents, percent = int(price.replace(",", "")), int(discount.replace("none", "0").removesuffix(" %"))
    assert float(exact.replace(",", "")) == pytest.approx(int(months) * cents * (100 - percent) / 100)
    found = item_amount_cents(cents, months=int(months), discount_percent=percent)
    assert found == int(amount.replace(",", ""))
