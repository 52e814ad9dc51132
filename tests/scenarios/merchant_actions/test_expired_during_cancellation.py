"""The gateway closes a charge as expired, while requests of the merchant wait for its cancellation (D-171)."""

from dataclasses import replace

import pytest

from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import Charge, ChargeState
from tests.scenarios.merchant_actions.test_refused_later_requests import stored_kinds
from tests.scenarios.merchant_actions.test_request_histories import pay_unsure, show
from tests.support.reissue_steps import ask, unpaid_invoice
from tests.support.sandbox_steps import cancel, pass_time, queue_fault
from tests.support.world import World


@pytest.mark.parametrize("earlier", ["payment", "reissue"])
async def test_a_lost_cancellation_keeps_the_promised_request(
    world: World, monkeypatch: pytest.MonkeyPatch, earlier: str
) -> None:
    """A cancellation of the invoice, whose answer is also lost, follows the request. A cancellation is not applied to
    an expired charge. [D-171, D-52, D-51]
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


async def test_a_lost_cancellation_alone_names_no_other_request(world: World) -> None:
    """[D-171]"""
    invoice = await unpaid_invoice(world)
    await queue_fault(world, "cancel_charge", "timeout_before")
    unsure = await cancel(world, invoice, key="c")
    assert unsure.status == 409
    assert "An earlier" not in unsure.json["detail"]
