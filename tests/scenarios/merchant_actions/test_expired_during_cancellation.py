"""The gateway closes a charge as expired, while requests of the merchant wait for its cancellation (D-171)."""

import asyncio
from dataclasses import replace

import pytest

from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import Charge, ChargeState, UnknownOutcomeError
from tests.scenarios.merchant_actions.test_refused_later_requests import stored_kinds
from tests.scenarios.merchant_actions.test_request_histories import pay_unsure, show
from tests.support.reissue_steps import ask, unpaid_invoice
from tests.support.sandbox_steps import cancel, pass_time, queue_fault
from tests.support.world import World


@pytest.mark.parametrize("earlier", ["payment", "reissue"])
async def test_a_lost_cancellation_keeps_the_promised_request(
    world: World, monkeypatch: pytest.MonkeyPatch, earlier: str
) -> None:
    """The gateway's answers to a payment or reissue, and to a later cancellation of the invoice, were lost.

    So both requests are stored. Then the charge expires. Fatura applies the payment or reissue, and does not cancel the
    invoice.
    [D-171, D-52, D-51]
    """
    invoice = await unpaid_invoice(world)
    if earlier == "payment":
        await pay_unsure(world, invoice, "timeout_before", key="p")
    else:
        await queue_fault(world, "cancel_charge", "timeout_before")
        assert "reissued automatically" in (await ask(world, invoice, key="p")).json["detail"]
    await queue_fault(world, "cancel_charge", "timeout_before")
    unsure = await cancel(world, invoice, key="c")
    assert unsure.status == 409
    assert f"An earlier {earlier} of the invoice waits" in unsure.json["detail"]
    assert "if the charge expires within 24 hours" in unsure.json["detail"]
    get_charge = SandboxGateway.get_charge

    async def expired(self: SandboxGateway, charge_id: str) -> Charge:
        charge = await get_charge(self, charge_id)
        is_first = charge_id == invoice["gatewayInvoiceId"]
        return replace(charge, state=ChargeState.EXPIRED) if is_first else charge

    monkeypatch.setattr(SandboxGateway, "get_charge", expired)
    await pass_time(world, hours=2)
    expected = {
        "payment": ("paid", 9990, [("expired", 9990)]),
        "reissue": ("issued", 0, [("expired", 9990), ("open", 9990)]),
    }
    assert await show(world, invoice) == expected[earlier]
    assert await stored_kinds(world) == []
    assert await world.broken() == []


async def test_a_later_reissue_replaces_a_lost_cancellation(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reissue begins while a cancellation of the invoice waits for the gateway. The cancellation's answer is lost.
    [D-171, D-51]
    """
    invoice = await unpaid_invoice(world)
    cancel_charge = SandboxGateway.cancel_charge
    is_called, may_end = [asyncio.Event(), asyncio.Event()], [asyncio.Event(), asyncio.Event()]
    calls = iter(zip(is_called, may_end, strict=True))

    async def first_is_lost(self: SandboxGateway, charge_id: str) -> Charge:
        called, may_return = next(calls)
        called.set()
        await may_return.wait()
        if called is is_called[0]:
            raise UnknownOutcomeError
        return await cancel_charge(self, charge_id)

    monkeypatch.setattr(SandboxGateway, "cancel_charge", first_is_lost)
    canceling = asyncio.create_task(cancel(world, invoice, key="c"))
    await asyncio.wait_for(is_called[0].wait(), 10)
    reissuing = asyncio.create_task(ask(world, invoice, key="r"))
    await asyncio.wait_for(is_called[1].wait(), 10)
    may_end[0].set()
    unsure = await canceling
    may_end[1].set()

    assert unsure.status == 409
    assert "A later request replaces this one" in unsure.json["detail"]
    assert "An earlier" not in unsure.json["detail"]
    assert (await reissuing).status == 200


async def test_a_lost_cancellation_alone_names_no_other_request(world: World) -> None:
    """[D-171]"""
    invoice = await unpaid_invoice(world)
    await queue_fault(world, "cancel_charge", "timeout_before")
    unsure = await cancel(world, invoice, key="c")
    assert unsure.status == 409
    assert "An earlier" not in unsure.json["detail"]
