"""Fatura polls a paid charge for months, so it finds refunds and disputes without a webhook (D-55)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest

from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import Charge, TransientError
from tests.support.reissue_steps import ask, unpaid_invoice
from tests.support.sandbox_steps import cancel, now, pass_time, pay_silently, read, ready_invoice
from tests.support.world import Json, World

AFTER = [1, 7, 30, 60, 120]


@dataclass(slots=True)
class Polls:
    """Records the engine's calls of `get_charge`. Calls for the charges in `failing` fail."""

    calls: list[tuple[str, datetime]] = field(default_factory=list[tuple[str, datetime]])
    failing: set[str] = field(default_factory=set[str])

    def days(self, charge_id: str, *, since: datetime) -> Sequence[int]:
        """Return the days on which a charge was polled, counted from the instant `since`.

        `since` may be a few seconds after the payment. A minute is added, so that a poll exactly a day after the
        payment counts as day 1.
        """
        slack = timedelta(minutes=1)
        return [(at - since + slack).days for each, at in self.calls if each == charge_id and at > since]


@pytest.fixture
def polls(monkeypatch: pytest.MonkeyPatch) -> Polls:
    found, get_charge = Polls(), SandboxGateway.get_charge

    async def noted(gateway: SandboxGateway, charge_id: str) -> Charge:
        found.calls.append((charge_id, gateway._config.now))
        if charge_id in found.failing:
            raise TransientError("not now")
        return await get_charge(gateway, charge_id)

    monkeypatch.setattr(SandboxGateway, "get_charge", noted)
    return found


@pytest.fixture
async def issued(world: World) -> Json:
    """Return the only invoice of a canceled subscription. Nobody pays the invoice, and no sweep runs."""
    invoice = await unpaid_invoice(world)
    await world.post(f"/v1/subscriptions/{invoice['subscriptionId']}/cancel")
    await world.sql("UPDATE connection_sweep SET next_sweep_at = '2900-01-01'")
    return invoice


async def pay(world: World, charge_id: str, **body: Json) -> datetime:
    """Pay a charge, and run the poll that the payment triggers. Return the account's time after the poll."""
    await world.made(f"/v1/sandbox/charges/{charge_id}/pay", body)
    await world.run("reconciliation")
    return await now(world)


async def reissued(world: World, invoice: Json) -> str:
    """Reissue an invoice. Return the gateway's id of the new charge."""
    due_date = (await now(world) + timedelta(days=20)).date().isoformat()
    await ask(world, invoice, dueDate=due_date)
    await world.run("issuance")
    return (await read(world, invoice))["gatewayInvoiceId"]


async def refund_quietly(world: World, charge_id: str) -> None:
    """Refund 9.90 of a charge at the gateway, without a webhook."""
    refund = """
        jsonb_build_object('kind', 'refund', 'reference', 'quiet', 'amount_cents', 990, 'occurred_at', created_at)
    """
    await world.sql(
        f"UPDATE sandbox_charge SET entries = entries || {refund} WHERE charge_id = $1",  # noqa: S608 - written here
        charge_id,
    )


async def test_a_paid_second_charge_is_polled(world: World, issued: Json, polls: Polls) -> None:
    """[D-55 paid charges, D-162]"""
    path = f"/v1/sandbox/charges/{issued['gatewayInvoiceId']}/double"
    second = (await world.made(path))["chargeId"]
    paid_at = await pay(world, second)
    await pass_time(world, days=29)
    assert await world.events("invoice.refunded") == []

    await refund_quietly(world, second)
    await pass_time(world, days=300)

    assert polls.days(second, since=paid_at) == [0, *AFTER]  # the payment triggers a look on day 0 (D-162)
    assert (await read(world, issued))["refundedCents"] == 990
    assert len(await world.events("invoice.refunded")) == 1
    assert await world.broken() == []


async def test_a_paid_second_charge_that_the_gateway_forgets_is_still_polled(
    world: World, issued: Json, polls: Polls
) -> None:
    """[D-55 paid charges, D-162]"""
    path = f"/v1/sandbox/charges/{issued['gatewayInvoiceId']}/double"
    second = (await world.made(path))["chargeId"]
    paid_at = await pay(world, second)
    await world.sql("UPDATE sandbox_charge SET charge_id = 'sbx_hidden' WHERE charge_id = $1", second)
    await pass_time(world, days=8)
    await world.sql("UPDATE sandbox_charge SET charge_id = $1 WHERE charge_id = 'sbx_hidden'", second)
    await refund_quietly(world, second)
    await pass_time(world, days=300)

    # The payment triggers a look on day 0. While the charge is hidden, each look is repeated after an hour. (D-162)
    assert polls.days(second, since=paid_at) == [0, 0, 1, 1, 7, 7, 30, 60, 120]
    assert (await read(world, issued))["refundedCents"] == 990


@pytest.mark.parametrize("is_reissued", [False, True])
async def test_a_part_payment_of_an_invoice_that_the_merchant_cancels_is_polled(
    world: World, issued: Json, polls: Polls, *, is_reissued: bool
) -> None:
    """[D-55 paid charges, D-27]"""
    charge_id = issued["gatewayInvoiceId"]
    paid_at = await pay(world, charge_id, amountCents=4000)
    if is_reissued:
        await reissued(world, issued)
    assert (await cancel(world, issued)).status == 200
    await pass_time(world, days=2)
    await refund_quietly(world, charge_id)
    await pass_time(world, days=6)

    assert [day for day in polls.days(charge_id, since=paid_at) if day > 0] == [1, 7]
    assert (await read(world, issued))["refundedCents"] == 990
    assert await world.broken() == []


async def test_a_part_payment_that_is_recorded_with_the_cancellation_is_polled(
    world: World, issued: Json, polls: Polls
) -> None:
    """One poll finds both the part payment and the cancellation of the charge. [D-55 paid charges, D-27]"""
    charge_id, paid_at = issued["gatewayInvoiceId"], await now(world)
    await world.sql("""
        UPDATE sandbox_charge SET status = 'canceled', entries = jsonb_build_array(jsonb_build_object(
            'kind', 'payment', 'reference', 'part', 'amount_cents', 4000, 'occurred_at', created_at))
    """)
    await world.sql("UPDATE invoice SET next_attempt_at = created_at")
    await world.run("reconciliation")
    assert (await read(world, issued))["status"] == "canceled"
    await pass_time(world, days=8)
    assert [day for day in polls.days(charge_id, since=paid_at) if day > 0] == [1, 7]


async def test_a_canceled_invoice_without_a_charge_is_not_polled(world: World) -> None:
    """The invoice has a manual payment, but no charge that a poll could read. [D-55 paid charges, D-52]"""
    invoice = await ready_invoice(world)
    await world.made(f"/v1/invoices/{invoice['id']}/payments", {"method": "cash", "amountCents": 1000})
    assert (await cancel(world, invoice)).status == 200
    found = await world.sql("SELECT next_attempt_at FROM invoice")
    assert [row["next_attempt_at"] for row in found] == [None]


async def test_a_paid_earlier_charge_of_a_canceled_invoice_is_polled(
    world: World, issued: Json, polls: Polls
) -> None:
    """[D-55 paid charges, D-51]"""
    earlier = issued["gatewayInvoiceId"]
    await reissued(world, issued)
    await cancel(world, issued)
    paid_at = await pay(world, earlier)
    await pass_time(world, days=400)

    assert (await read(world, issued))["status"] == "canceled"
    assert polls.days(earlier, since=paid_at)[-5:] == AFTER


async def test_the_polls_begin_again_after_a_new_payment(world: World, issued: Json, polls: Polls) -> None:
    """[D-55 paid charges]"""
    own = issued["gatewayInvoiceId"]
    await pay(world, own)
    await pass_time(world, days=200)
    paid_at = await pay(world, own, amountCents=500)
    await pass_time(world, days=300)

    assert polls.days(own, since=paid_at) == AFTER


@pytest.mark.faults
@pytest.mark.parametrize("is_second", [False, True])
async def test_a_payment_that_is_found_late_is_polled_from_then_on(
    world: World, issued: Json, polls: Polls, *, is_second: bool
) -> None:
    """The gateway shows the payment 150 days after it happened. [D-55 paid charges, D-162]"""
    charge_id = issued["gatewayInvoiceId"]
    if is_second:
        charge_id = (await world.made(f"/v1/sandbox/charges/{charge_id}/double"))["chargeId"]
        await world.run("reconciliation")
    await pass_time(world, days=150)
    await pay_silently(world, charge_id)
    if is_second:
        await world.sql("UPDATE unmatched_charge SET next_look_at = '2000-01-01'")
    await world.sql("UPDATE invoice SET next_attempt_at = created_at")
    await world.run("reconciliation")
    found_at = await now(world)
    assert (await read(world, issued))["paidCents"] == 9990
    await pass_time(world, days=200)

    assert polls.days(charge_id, since=found_at) == AFTER


async def test_a_payment_during_the_polls_moves_the_later_ones(
    world: World, issued: Json, polls: Polls
) -> None:
    """[D-55 paid charges]"""
    own = issued["gatewayInvoiceId"]
    await pay(world, own)
    await pass_time(world, days=100)
    paid_at = await pay(world, own, amountCents=500)
    await pass_time(world, days=300)

    assert polls.days(own, since=paid_at) == AFTER


@pytest.mark.faults
async def test_the_last_poll_is_repeated_until_every_charge_was_answered(
    world: World, issued: Json, polls: Polls
) -> None:
    """[D-55 paid charges, D-51]"""
    earlier = issued["gatewayInvoiceId"]
    paid_at = await pay(world, await reissued(world, issued))
    await pass_time(world, days=119)
    polls.failing = {earlier}
    await pass_time(world, days=2)
    asked = len(polls.days(earlier, since=paid_at + timedelta(days=119)))
    assert asked > 1

    polls.failing = set()
    await pay_silently(world, earlier)
    await pass_time(world, days=2)
    assert (await read(world, issued))["paidCents"] == 2 * 9990
