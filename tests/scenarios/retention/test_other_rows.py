"""Old price calls and audit entries are deleted. An account without old rows is not visited (D-246, D-247)."""

from datetime import timedelta

import pytest

from fatura import settings
from fatura.settings import SettingsError
from tests.support.populated import populate
from tests.support.price_server import PriceServer
from tests.support.price_steps import usage
from tests.support.retention_steps import AUDIT_DAYS, EVENT_DAYS, PRICE_CALL_DAYS, age, count
from tests.support.sandbox_steps import read
from tests.support.world import LANE, World


async def _calls(world: World) -> list[int]:
    """Return the number of price calls that each invoice shows, oldest invoice first."""
    return [len((await read(world, each))["pricingAttempts"]) for each in await world.invoices()]


async def test_price_calls_of_open_invoices_are_kept(world: World, prices: PriceServer) -> None:
    """[D-246]"""
    prices.answers({"amount": 500})
    plan = await world.plan(await usage(world, prices))
    await world.set_up_gateway(behaviour="never_pay")
    for _ in range(2):
        await world.enroll(plan)
    await world.run()
    paid, unpaid = await world.invoices()
    await world.made(f"/v1/invoices/{paid['id']}/payments", {"method": "cash"})
    assert await _calls(world) == [1, 1]
    await age(world, days=PRICE_CALL_DAYS, plus=-timedelta(minutes=1))
    await world.run("retention")
    assert await _calls(world) == [1, 1]

    await age(world, days=PRICE_CALL_DAYS)
    await world.run("retention")

    assert await _calls(world) == [0, 1]
    assert await world.broken() == []
    assert (await world.post(f"/v1/invoices/{unpaid['id']}/cancel")).status == 200
    await world.run("retention")
    assert await _calls(world) == [0, 1]
    await age(world, days=PRICE_CALL_DAYS + 1)
    await world.run("retention")
    assert await _calls(world) == [0, 0]


async def test_old_price_calls_are_deleted_once_an_hour(world: World, prices: PriceServer) -> None:
    """The second invoice's call reaches the age of deletion a minute after the first invoice's call. [D-247]"""
    prices.answers({"amount": 500})
    plan = await world.plan(await usage(world, prices))
    await world.set_up_gateway(behaviour="never_pay")
    for _ in range(2):
        await world.enroll(plan)
    await world.run()
    first, second = await world.invoices()
    await world.made(f"/v1/invoices/{first['id']}/payments", {"method": "cash"})
    await age(world, days=PRICE_CALL_DAYS)
    await world.made(f"/v1/invoices/{second['id']}/payments", {"method": "cash"})
    await age(world, days=PRICE_CALL_DAYS, plus=-timedelta(minutes=1))
    await world.run("retention")
    assert await _calls(world) == [0, 1]

    await age(world, days=0, plus=timedelta(minutes=2))
    await world.run("retention")
    assert await _calls(world) == [0, 1]
    await age(world, days=0, plus=timedelta(hours=1))
    await world.run("retention")
    assert await _calls(world) == [0, 0]


async def test_old_audit_entries_are_deleted(world: World) -> None:
    """[D-225, D-246]"""
    for _ in range(4):
        await world.product()
    before = await world.audit()
    await age(world, days=AUDIT_DAYS, plus=timedelta(minutes=1), to=3)

    await world.run("retention")

    assert await world.audit() == before[3:]
    assert await world.broken() == []
    await world.product()
    assert len(await world.audit()) == len(before) - 2


async def test_an_account_with_every_kind_of_row_stays_sound(world: World) -> None:
    """[D-246]"""
    await populate(world)
    assert await world.broken() == []
    await age(world, days=EVENT_DAYS + 1)

    while await world.run("retention"):
        pass

    assert await count(world, "audit_entry") == 0
    assert await world.broken() == []


async def test_an_account_without_old_rows_is_not_visited(world: World) -> None:
    """[D-247, D-5]"""
    await world.enroll(await world.plan())
    await world.another()
    due = LANE["retention"].due
    assert await due(world.deps) == []
    await age(world, days=EVENT_DAYS + 1)
    assert [each.account_id for each in await due(world.deps)] == [world.account_id]
    await world.run("retention")
    assert await due(world.deps) == []


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("FATURA_RETENTION_EVENTS", "29", "from 30 to 36500 days"),
        ("FATURA_RETENTION_DELIVERIES", "1", "from 30"),
        ("FATURA_RETENTION_PRICE_CALLS", "36501", "36500"),
        ("FATURA_RETENTION_AUDIT", "179", "from 180"),
        ("FATURA_RETENTION_AUDIT", "five years", "whole number"),
        ("FATURA_RETENTION_EVENTS", "-1", "whole number"),
    ],
)
def test_an_invalid_number_of_days_is_refused(name: str, value: str, wanted: str) -> None:
    """[D-246]"""
    with pytest.raises(SettingsError, match=wanted) as refused:
        settings.read({name: value})
    assert name in str(refused.value)


def test_a_misspelt_setting_is_refused() -> None:
    """[D-246, D-237]"""
    with pytest.raises(SettingsError, match="did you mean FATURA_RETENTION_EVENTS"):
        settings.unknown_variables({"FATURA_RETENTION_EVENT": "400"})


def test_zero_keeps_rows_for_ever() -> None:
    """[D-246]"""
    kept = settings.read({"FATURA_RETENTION_EVENTS": "0", "FATURA_RETENTION_AUDIT": "180"}).retention
    assert set(kept) == {"deliveries", "price_calls", "audit", "gateway_webhooks", "charge_calls"}
    assert kept["audit"] == timedelta(days=180)
