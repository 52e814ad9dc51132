"""When the nightly sweep of a connection begins (D-161)."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from fatura.domain.calendar import ZONE
from fatura.domain.sweeping import next_sweep_at
from fatura.ids import least_id, new_ids

NOON = datetime(2026, 11, 23, 15, tzinfo=UTC)


def test_sweeps_spread_over_the_night() -> None:
    """[D-161]"""
    at = [next_sweep_at(UUID(int=number), now=NOON).astimezone(ZONE) for number in range(1000)]
    assert {each.date().isoformat() for each in at} == {"2026-11-24"}
    assert min(each.hour for each in at) == 1
    assert max(each.hour for each in at) == 4
    assert len(set(at)) == 1000


@pytest.mark.parametrize("hours", range(24))
def test_each_connection_is_swept_once_a_night(hours: int) -> None:
    """[D-161]"""
    now = NOON + timedelta(hours=hours)
    at = next_sweep_at(UUID(int=400), now=now)
    assert timedelta(0) < at - now <= timedelta(days=1)
    assert next_sweep_at(UUID(int=400), now=at) == at + timedelta(days=1)


def test_the_least_id_is_below_all_ids_of_its_instant() -> None:
    assert all(least_id(NOON) < each for each in new_ids(NOON, 100))
    assert least_id(NOON) > max(new_ids(NOON - timedelta(milliseconds=1), 100))
