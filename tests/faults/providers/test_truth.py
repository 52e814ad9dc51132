"""Test `truth`: it finds nothing after correct billing, and reports what somebody changes at a provider."""

from pathlib import Path

import pytest

from fatura.workers.lanes import LANES
from tests.faults.clock import started
from tests.faults.providers.doubles import SimulatedAsaas
from tests.faults.providers.truth import compare
from tests.faults.providers.world import World, open_world
from tests.faults.report import Report
from tests.support.world import run_until_idle

pytestmark = pytest.mark.faults
DAY_SECONDS = 86400
MISSING = "invoices without a charge at the provider"
DOUBLE = "invoices with two charges that are paid or can be paid"
CENTS = "cents by which the ledgers of providers and engine differ"
ONE = "invoices with exactly one charge, asaas"


async def found(world: World) -> dict[str, float]:
    """Return the figures that are outside their bounds."""
    report = Report("providers", 1)
    await compare(world, report, charges=1)
    wrong = {each.what: each.value for each in report.figures if not each.holds}
    assert wrong or not report.problems, report.problems
    return wrong


async def test_each_difference_of_a_provider_is_reported(database_url: str, tmp_path: Path) -> None:
    """Everything is paid. Then Asaas makes a second charge, receives more, and loses the charge. [D-33, D-261]"""
    clock = started(speed=1, jumps=tmp_path / "clock")
    async with open_world(database_url, clock=clock, charges=1, seed=1) as world:
        await run_until_idle(world.deps, LANES)
        for simulated in (shop.simulated for shop in world.shops):
            [charge] = simulated.held()
            simulated.pay(charge)
        clock.jump(5 * DAY_SECONDS)
        await run_until_idle(world.deps, LANES)
        assert await found(world) == {}

        [asaas] = [each.simulated for each in world.shops if isinstance(each.simulated, SimulatedAsaas)]
        [paid] = asaas.account.payments.values()
        asaas.account.payments["pay_other"] = {**paid, "id": "pay_other", "status": "PENDING"}
        assert await found(world) == {ONE: 0, DOUBLE: 1}
        del asaas.account.payments["pay_other"]
        paid["value"] += 1
        assert await found(world) == {CENTS: 100}
        asaas.account.payments.clear()
        assert await found(world) == {ONE: 0, MISSING: 1, CENTS: paid["value"] * 100 - 100}
