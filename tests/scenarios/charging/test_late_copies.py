"""The engine finds further charges of an attempt late: it adopts the best one, and cancels the rest (D-125, D-181)."""

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

import pytest

from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import Charge, ChargeState
from tests.scenarios.reconciliation.test_scheduled_looks import looked_at, notify
from tests.support.sandbox_steps import (
    believed_absent,
    charge_statuses,
    pass_time,
    patch_connection,
    pay_silently,
    queue_fault,
    read,
    stored_charges,
)
from tests.support.sweep_steps import (
    TRIPLE_ID,
    cancel_with_refund,
    double_silently,
    second_charge_events,
    two_charges,
)
from tests.support.webhook_steps import SECRET, issued_with_webhooks
from tests.support.world import Json, World

_NO_SWEEP = "UPDATE connection_sweep SET next_sweep_at = '2900-01-01'"


def _expire(monkeypatch: pytest.MonkeyPatch, charge_id: str) -> None:
    """Let the gateway show an open charge as expired."""
    find, get = SandboxGateway.find_charges, SandboxGateway.get_charge

    def shown(charge: Charge) -> Charge:
        is_expired = charge.charge_id == charge_id and charge.state is ChargeState.OPEN
        return replace(charge, state=ChargeState.EXPIRED) if is_expired else charge

    async def find_charges(self: SandboxGateway, invoice_id: UUID, attempt: int) -> Sequence[Charge]:
        return [shown(each) for each in await find(self, invoice_id, attempt)]

    async def get_charge(self: SandboxGateway, wanted: str) -> Charge:
        return shown(await get(self, wanted))

    monkeypatch.setattr(SandboxGateway, "find_charges", find_charges)
    monkeypatch.setattr(SandboxGateway, "get_charge", get_charge)


async def _the_newer_was_adopted(world: World, invoice: Json, *, older: str, newer: str, status: str) -> None:
    """Check that the invoice has adopted the newer charge, whose status is `status`, and not the older one."""
    assert (await read(world, invoice))["gatewayInvoiceId"] == newer
    assert await charge_statuses(world) == {older: "canceled", newer: status}
    assert await world.broken() == []


@pytest.mark.parametrize("status", ["open", "paid"])
async def test_a_late_look_up_adopts_the_better_charge(
    world: World, monkeypatch: pytest.MonkeyPatch, status: str
) -> None:
    """The older charge is expired, or the payer paid the newer one. The engine believed both absent. [D-125, D-181]"""
    invoice, older, newer = await two_charges(world)
    await queue_fault(world, "list_charges", "unknown", times=3)
    await pass_time(world, seconds=81)
    await patch_connection(world, active=False)
    await pass_time(world, seconds=61)
    assert [each["stage"] for each in await stored_charges(world)] == ["absent"]
    if status == "open":
        _expire(monkeypatch, older)
    else:
        await pay_silently(world, newer)

    await pass_time(world, hours=1)
    await _the_newer_was_adopted(world, invoice, older=older, newer=newer, status=status)
    assert await second_charge_events(world) == [older]


@pytest.mark.parametrize("status", ["open", "paid"])
async def test_the_better_of_two_charges_that_webhooks_name_is_adopted(
    world: World, monkeypatch: pytest.MonkeyPatch, status: str
) -> None:
    """Webhooks name two charges before look-ups show them. The newer charge is better. [D-162, D-181]"""
    invoice, older, newer = await two_charges(world, webhookSecret=SECRET)
    if status == "open":
        _expire(monkeypatch, older)
    else:
        await pay_silently(world, newer)
    await queue_fault(world, "list_charges", "unknown")
    for each in (older, newer):
        await notify(world, each)
        await looked_at(world)

    await world.sql("UPDATE invoice SET next_attempt_at = created_at")
    await world.run("issuance")
    await pass_time(world, hours=1)
    await _the_newer_was_adopted(world, invoice, older=older, newer=newer, status=status)
    assert await second_charge_events(world) == ([] if status == "open" else [older])


@pytest.mark.parametrize("finder", ["look-up", "webhook"])
async def test_a_late_look_up_finds_a_third_charge(world: World, finder: str) -> None:
    """A look-up or a webhook shows the second charge. The gateway creates the third charge afterwards. [D-125]"""
    if finder == "look-up":
        _, own, second = await two_charges(world)
    else:
        invoice = await issued_with_webhooks(world)
        own, second = invoice["gatewayInvoiceId"], await double_silently(world, invoice)
        await notify(world, second)
    await world.sql(_NO_SWEEP)
    await pass_time(world, minutes=5)
    assert await charge_statuses(world) == {own: "open", second: "canceled"}

    third = await double_silently(world, {"gatewayInvoiceId": own}, charge_id=TRIPLE_ID)
    await pass_time(world, days=2)
    assert await charge_statuses(world) == {own: "open", second: "canceled", third: "canceled"}
    assert await second_charge_events(world) == [second, third]
    assert await world.broken() == []


async def test_an_invalid_copy_hides_no_second_charge_from_late_look_ups(world: World) -> None:
    """The gateway shows an invalid third charge, too. The engine still cancels the second charge. [D-50, D-125]"""
    await world.set_up_gateway(behaviour="never_pay")
    issued = await read(world, await believed_absent(world))
    second = await double_silently(world, issued)
    invalid = await double_silently(world, issued, charge_id=TRIPLE_ID)
    await cancel_with_refund(world, invalid)
    await world.sql(_NO_SWEEP)

    await pass_time(world, days=2)
    assert await charge_statuses(world) == {
        issued["gatewayInvoiceId"]: "open",
        second: "canceled",
        invalid: "canceled",
    }
    assert await second_charge_events(world) == [second]
    assert await world.broken() == []
