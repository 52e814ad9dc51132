"""Which discount applies in a cycle, compared with a second implementation."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fatura.domain.offer import Discount, discount_percent
from tests.support.world import rows

LAST = 12
"""The last cycle that the tests compare."""
Rule = tuple[int, int, int | None]


def expected_percents(rules: list[Rule]) -> list[int | None]:
    """Return the discount of each cycle. If several rules cover a cycle, the first rule applies."""
    canvas: list[int | None] = [None] * LAST
    for percent, first, last in reversed(rules):
        for cycle in range(first, (LAST if last is None else min(last, LAST)) + 1):
            canvas[cycle - 1] = percent
    return canvas


def actual_percents(rules: list[Rule]) -> list[int | None]:
    schedule = [Discount(*rule) for rule in rules]
    return [discount_percent(schedule, cycle) for cycle in range(1, LAST + 1)]


@pytest.mark.parametrize(
    ("schedule", "cycles"),
    rows("""
        schedule (percent:from-to) | cycles 1 to 6
                                   | -  -  -  -  -  -
        20:1-3                     | 20 20 20 -  -  -
        20:2-2                     | -  20 -  -  -  -
        20:4-                      | -  -  -  20 20 20
        50:1-1 20:2-3 10:4-        | 50 20 20 10 10 10
        10:1- 50:1-1               | 10 10 10 10 10 10
        50:1-1 10:1-               | 50 10 10 10 10 10
        30:3-5 40:2-4              | -  40 30 30 30 -
        100:1-6 100:1-6            | 100 100 100 100 100 100
    """),
)
def test_the_first_rule_that_covers_the_cycle_applies(schedule, cycles):
    """[spec 2.3 discount resolution, spec 2.3 discounts]"""
    rules: list[Rule] = []
    for text in schedule.split():
        percent, ends = text.split(":")
        first, last = ends.split("-")
        rules.append((int(percent), int(first), int(last) if last else None))
    expected = [None if text == "-" else int(text) for text in cycles.split()]
    assert actual_percents(rules)[:6] == expected


RANGES = [(first, last) for first in range(1, 5) for last in (*range(first, 5), None)]


def test_every_ordered_pair_of_ranges_resolves_alike():
    """[spec 2.3 discount resolution]"""
    for one, other in permutations(RANGES, 2):
        rules: list[Rule] = [(11, *one), (22, *other)]
        assert actual_percents(rules) == expected_percents(rules)


@st.composite
def schedules(draw: st.DrawFn) -> list[Rule]:
    rules: list[Rule] = []
    for _ in range(draw(st.integers(0, 20))):
        first = draw(st.integers(1, LAST + 2))
        last = draw(st.none() | st.integers(first, LAST + 4))
        rules.append((draw(st.integers(1, 100)), first, last))
    return rules


@given(schedules())
def test_any_twenty_rules_resolve_alike(rules):
    """[spec 2.3 discount resolution]"""
    assert actual_percents(rules) == expected_percents(rules)
