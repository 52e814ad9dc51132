"""While an account is frozen after a restore, late look-ups and looks wait (D-123, D-125, D-162)."""

from uuid import UUID

import pytest

from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import Charge
from fatura.usecases.restore import comparison
from tests.support.restore_steps import compare, create_unmatched_charge
from tests.support.sandbox_steps import (
    charges,
    issued_invoice,
    pass_time,
    pay_silently,
    queue_fault,
    read,
    ready_invoice,
)
from tests.support.world import Json, World

TOTAL = 9990


async def absent_charge(world: World) -> Json:
    """Return an invoice whose charge is believed absent. The first late look-up is due in minutes."""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await ready_invoice(world)
    await queue_fault(world, "create_charge", "timeout_before")
    await world.run("issuance")
    await queue_fault(world, "create_charge", "rate_limited", times=1000)
    await pass_time(world, minutes=5)
    await world.sql("DELETE FROM sandbox_fault")
    # Without sweeps, only late look-ups find charges.
    await world.sql("UPDATE connection_sweep SET next_sweep_at = '2900-01-01'")
    return invoice


async def let_look_ups_be_due(world: World) -> None:
    await world.sql("UPDATE account SET clock_offset = clock_offset + interval '20 minutes'")


async def test_a_late_look_up_of_a_frozen_account_waits_for_the_comparison(world: World):
    invoice = await absent_charge(world)
    older, newer = [
        (await create_unmatched_charge(world, UUID(invoice["id"]), TOTAL, attempt=attempt)).charge_id
        for attempt in (1, 2)
    ]
    await pay_silently(world, newer)
    await comparison.freeze(world.deps, world.account_id)
    await let_look_ups_be_due(world)
    await world.run("reconciliation", "gateway_probe")
    assert (await read(world, invoice))["status"] == "ready"

    await compare(world)
    await world.sql("UPDATE connection_sweep SET next_sweep_at = '2900-01-01'")
    await world.run("issuance", "reconciliation")
    await pass_time(world, hours=1)
    shown = await read(world, invoice)
    assert (shown["status"], shown["paidCents"]) == ("paid", TOTAL)
    assert {each["chargeId"]: each["status"] for each in await charges(world)} == {
        older: "canceled",
        newer: "paid",
    }


async def test_a_late_look_up_answered_after_the_freeze_is_not_recorded(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    invoice = await absent_charge(world)
    charge = await create_unmatched_charge(world, UUID(invoice["id"]), TOTAL)
    await pay_silently(world, charge.charge_id)
    find_charges = SandboxGateway.find_charges

    async def freeze_and_find(gateway: SandboxGateway, invoice_id: UUID, attempt: int) -> list[Charge]:
        await comparison.freeze(world.deps, world.account_id)
        return list(await find_charges(gateway, invoice_id, attempt))

    monkeypatch.setattr(SandboxGateway, "find_charges", freeze_and_find)
    await let_look_ups_be_due(world)
    await world.run("reconciliation")
    assert await world.sql("SELECT 1 FROM account WHERE recovering_since IS NOT NULL")
    assert (await read(world, invoice))["status"] == "ready"


async def test_a_look_that_is_answered_during_the_freeze_is_not_recorded(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    """The account is frozen while the look waits for the gateway. After the freeze, the look is repeated."""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await issued_invoice(world)
    second = (await create_unmatched_charge(world, UUID(invoice["id"]), TOTAL, attempt=2)).charge_id
    await pay_silently(world, second)
    await compare(world)  # schedules a look
    get_charge = SandboxGateway.get_charge

    async def freeze_and_get(gateway: SandboxGateway, charge_id: str) -> Charge:
        await comparison.freeze(world.deps, world.account_id)
        return await get_charge(gateway, charge_id)

    with monkeypatch.context() as patched:
        patched.setattr(SandboxGateway, "get_charge", freeze_and_get)
        await world.run("reconciliation")
    assert await world.sql("SELECT 1 FROM account WHERE recovering_since IS NOT NULL")
    assert (await read(world, invoice))["paidCents"] == 0

    await compare(world)
    await pass_time(world, minutes=15)
    assert (await read(world, invoice))["status"] == "paid"
