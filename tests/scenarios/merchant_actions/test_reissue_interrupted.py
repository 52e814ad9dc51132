"""Interrupted reissues: the gateway confirms the cancellation late or never, or the process dies (D-51, D-171)."""

import asyncio
from uuid import UUID

import pytest

from fatura.usecases.merchant_actions import charge_release, reissue
from fatura.usecases.merchant_actions.reissue import Wanted
from fatura.usecases.transaction import load_account
from tests.support.reissue_steps import ask, payable, refused, unpaid_invoice
from tests.support.sandbox_steps import cancel, charges, move, pass_time, queue_fault, read
from tests.support.world import Json, World


async def release(world: World, invoice: Json) -> None:
    """Cancel the charge at the gateway, as a process does that dies before it records the answer."""
    account = await load_account(world.deps, world.account_id)
    anyhow = Wanted(None, None, None)
    assert await reissue.release_charge(world.deps, account, UUID(invoice["id"]), anyhow) is not None


@pytest.mark.parametrize(
    ("fault", "canceled"),
    [("rejected", False), ("rate_limited", False), ("timeout_before", False), ("timeout_after", True)],
)
async def test_an_unconfirmed_cancellation_changes_nothing(
    world: World, fault: str, *, canceled: bool
) -> None:
    """If the gateway has canceled the charge although its answer was lost, the next poll continues the reissue.
    [D-51 409]
    """
    invoice = await unpaid_invoice(world)
    await queue_fault(world, "cancel_charge", fault)
    await refused(world, invoice, paymentMethod="boleto")

    await pass_time(world, minutes=2)

    assert len(await world.events("invoice.reissued")) == canceled
    assert [each["status"] for each in await charges(world)] == (
        ["open", "canceled"] if canceled else ["open"]
    )
    assert (await read(world, invoice))["status"] == "issued"
    assert await world.broken() == []
    if canceled:
        assert (await charges(world))[0]["paymentMethod"] == "boleto"
    else:
        assert (await ask(world, invoice)).json["status"] == "ready"


async def test_an_ended_reissue_leaves_a_later_cancellation_alone(world: World) -> None:
    """The gateway did not confirm the cancellation, so the reissue ended.

    Weeks later, the merchant cancels the charge at the gateway. This cancels the invoice. [D-51 409, D-27]
    """
    invoice = await unpaid_invoice(world)
    await queue_fault(world, "cancel_charge", "timeout_before")
    await refused(world, invoice)
    await world.sql("UPDATE reissue_request SET in_progress_until = now() - interval '1 day'")
    await pass_time(world, days=2)
    assert await world.sql("SELECT FROM reissue_request") == []
    [charge] = await charges(world)
    await move(world, charge, "cancel")
    await world.run("reconciliation")
    assert (await read(world, invoice))["status"] == "canceled"
    assert await world.broken() == []


async def test_a_process_that_dies_after_the_cancellation_leaves_a_reissue(world: World) -> None:
    """The next poll continues the reissue, and does not cancel the invoice. [D-51 crash]"""
    invoice = await unpaid_invoice(world)
    await release(world, invoice)
    assert [each["status"] for each in await charges(world)] == ["canceled"]
    assert (await read(world, invoice))["status"] == "issued"

    await pass_time(world, minutes=2)

    assert (await read(world, invoice))["status"] == "issued"
    assert [each["status"] for each in await charges(world)] == ["open", "canceled"]
    assert len(await world.events("invoice.reissued")) == 1
    assert await world.events("invoice.canceled") == []
    assert await world.broken() == []


async def test_a_process_that_dies_before_the_cancellation_changes_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[D-51 crash]"""
    invoice = await unpaid_invoice(world)

    async def die(*_: object, **_named: object) -> None:
        raise asyncio.CancelledError

    monkeypatch.setattr(charge_release, "cancel", die)
    with pytest.raises(asyncio.CancelledError):
        await release(world, invoice)
    monkeypatch.undo()
    await world.sql("UPDATE reissue_request SET in_progress_until = now() - interval '1 day'")
    await pass_time(world, minutes=2)
    assert [each["status"] for each in await charges(world)] == ["open"]
    assert (await read(world, invoice))["status"] == "issued"
    assert await world.sql("SELECT FROM reissue_request") == []


async def test_a_late_cancellation_continues_the_reissue(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process is suspended before it calls the gateway.

    While it is suspended, polls find the charge payable. It resumes, makes the call and dies. [D-171]
    """
    invoice = await unpaid_invoice(world)
    cancel_charge = charge_release.cancel

    async def cancel_late_and_die(*args: object, **named: object) -> None:
        await world.sql("UPDATE reissue_request SET in_progress_until = now() - interval '1 minute'")
        await pass_time(world, hours=2)
        await cancel_charge(*args, **named)  # pyright: ignore[reportArgumentType] - passed on
        raise asyncio.CancelledError

    monkeypatch.setattr(charge_release, "cancel", cancel_late_and_die)
    with pytest.raises(asyncio.CancelledError):
        await release(world, invoice)
    monkeypatch.undo()
    assert (await read(world, invoice))["status"] == "issued"

    await pass_time(world, days=1)

    assert [each["status"] for each in await charges(world)] == ["open", "canceled"]
    assert len(await world.events("invoice.reissued")) == 1
    assert await world.events("invoice.canceled") == []
    assert await world.broken() == []


async def test_a_cancellation_replaces_a_reissue_without_an_answer(world: World) -> None:
    """A poll between the two transactions of the cancellation does not continue the reissue. [D-171, D-27]"""
    invoice = await unpaid_invoice(world)
    await queue_fault(world, "cancel_charge", "timeout_before")
    await refused(world, invoice)
    cancel_charge = charge_release.cancel

    async def poll_after(*args: object, **named: object) -> object:
        answer = await cancel_charge(*args, **named)  # pyright: ignore[reportArgumentType] - passed on
        await world.sql("UPDATE invoice SET next_attempt_at = created_at")
        assert await world.run("reconciliation") == 1
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(charge_release, "cancel", poll_after)
        assert (await cancel(world, invoice)).json["status"] == "canceled"

    await pass_time(world, days=1)
    assert await payable(world) == []
    assert await world.events("invoice.reissued") == []
    assert await world.broken() == []


async def test_a_poll_between_the_two_transactions_completes_the_reissue(world: World) -> None:
    """The webhook of the cancellation arrives before the request ends. The client gets the reissued invoice.
    [D-51 crash]
    """
    invoice = await unpaid_invoice(world)
    polled, cancel_charge = list[int](), charge_release.cancel

    async def poll_after(*args: object, **named: object) -> object:
        answer = await cancel_charge(*args, **named)  # pyright: ignore[reportArgumentType] - passed on
        await world.sql("UPDATE invoice SET next_attempt_at = created_at")
        polled.append(await world.run("reconciliation"))
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(charge_release, "cancel", poll_after)
        answer = await ask(world, invoice)

    assert (polled, answer.status, answer.json["status"]) == ([1], 200, "ready")
    await world.run()
    assert len(await charges(world)) == 2
    assert len(await world.events("invoice.reissued")) == 1
    assert await world.broken() == []
