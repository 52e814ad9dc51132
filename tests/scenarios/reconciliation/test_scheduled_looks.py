"""At most 20 charges that only webhooks name wait for looks; new charges replace unanswered ones (D-162)."""

from datetime import timedelta

import pytest

from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import Charge
from fatura.usecases.reconciliation.scheduled_looks import MAX_WAITING
from tests.support.sandbox_steps import now, queue_fault
from tests.support.sweep_steps import double_silently, second_charge_events
from tests.support.webhook_steps import Hook, hook, issued_with_webhooks
from tests.support.world import Json, World


async def notify(world: World, charge_id: str) -> None:
    """Send an authentic webhook that names a charge."""
    sent: Hook = await hook(world, {"gatewayInvoiceId": charge_id})
    assert (await sent.send(world)).status == 200


async def looked_at(world: World) -> None:
    """Make all scheduled looks due, and run the lane that makes them."""
    await world.sql("UPDATE unmatched_charge SET next_look_at = '2000-01-01' WHERE next_look_at IS NOT NULL")
    await world.run("reconciliation")


async def waiting(world: World) -> list[Json]:
    return [dict(row) for row in await world.sql("SELECT * FROM unmatched_charge ORDER BY gateway_charge_id")]


async def other_calls_succeed(world: World) -> None:
    """Let the connection work again, although reads of some charges are not answered."""
    await world.sql(
        """
        UPDATE connection_health SET failures = 0, probes = 0, failing_since = NULL, next_probe_at = NULL,
            emitted = false, error_code = NULL, error_detail = NULL
        """
    )


async def test_unanswered_looks_leave_places_to_later_webhooks(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gateway answers no read of the strangers' charges, and a new charge replaces the oldest one. [D-162]"""
    second = await double_silently(world, await issued_with_webhooks(world))
    get_charge = SandboxGateway.get_charge

    async def answers_one(self: SandboxGateway, charge_id: str) -> Charge:
        if charge_id != second:
            raise TimeoutError
        return await get_charge(self, charge_id)

    monkeypatch.setattr(SandboxGateway, "get_charge", answers_one)
    strangers = [f"sbx_{number:032}" for number in range(MAX_WAITING)]
    for each in strangers:
        await notify(world, each)
        await world.sql("UPDATE unmatched_charge SET found_at = found_at - interval '1 second'")
    await looked_at(world)
    await other_calls_succeed(world)

    await notify(world, second)
    assert [each["gateway_charge_id"] for each in await waiting(world)] == sorted([*strangers[1:], second])
    await looked_at(world)
    assert await second_charge_events(world) == [second]

    others = [f"sbx_{number:032}" for number in range(50, 60)]
    for each in others:
        await notify(world, each)
    kept = [each["gateway_charge_id"] for each in await waiting(world) if each["state"] is None]
    assert kept == [*strangers[-10:], *others]


async def test_a_full_waiting_list_still_takes_webhooks_about_known_charges(world: World) -> None:
    """[D-162, D-50]"""
    second = await double_silently(world, await issued_with_webhooks(world))
    await queue_fault(world, "cancel_charge", "rejected")
    await notify(world, second)
    await looked_at(world)
    await world.sql("UPDATE unmatched_charge SET next_look_at = '2900-01-01'")
    for number in range(MAX_WAITING):
        await notify(world, f"sbx_{number:032}")

    await notify(world, second)

    [known] = [each for each in await waiting(world) if each["gateway_charge_id"] == second]
    assert known["next_look_at"] - await now(world) <= timedelta(minutes=1)
