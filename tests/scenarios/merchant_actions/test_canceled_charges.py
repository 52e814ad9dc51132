"""The gateway opens the charge of a canceled invoice again, and the payer pays it (D-27)."""

import pytest

from tests.scenarios.merchant_actions.test_request_histories import poll
from tests.support.cancellation_steps import around_the_cancellation, killed
from tests.support.reissue_steps import unpaid_invoice
from tests.support.sandbox_steps import cancel, pass_time, pay_silently, queue_fault, read
from tests.support.world import World


@pytest.mark.parametrize("ending", ["answered", "lost", "killed", "poll first", "in the dashboard"])
async def test_a_late_look_up_finds_the_payment(world: World, ending: str) -> None:
    """No sweep runs, and the gateway sends no webhook. [D-27 payment unexpected, D-125]"""
    await world.sql("UPDATE connection_sweep SET next_sweep_at = '2900-01-01'")
    invoice = await unpaid_invoice(world)
    if ending == "answered":
        assert (await cancel(world, invoice)).status == 200
    elif ending == "lost":
        await queue_fault(world, "cancel_charge", "timeout_after")
        assert (await cancel(world, invoice)).status == 409
    elif ending == "killed":
        await killed(cancel(world, invoice))
    elif ending == "poll first":
        with around_the_cancellation(after=lambda: poll(world)):
            assert (await cancel(world, invoice)).status == 200
    else:
        await world.sql("UPDATE sandbox_charge SET status = 'canceled'")
        await poll(world)
    await pass_time(world, minutes=2)
    assert (await read(world, invoice))["status"] == "canceled"
    await pay_silently(world)
    await pass_time(world, hours=48)
    assert len(await world.events("invoice.payment_unexpected")) == 1
