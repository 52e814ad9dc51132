"""The engine finds more charges of an attempt late. The invoice adopts the best one (D-125, D-181).

A charge is *invalid* while the gateway's answers about it are invalid, for example `paid` without a payment.
"""

import pytest

from tests.scenarios.reconciliation.test_scheduled_looks import looked_at, notify
from tests.support.sandbox_steps import (
    charge_statuses,
    pass_time,
    pay_silently,
    queue_fault,
    read,
)
from tests.support.sweep_steps import (
    NO_SWEEP,
    TRIPLE_ID,
    believe_absent,
    double_silently,
    hide_payment,
    second_charge_events,
    show_expired,
    show_payment,
    two_charges,
)
from tests.support.webhook_steps import SECRET, issued_with_webhooks
from tests.support.world import Json, World


async def _the_newer_was_adopted(world: World, invoice: Json, *, older: str, newer: str, status: str) -> None:
    """Check that the invoice has adopted the newer charge, with this status, and that the older charge is canceled."""
    assert (await read(world, invoice))["gatewayInvoiceId"] == newer
    assert await charge_statuses(world) == {older: "canceled", newer: status}
    assert await world.broken() == []


@pytest.mark.parametrize("status", ["open", "paid"])
async def test_a_late_look_up_adopts_the_better_charge(
    world: World, monkeypatch: pytest.MonkeyPatch, status: str
) -> None:
    """The engine believes that two charges do not exist. Then the older charge expires, or the payer pays the newer
    one. [D-125, D-181]
    """
    invoice, older, newer = await two_charges(world)
    await believe_absent(world)
    if status == "open":
        show_expired(monkeypatch, older)
    else:
        await pay_silently(world, newer)

    await pass_time(world, hours=1)
    await _the_newer_was_adopted(world, invoice, older=older, newer=newer, status=status)
    assert await second_charge_events(world) == [older]


async def test_a_late_look_up_waits_for_an_invalid_charge(world: World) -> None:
    """The engine believed two charges absent. One of them is invalid, because it does not show its payment.

    Later, this charge becomes valid. [D-125, D-181]
    """
    invoice, valid, hidden = await two_charges(world)
    await hide_payment(world, hidden)
    await world.sql(NO_SWEEP)
    await believe_absent(world)
    await pass_time(world, minutes=30)
    assert (await read(world, invoice))["status"] == "ready"
    await show_payment(world, hidden)

    await pass_time(world, hours=1)
    assert (await read(world, invoice))["status"] == "paid"
    await _the_newer_was_adopted(world, invoice, older=valid, newer=hidden, status="paid")
    assert await second_charge_events(world) == [valid]


@pytest.mark.parametrize("status", ["open", "paid"])
async def test_the_better_of_two_charges_that_webhooks_name_is_adopted(
    world: World, monkeypatch: pytest.MonkeyPatch, status: str
) -> None:
    """Webhooks name two charges before look-ups show them. The older charge expires, or the payer pays the newer one.

    [D-162, D-181]
    """
    invoice, older, newer = await two_charges(world, webhookSecret=SECRET)
    if status == "open":
        show_expired(monkeypatch, older)
    else:
        await pay_silently(world, newer)
    await queue_fault(world, "list_charges", "unknown")
    for each in (older, newer):
        await notify(world, each)
        await looked_at(world)

    await world.sql("UPDATE invoice SET next_attempt_at = created_at")
    await world.run("issuance")
    await pass_time(world, hours=2)
    await _the_newer_was_adopted(world, invoice, older=older, newer=newer, status=status)
    assert await second_charge_events(world) == ([] if status == "open" else [older])


@pytest.mark.parametrize(
    ("finder", "second_is"),
    [
        ("look-up", "open"),
        ("look-up", "part-paid"),
        ("look-up", "paid"),
        ("webhook", "open"),
        ("webhook", "paid"),
    ],
)
async def test_a_late_look_up_finds_a_third_charge(world: World, finder: str, second_is: str) -> None:
    """A look-up or a webhook shows the second charge. The gateway creates the third charge afterwards. [D-125]"""
    if finder == "look-up":
        _, own, second = await two_charges(world)
        if second_is == "paid":
            await pay_silently(world)
        elif second_is == "part-paid":
            for each in (own, second):
                await show_payment(world, each, cents=4000)
        expected = {own: "paid", second: "paid"} if second_is == "paid" else {own: "open", second: "canceled"}
    else:
        invoice = await issued_with_webhooks(world)
        own, second = invoice["gatewayInvoiceId"], await double_silently(world, invoice, status=second_is)
        await notify(world, second)
        expected = (
            {own: "canceled", second: "paid"} if second_is == "paid" else {own: "open", second: "canceled"}
        )
    await world.sql(NO_SWEEP)
    await pass_time(world, minutes=5)
    assert await charge_statuses(world) == expected

    third = await double_silently(world, {"gatewayInvoiceId": own}, charge_id=TRIPLE_ID)
    await pass_time(world, days=2)
    assert await charge_statuses(world) == {**expected, third: "canceled"}
    assert await second_charge_events(world) == [second, third]
    assert await world.broken() == []
