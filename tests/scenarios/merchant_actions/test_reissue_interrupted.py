"""Interrupted reissues: the gateway confirms the cancellation late or never, or the process dies (D-51, D-171)."""

import pytest

from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import Charge
from tests.support.cancellation_steps import around_the_cancellation, die, end_requests, killed
from tests.support.expect import problem
from tests.support.reissue_steps import ask, payable, refused, unpaid_invoice
from tests.support.sandbox_steps import (
    cancel,
    charges,
    move,
    now,
    pass_time,
    patch_connection,
    queue_fault,
    read,
)
from tests.support.world import Answer, Json, World


@pytest.mark.parametrize(
    ("fault", "canceled"),
    [("rejected", False), ("rate_limited", False), ("timeout_before", False), ("timeout_after", True)],
)
async def test_an_unconfirmed_cancellation_changes_nothing(
    world: World, fault: str, *, canceled: bool
) -> None:
    """With `timeout_after`, the gateway has canceled the charge, so the next poll continues the reissue. [D-51 409]"""
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


async def test_a_slow_cancellation_continues_the_reissue_soon(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cancellation gets no answer. Polls become rarer until the gateway cancels the charge hours later.
    [D-171]
    """
    invoice = await unpaid_invoice(world)
    await queue_fault(world, "cancel_charge", "timeout_before")
    await refused(world, invoice)
    polled, get_charge = list[str](), SandboxGateway.get_charge

    async def noted(gateway: SandboxGateway, charge_id: str) -> Charge:
        polled.append(charge_id)
        return await get_charge(gateway, charge_id)

    monkeypatch.setattr(SandboxGateway, "get_charge", noted)
    await pass_time(world, minutes=2)
    assert len(polled) == 1
    await pass_time(world, hours=2)
    assert len(polled) == 5

    await world.sql("UPDATE sandbox_charge SET status = 'canceled'")
    await pass_time(world, hours=1)

    assert [each["status"] for each in await charges(world)] == ["open", "canceled"]
    assert len(await world.events("invoice.reissued")) == 1
    assert await world.events("invoice.canceled") == []
    assert await world.broken() == []


async def test_an_ended_reissue_leaves_a_later_cancellation_alone(world: World) -> None:
    """The reissue ended after 24 hours without a confirmed cancellation. When the merchant then cancels the charge at
    the gateway, Fatura cancels the invoice. [D-51 409, D-27]
    """
    invoice = await unpaid_invoice(world)
    await queue_fault(world, "cancel_charge", "timeout_before")
    await refused(world, invoice)
    await world.sql("UPDATE merchant_request SET in_progress_until = now() - interval '1 day'")
    await pass_time(world, days=2)
    assert await world.sql("SELECT FROM merchant_request") == []
    [charge] = await charges(world)
    await move(world, charge, "cancel")
    await world.run("reconciliation")
    assert (await read(world, invoice))["status"] == "canceled"
    assert await world.broken() == []


async def test_a_process_that_dies_after_the_cancellation_leaves_a_reissue(world: World) -> None:
    """The next poll continues the reissue, and does not cancel the invoice. [D-51 crash]"""
    invoice = await unpaid_invoice(world)
    await killed(ask(world, invoice))
    assert [each["status"] for each in await charges(world)] == ["canceled"]
    assert (await read(world, invoice))["status"] == "issued"

    await pass_time(world, minutes=2)

    assert (await read(world, invoice))["status"] == "issued"
    assert [each["status"] for each in await charges(world)] == ["open", "canceled"]
    assert len(await world.events("invoice.reissued")) == 1
    assert await world.events("invoice.canceled") == []
    assert await world.broken() == []


async def test_a_process_that_dies_before_the_cancellation_changes_nothing(world: World) -> None:
    """[D-51 crash]"""
    invoice = await unpaid_invoice(world)
    await killed(ask(world, invoice), before=die)
    await world.sql("UPDATE merchant_request SET in_progress_until = now() - interval '1 day'")
    await pass_time(world, minutes=2)
    assert [each["status"] for each in await charges(world)] == ["open"]
    assert (await read(world, invoice))["status"] == "issued"
    assert await world.sql("SELECT FROM merchant_request") == []


@pytest.mark.parametrize(
    "changes",
    [{"active": False}, {"settings": {"behaviour": "never_pay", "methods": ["boleto"]}}],
    ids=["inactive", "method"],
)
async def test_a_change_of_the_connection_during_the_cancellation_does_not_stop_the_reissue(
    world: World, changes: Json
) -> None:
    """During the cancellation, the connection changes so that the API would refuse a new reissue.

    The API must not refuse the running reissue: the charge is canceled, so a poll would continue the reissue anyway.
    [D-51, D-131]
    """
    invoice = await unpaid_invoice(world)

    async def change() -> None:
        await patch_connection(world, **changes)

    with around_the_cancellation(before=change):
        answer = await ask(world, invoice)

    assert (answer.status, answer.json["status"]) == (200, "ready"), answer.body
    await patch_connection(
        world, active=True, settings={"behaviour": "never_pay", "methods": ["pix", "boleto"]}
    )
    await world.run()
    assert (await read(world, invoice))["status"] == "issued"
    assert [each["status"] for each in await charges(world)] == ["open", "canceled"]
    assert len(await world.events("invoice.reissued")) == 1
    assert await world.broken() == []


async def test_a_late_cancellation_continues_the_reissue(world: World) -> None:
    """The API process is suspended just before it asks the gateway to cancel the charge.

    Meanwhile, polls find the charge payable. Then the process resumes, sends the cancellation and dies.
    [D-171]
    """
    invoice = await unpaid_invoice(world)

    async def wait() -> None:
        await end_requests(world)
        await pass_time(world, hours=2)

    await killed(ask(world, invoice), before=wait)
    assert (await read(world, invoice))["status"] == "issued"

    await pass_time(world, days=1)

    assert [each["status"] for each in await charges(world)] == ["open", "canceled"]
    assert len(await world.events("invoice.reissued")) == 1
    assert await world.events("invoice.canceled") == []
    assert await world.broken() == []


async def test_a_repeat_gets_the_reissue_that_a_poll_has_continued(world: World) -> None:
    """[D-51 key, D-51 crash]"""
    invoice = await unpaid_invoice(world)
    await killed(ask(world, invoice, key="once"))
    await end_requests(world)
    await pass_time(world, minutes=2)

    repeats = [await ask(world, invoice, key="once") for _ in range(2)]

    assert [each.status for each in repeats] == [200, 200]
    assert repeats[0].body == repeats[1].body
    assert [each["status"] for each in await charges(world)] == ["open", "canceled"]
    assert len(await world.events("invoice.reissued")) == 1
    assert await world.broken() == []


@pytest.mark.parametrize("is_continued", [False, True])
async def test_a_repeat_is_accepted_after_its_due_date(world: World, *, is_continued: bool) -> None:
    """The process dies, and the client repeats the request on the next day. [D-51 key]"""
    invoice = await unpaid_invoice(world)
    today = (await now(world)).date().isoformat()
    await killed(ask(world, invoice, key="once", dueDate=today))
    await end_requests(world)
    if is_continued:
        await pass_time(world, minutes=2)
    await world.sql("UPDATE account SET clock_offset = clock_offset + interval '1 day'")

    repeat = await ask(world, invoice, key="once", dueDate=today)
    await world.run()

    assert repeat.status == 200, repeat.body
    assert [each["status"] for each in await charges(world)] == ["open", "canceled"]
    assert len(await world.events("invoice.reissued")) == 1
    assert problem(await ask(world, invoice, dueDate=today))[:2] == (400, "engine.invalid_request")
    assert await world.broken() == []


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_repeat_continues_the_reissue_of_a_process_that_died(world: World, moment: str) -> None:
    """[D-51 key, D-51 crash]"""
    invoice = await unpaid_invoice(world)
    await killed(ask(world, invoice, key="once"), **{moment: die})
    await end_requests(world)

    repeat = await ask(world, invoice, key="once")
    await pass_time(world, minutes=2)

    assert (repeat.status, repeat.json["status"]) == (200, "ready")
    assert (await ask(world, invoice, key="once")).body == repeat.body
    assert [each["status"] for each in await charges(world)] == ["open", "canceled"]
    assert len(await world.events("invoice.reissued")) == 1
    assert await world.broken() == []


@pytest.mark.faults
async def test_a_repeat_waits_for_the_first_request(world: World) -> None:
    """After five seconds, the repeat gets 409, without a call to the gateway. [D-14, D-51 key]"""
    invoice = await unpaid_invoice(world)
    answers = list[Answer]()

    async def repeat() -> None:
        answers.append(await ask(world, invoice, key="once"))

    with around_the_cancellation(before=repeat):
        first = await ask(world, invoice, key="once")

    assert [problem(each) for each in answers] == [(409, "engine.idempotency_in_progress", None)]
    assert int(answers[0].headers["retry-after"]) >= 1
    assert (await ask(world, invoice, key="once")).body == first.body
    assert len(await world.events("invoice.reissued")) == 1


async def test_a_key_is_free_after_a_refusal(world: World) -> None:
    """[D-14, D-51 409]"""
    invoice = await unpaid_invoice(world)
    await queue_fault(world, "cancel_charge", "rejected")
    assert (await ask(world, invoice, key="once")).status == 409

    assert (await ask(world, invoice, key="once", paymentMethod="boleto")).status == 200


async def test_a_cancellation_replaces_a_reissue_without_an_answer(world: World) -> None:
    """A poll between the two transactions of the cancellation does not continue the reissue. [D-171, D-27]"""
    invoice = await unpaid_invoice(world)
    await queue_fault(world, "cancel_charge", "timeout_before")
    await refused(world, invoice)

    async def poll() -> None:
        await world.sql("UPDATE invoice SET next_attempt_at = created_at")
        assert await world.run("reconciliation") == 1

    with around_the_cancellation(after=poll):
        assert (await cancel(world, invoice)).json["status"] == "canceled"

    await pass_time(world, days=1)
    assert await payable(world) == []
    assert await world.events("invoice.reissued") == []
    assert await world.broken() == []


async def test_a_poll_between_the_two_transactions_completes_the_reissue(world: World) -> None:
    """A poll finds the charge canceled before the request ends. The client still gets the reissued invoice.
    [D-51 crash]
    """
    invoice = await unpaid_invoice(world)

    async def poll() -> None:
        await world.sql("UPDATE invoice SET next_attempt_at = created_at")
        assert await world.run("reconciliation") == 1

    with around_the_cancellation(after=poll):
        answer = await ask(world, invoice)

    assert (answer.status, answer.json["status"]) == (200, "ready")
    await world.run()
    assert len(await charges(world)) == 2
    assert len(await world.events("invoice.reissued")) == 1
    assert await world.broken() == []
