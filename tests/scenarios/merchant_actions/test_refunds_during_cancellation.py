"""Refunds while the gateway cancels the charge of the invoice for a reissue or a manual payment."""

import pytest

from tests.support.cancellation_steps import around_the_cancellation
from tests.support.refund_steps import pay, refund, refunded_at_gateway
from tests.support.sandbox_steps import issued_invoice
from tests.support.world import Answer, Json, World


@pytest.mark.parametrize(("path", "body"), [("reissue", {}), ("payments", {"method": "cash"})])
async def test_no_refund_begins_while_a_charge_is_being_canceled(world: World, path: str, body: Json) -> None:
    """The next charge or the payment has the amount that is still open. A refund would change this amount. [D-151]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await issued_invoice(world)
    await pay(world, invoice, amountCents=4000)
    answers = list[Answer]()

    async def ask_for_refund() -> None:
        answers.append(await refund(world, invoice))

    with around_the_cancellation(before=ask_for_refund, after=ask_for_refund):
        assert (await world.post(f"/v1/invoices/{invoice['id']}/{path}", body)).status == 200

    assert {(each.status, each.type) for each in answers} == {(409, "engine.invoice_not_refundable")}
    assert await refunded_at_gateway(world) == []
    assert (await refund(world, invoice, amountCents=4000)).json["refundedCents"] == 4000
    assert await world.broken() == []
