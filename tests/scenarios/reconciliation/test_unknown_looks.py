"""A webhook names a charge. The engine forgets the charge after the gateway has answered twice that it is unknown.

The two answers must be at least an hour apart (D-162).
"""

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest

from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import Capabilities, Charge, InvalidAnswerError, NotFoundError, PermanentError
from fatura.usecases.payments import second_charges
from fatura.usecases.reconciliation.scheduled_looks import MAX_WAITING
from fatura.usecases.transaction import in_transaction, load_account
from tests.scenarios.reconciliation.test_scheduled_looks import (
    looked_at,
    notify,
    stored_ids,
    strangers_charges,
    waiting,
)
from tests.support.sandbox_steps import charge_statuses, now, pass_time, queue_fault, read, refund_silently
from tests.support.sweep_steps import double_silently, second_charge_events
from tests.support.webhook_steps import issued_with_webhooks
from tests.support.world import Json, World

UNKNOWN = f"sbx_{99:032}"


@pytest.fixture(autouse=True)
def no_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the provider have no list of charges, so that no sweep finds the second charge."""
    capabilities = SandboxGateway.capabilities

    def without_list(self: SandboxGateway) -> Capabilities:
        return replace(capabilities(self), lists_charges=False)

    monkeypatch.setattr(SandboxGateway, "capabilities", without_list)


def refuse(monkeypatch: pytest.MonkeyPatch, charge_id: str, error: Exception) -> list[str]:
    """Let reads of a charge raise `error`. Return the list of these reads."""
    get_charge, asked = SandboxGateway.get_charge, list[str]()

    async def refused(self: SandboxGateway, wanted: str) -> Charge:
        if wanted != charge_id:
            return await get_charge(self, wanted)
        asked.append(wanted)
        raise error

    monkeypatch.setattr(SandboxGateway, "get_charge", refused)
    return asked


async def late_look_up(world: World, issued: Json) -> None:
    """Make a late look-up of the invoice's first attempt, and run the lane `reconciliation`."""
    account = await load_account(world.deps, world.account_id)
    await in_transaction(world.deps, account, second_charges.check_now, UUID(issued["id"]), 1)
    await world.run("reconciliation")


@pytest.mark.parametrize(
    "error",
    [
        NotFoundError("no such charge"),
        PermanentError("gone", "This charge is archived."),
        InvalidAnswerError("no amount"),
        ZeroDivisionError(),
    ],
)
async def test_one_unknown_answer_does_not_forget_a_second_charge(
    world: World, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """A provider shows a new charge late, and sends only one webhook about it. [D-162, D-125]"""
    issued = await issued_with_webhooks(world)
    second = await double_silently(world, issued)
    await notify(world, second)
    with monkeypatch.context() as patched:
        asked = refuse(patched, second, error)
        await pass_time(world, minutes=2)
    assert asked == [second]
    assert await second_charge_events(world) == []

    await pass_time(world, minutes=62)
    assert await charge_statuses(world) == {issued["gatewayInvoiceId"]: "open", second: "canceled"}
    assert await second_charge_events(world) == [second]
    assert await world.broken() == []


async def test_one_unknown_answer_does_not_end_the_cancellations_of_a_second_charge(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[D-162, D-125]"""
    issued = await issued_with_webhooks(world)
    second = await double_silently(world, issued)
    await notify(world, second)
    await queue_fault(world, "cancel_charge", "rejected")
    await pass_time(world, minutes=2)
    assert (await charge_statuses(world))[second] == "open"
    with monkeypatch.context() as patched:
        refuse(patched, second, NotFoundError("no such charge"))
        await pass_time(world, minutes=11)

    await pass_time(world, minutes=62)
    assert (await charge_statuses(world))[second] == "canceled"
    assert await second_charge_events(world) == [second]


async def test_two_unknown_answers_an_hour_apart_forget_a_charge(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine forgets a charge after two unknown answers that are at least an hour apart.

    If another webhook causes a look between these two answers, this look does not count. [D-162, D-56]
    """
    await issued_with_webhooks(world)
    asked = refuse(monkeypatch, UNKNOWN, NotFoundError("no such charge"))
    await notify(world, UNKNOWN)
    await pass_time(world, minutes=2)
    await notify(world, UNKNOWN)
    await pass_time(world, minutes=50)
    assert (asked, await stored_ids(world)) == ([UNKNOWN] * 2, [UNKNOWN])

    await pass_time(world, minutes=12)
    assert (asked, await stored_ids(world)) == ([UNKNOWN] * 3, [])


async def test_a_charge_that_was_found_is_waited_for_for_another_hour(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[D-162, D-56]"""
    second = await double_silently(world, await issued_with_webhooks(world))
    await queue_fault(world, "cancel_charge", "rejected", times=2)
    await notify(world, second)
    for _ in range(2):
        with monkeypatch.context() as patched:
            refuse(patched, second, NotFoundError("no such charge"))
            await looked_at(world)
        [stored] = await waiting(world)
        assert stored["unknown_since"] is not None
        assert stored["next_look_at"] - await now(world) > timedelta(minutes=59)
        await world.sql("UPDATE unmatched_charge SET unknown_since = unknown_since - interval '2 hours'")
        await looked_at(world)
        [stored] = await waiting(world)
        assert stored["unknown_since"] is None


async def test_a_charge_that_a_late_look_up_finds_is_known_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two unknown answers do not end the looks if a late look-up finds the charge between them. [D-162, D-125]"""
    issued = await issued_with_webhooks(world)
    second = await double_silently(world, issued)
    await queue_fault(world, "cancel_charge", "rejected", times=2)
    await notify(world, second)
    await looked_at(world)
    with monkeypatch.context() as patched:
        refuse(patched, second, NotFoundError("no such charge"))
        await looked_at(world)
    [stored] = await waiting(world)
    assert stored["unknown_since"] is not None

    await late_look_up(world, issued)
    [stored] = await waiting(world)
    assert (stored["unknown_since"], (await charge_statuses(world))[second]) == (None, "open")


async def test_a_charge_that_a_late_look_up_finds_during_a_look_is_kept(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a look gets the second unknown answer, a late look-up records a payment. [D-162, D-55 paid charges]"""
    issued = await issued_with_webhooks(world)
    second = await double_silently(world, issued, status="paid")
    await notify(world, second)
    get_charge, asked = SandboxGateway.get_charge, list[str]()

    async def refuse_late(self: SandboxGateway, wanted: str) -> Charge:
        if wanted != second:
            return await get_charge(self, wanted)
        asked.append(wanted)
        if len(asked) == 2:
            await late_look_up(world, issued)
        raise NotFoundError("no such charge")

    with monkeypatch.context() as patched:
        patched.setattr(SandboxGateway, "get_charge", refuse_late)
        await looked_at(world)
        await world.sql("UPDATE unmatched_charge SET unknown_since = unknown_since - interval '2 hours'")
        await looked_at(world)
    assert (asked, await stored_ids(world)) == ([second] * 2, [second])
    assert (await read(world, issued))["paidCents"] == 9990

    await refund_silently(world, second)
    await looked_at(world)
    assert (await read(world, issued))["refundedCents"] == 9990
    assert await second_charge_events(world) == [second]
    assert await world.broken() == []


async def test_charges_that_the_gateway_does_not_know_keep_no_place(world: World) -> None:
    """Other systems use the same account at the provider, so webhooks name many of their charges. [D-162]"""
    second = await double_silently(world, await issued_with_webhooks(world))
    strangers = strangers_charges()
    for each in strangers:
        await notify(world, each)
    await looked_at(world)
    assert len(await waiting(world)) == MAX_WAITING

    await notify(world, second)
    assert await stored_ids(world) == sorted([*strangers[1:], second])
    await looked_at(world)
    assert await second_charge_events(world) == [second]
