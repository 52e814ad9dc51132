"""The gateway answers the cancellation of a charge with a charge of another invoice."""

from dataclasses import replace
from uuid import UUID

import pytest

from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import Charge
from tests.support.sandbox_steps import issued_invoice, pass_time, read
from tests.support.world import Json, World


@pytest.fixture
async def issued(world: World) -> Json:
    await world.set_up_gateway(behaviour="never_pay")
    return await issued_invoice(world)


@pytest.mark.parametrize(
    ("path", "body", "refusal"),
    [
        ("cancel", {}, "engine.invoice_not_cancelable"),
        ("reissue", {}, "engine.invoice_not_reissuable"),
        ("payments", {"method": "cash"}, "engine.invoice_not_payable"),
    ],
)
async def test_the_answer_for_another_invoice_is_not_believed(
    world: World, issued: Json, path: str, body: Json, *, refusal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[D-50, D-27, D-51, D-52]"""
    other = await issued_invoice(world)
    cancel_charge = SandboxGateway.cancel_charge

    async def lies(gateway: SandboxGateway, charge_id: str) -> Charge:
        return replace(await cancel_charge(gateway, charge_id), invoice_id=UUID(other["id"]))

    monkeypatch.setattr(SandboxGateway, "cancel_charge", lies)
    await world.made(f"/v1/sandbox/charges/{issued['gatewayInvoiceId']}/pay", {"amountCents": 4000})

    answer = await world.post(f"/v1/invoices/{issued['id']}/{path}", body)

    assert (answer.status, answer.type) == (409, refusal)
    monkeypatch.undo()
    await pass_time(world, minutes=10)
    assert (await read(world, other))["payments"] == []
    assert (await read(world, issued))["paidCents"] >= 4000
    assert await world.broken() == []
