"""Webhooks can make at most 20 unknown charges wait for looks. A new charge can replace one of them (D-162)."""

import asyncio
from datetime import timedelta
from functools import partial
from uuid import UUID

import pytest

from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import Charge
from fatura.usecases.reconciliation.scheduled_looks import MAX_WAITING, REPLACEABLE_LOOKS, look_later
from fatura.usecases.transaction import in_transaction, load_account
from tests.support.sandbox_steps import now, queue_fault
from tests.support.sweep_steps import double_silently, second_charge_events, sweep
from tests.support.webhook_steps import Hook, budget_free, hook, issued_with_webhooks
from tests.support.world import Json, World


async def notify(world: World, charge_id: str) -> None:
    """Send an authentic webhook that names a charge."""
    sent: Hook = await hook(world, {"gatewayInvoiceId": charge_id})
    assert (await sent.send(world)).status == 200


async def looked_at(world: World) -> None:
    """Make all scheduled looks due, and run the lane `reconciliation`."""
    await world.sql("UPDATE unmatched_charge SET next_look_at = '2000-01-01' WHERE next_look_at IS NOT NULL")
    await world.run("reconciliation")


async def waiting(world: World) -> list[Json]:
    return [dict(row) for row in await world.sql("SELECT * FROM unmatched_charge ORDER BY gateway_charge_id")]


async def other_calls_succeed(world: World) -> None:
    """End the failing state of the connection, as a successful call would."""
    await world.sql(
        """
        UPDATE connection_health SET failures = 0, probes = 0, failing_since = NULL, next_probe_at = NULL,
            emitted = false, error_code = NULL, error_detail = NULL
        """
    )


async def unanswered(world: World, *, looks: int = REPLACEABLE_LOOKS) -> None:
    """Make `looks` looks at each waiting charge. Then set `found_at` of the charges back by an hour."""
    for _ in range(looks):
        await looked_at(world)
        await other_calls_succeed(world)
        await budget_free(world)
    await world.sql("UPDATE unmatched_charge SET found_at = found_at - interval '1 hour'")


async def stored_ids(world: World) -> list[str]:
    return [each["gateway_charge_id"] for each in await waiting(world)]


def strangers_charges(count: int = MAX_WAITING, *, start: int = 0) -> list[str]:
    return [f"sbx_{number:032}" for number in range(start, start + count)]


def answer_all_but(monkeypatch: pytest.MonkeyPatch, unanswered_ids: set[str]) -> None:
    """Make reads of the charges `unanswered_ids` time out."""
    get_charge = SandboxGateway.get_charge

    async def answers_others(self: SandboxGateway, charge_id: str) -> Charge:
        if charge_id in unanswered_ids:
            raise TimeoutError
        return await get_charge(self, charge_id)

    monkeypatch.setattr(SandboxGateway, "get_charge", answers_others)


async def test_unanswered_looks_leave_places_to_later_webhooks(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new charge replaces the oldest of the charges whose looks the gateway has not answered. [D-162]"""
    second = await double_silently(world, await issued_with_webhooks(world))
    strangers = strangers_charges()
    others = strangers_charges(10, start=50)
    answer_all_but(monkeypatch, {*strangers, *others})
    for each in strangers:
        await notify(world, each)
        await world.sql("UPDATE unmatched_charge SET found_at = found_at - interval '1 second'")
    await unanswered(world)

    await notify(world, second)
    assert await stored_ids(world) == sorted([*strangers[1:], second])
    await looked_at(world)
    assert await second_charge_events(world) == [second]

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


@pytest.mark.parametrize("looks", [1, REPLACEABLE_LOOKS - 1])
async def test_a_few_unanswered_looks_do_not_cost_a_charge_its_place(
    world: World, monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    """The gateway does not answer a few looks at the second charge. The engine still keeps this charge when later
    webhooks name other charges. [D-162, D-125]
    """
    second = await double_silently(world, await issued_with_webhooks(world))
    answer_all_but(monkeypatch, {second})
    await notify(world, second)
    await unanswered(world, looks=looks)
    monkeypatch.undo()

    for each in strangers_charges():
        await notify(world, each)

    assert len(await waiting(world)) == MAX_WAITING
    await looked_at(world)
    assert await second_charge_events(world) == [second]


async def test_a_charge_of_the_nightly_sweep_needs_no_place(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A webhook names the second charge, and then the sweep finds it too. All looks at this charge time out.
    [D-161, D-162]
    """
    second = await double_silently(world, await issued_with_webhooks(world))
    answer_all_but(monkeypatch, {second})
    await notify(world, second)
    await sweep(world)
    await other_calls_succeed(world)
    await unanswered(world)

    strangers = strangers_charges()
    for each in strangers:
        await notify(world, each)

    assert await stored_ids(world) == sorted([*strangers, second])


async def test_webhooks_that_repeat_old_charges_cannot_exceed_the_places(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One webhook names the 20 waiting charges, whose looks are not answered, and 20 new charges. [D-162]"""
    await double_silently(world, await issued_with_webhooks(world))
    old = strangers_charges()
    answer_all_but(monkeypatch, set(old))
    connection = (await world.get("/v1/integration")).json["gateways"][0]
    account = await load_account(world.deps, world.account_id)
    name = partial(look_later, connection_id=UUID(connection["connectionId"]))
    await in_transaction(world.deps, account, name, gateway_charge_ids=old)
    await unanswered(world)

    both = [*old, *strangers_charges(start=50)]
    await in_transaction(world.deps, account, name, gateway_charge_ids=both)

    assert await stored_ids(world) == old


async def test_a_charge_that_is_replaced_during_its_look_is_stored_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call that cancels the second charge fails, so the engine has to look at the charge again. [D-162, D-125]"""
    second = await double_silently(world, await issued_with_webhooks(world))
    await notify(world, second)
    get_charge, asked, answer = SandboxGateway.get_charge, asyncio.Event(), asyncio.Event()

    async def slow(self: SandboxGateway, charge_id: str) -> Charge:
        asked.set()
        await answer.wait()
        return await get_charge(self, charge_id)

    monkeypatch.setattr(SandboxGateway, "get_charge", slow)
    looking = asyncio.create_task(looked_at(world))
    await asyncio.wait_for(asked.wait(), 10)
    await world.sql("DELETE FROM unmatched_charge")
    await queue_fault(world, "cancel_charge", "timeout_before")
    answer.set()
    await looking

    assert await second_charge_events(world) == [second]
    [kept] = await waiting(world)
    assert (kept["state"], kept["next_look_at"] is not None) == ("open", True)
