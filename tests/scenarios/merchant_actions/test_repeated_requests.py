"""A client repeats a request, because the gateway's answers to the request's cancellations are lost (D-171)."""

import pytest

from tests.scenarios.merchant_actions.test_refused_later_requests import send
from tests.support.cancellation_steps import end_requests
from tests.support.reissue_steps import unpaid_invoice
from tests.support.sandbox_steps import pass_time, pay_silently, queue_fault, read
from tests.support.world import World


@pytest.mark.parametrize("action", ["reissue", "payment"])
async def test_repeats_do_not_postpone_the_poll(world: World, action: str) -> None:
    """The client repeats the request every 25 seconds. The payer has already paid the charge. [D-171, D-35 polling]"""
    invoice = await unpaid_invoice(world)
    await pay_silently(world)
    for _ in range(4):
        await queue_fault(world, "cancel_charge", "timeout_before")
        await send(world, invoice, action, key="r")
        await end_requests(world)
        await pass_time(world, seconds=25)
    assert (await read(world, invoice))["status"] == "paid"
