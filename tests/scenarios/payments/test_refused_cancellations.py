"""The gateway refuses to cancel a charge that nobody should pay any more (D-185).

Fatura reports the charge, repeats the cancellation at growing intervals, and still records a payment of the charge.
"""

from collections.abc import Sequence
from datetime import timedelta

import pytest

from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from tests.support.captured_logs import captured_logs
from tests.support.reissue_steps import ask, unpaid_invoice
from tests.support.sandbox_steps import charges, fail_for, now, pass_time, pay_silently, read
from tests.support.world import Json, World


@pytest.fixture
async def issued(world: World) -> Json:
    """Return the only invoice of a canceled subscription. Nobody pays the invoice, and no sweep runs."""
    invoice = await unpaid_invoice(world)
    await world.post(f"/v1/subscriptions/{invoice['subscriptionId']}/cancel")
    await world.sql("UPDATE connection_sweep SET next_sweep_at = '2900-01-01'")
    return invoice


async def reissued(world: World, invoice: Json) -> str:
    """Reissue an invoice. Return the gateway's id of the new charge."""
    due_date = (await now(world) + timedelta(days=20)).date().isoformat()
    assert (await ask(world, invoice, dueDate=due_date)).status == 200
    await world.run("issuance")
    return (await read(world, invoice))["gatewayInvoiceId"]


async def pay_earlier(world: World, invoice: Json) -> None:
    """Pay the first charge of a reissued invoice at the gateway."""
    await world.made(f"/v1/sandbox/charges/{invoice['gatewayInvoiceId']}/pay")


async def payable_again(world: World, invoice: Json) -> str:
    """Open an invoice's canceled charge again at the gateway, and make the charge's poll due.

    Return the gateway's id of the charge.
    """
    await world.sql("UPDATE sandbox_charge SET status = 'open'")
    await world.sql("UPDATE invoice SET next_attempt_at = created_at")
    return invoice["gatewayInvoiceId"]


async def reported(world: World) -> Sequence[str]:
    errors = [each["data"]["error"] for each in await world.events("invoice.issue_failed")]
    assert all(each["code"] == "second_charge" for each in errors)
    return [each["gatewayInvoiceId"] for each in errors]


async def cancellations(world: World, **duration: float) -> int:
    """Return how many cancellations the gateway refuses while this duration passes."""
    with captured_logs() as logs:
        await pass_time(world, **duration)
    return logs.getvalue().count("second_charge_not_canceled")


async def test_the_charge_of_an_invoice_that_another_charge_paid(world: World, issued: Json) -> None:
    """After 400 days, only the regular polls repeat the cancellation. [D-50, D-55 paid charges, D-185]"""
    own = await reissued(world, issued)
    await fail_for(world, "cancel_charge", "rejected", seconds=3600)
    await pay_earlier(world, issued)

    assert await cancellations(world, days=4) == 13
    assert (await read(world, issued))["status"] == "paid"
    assert await reported(world) == [own]

    await world.sql("UPDATE unmatched_charge SET found_at = found_at - interval '400 days'")
    await pass_time(world, days=1)
    assert await cancellations(world, days=30) == 2

    await pay_silently(world, own)
    await pass_time(world, days=35)
    assert (await read(world, issued))["paidCents"] == 2 * 9990
    assert await reported(world) == [own]
    assert await world.broken() == []


@pytest.mark.faults
@pytest.mark.parametrize(("deed", "body"), [("cancel", {}), ("payments", {"method": "cash"})])
async def test_a_canceled_charge_that_is_payable_again(
    world: World, issued: Json, deed: str, body: Json
) -> None:
    """The invoice was canceled, or paid without the gateway. [D-125, D-185]"""
    await world.made(f"/v1/invoices/{issued['id']}/{deed}", body)
    await fail_for(world, "cancel_charge", "rejected", seconds=3600)
    charge_id = await payable_again(world, issued)

    await pass_time(world, days=8)
    assert 2 <= await cancellations(world, days=2) <= 4
    assert await reported(world) == [charge_id]

    await pay_silently(world, charge_id)
    await pass_time(world, days=2)
    assert "gateway" in {each["source"] for each in (await read(world, issued))["payments"]}
    assert await world.broken() == []


async def test_a_cancellation_that_is_confirmed_is_not_reported(world: World, issued: Json) -> None:
    """[D-50, D-185]"""
    await reissued(world, issued)
    await pay_earlier(world, issued)
    await pass_time(world, days=1)
    assert await reported(world) == []


async def test_a_charge_that_stays_payable_after_its_cancellation_is_reported(
    world: World, issued: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gateway accepts the cancellation, but does nothing. [D-50, D-185]"""
    own = await reissued(world, issued)
    monkeypatch.setattr(SandboxGateway, "cancel_charge", SandboxGateway.get_charge)
    await pay_earlier(world, issued)
    await pass_time(world, days=1)
    assert await reported(world) == [own]


async def test_a_charge_is_reported_again_if_it_is_payable_after_a_confirmed_cancellation(
    world: World, issued: Json
) -> None:
    """The gateway confirms a cancellation. Then the gateway opens the charge again, and refuses the next cancellation.
    [D-125, D-185]
    """
    await world.made(f"/v1/invoices/{issued['id']}/cancel", {})
    await fail_for(world, "cancel_charge", "rejected", seconds=3600)
    charge_id = await payable_again(world, issued)
    await pass_time(world, days=2)
    assert await reported(world) == [charge_id]

    await world.sql("DELETE FROM sandbox_fault")
    await pass_time(world, days=3)
    assert {each["status"] for each in await charges(world)} == {"canceled"}
    assert await reported(world) == [charge_id]

    await fail_for(world, "cancel_charge", "rejected", seconds=3600)
    await payable_again(world, issued)
    assert await cancellations(world, hours=1) > 3, "the pauses are short again"
    assert await reported(world) == [charge_id] * 2
    assert await world.broken() == []
