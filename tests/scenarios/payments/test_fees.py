"""The fee that a provider keeps is shown at each entry of the ledger, and lowers no amount."""

from dataclasses import replace

import pytest

from fatura.domain.payments import EntryKind
from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import Charge
from tests.support.refund_steps import pay, refund
from tests.support.sandbox_steps import issued_invoice, read
from tests.support.world import World, columns, rows

FEES = {EntryKind.PAYMENT: 130, EntryKind.REFUND: 7}


async def test_a_fee_is_shown_and_lowers_no_amount(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """[D-50, D-53]"""
    get_charge = SandboxGateway.get_charge

    async def with_fees(gateway: SandboxGateway, charge_id: str) -> Charge:
        charge = await get_charge(gateway, charge_id)
        return replace(
            charge, entries=tuple(replace(each, fee_cents=FEES[each.kind]) for each in charge.entries)
        )

    monkeypatch.setattr(SandboxGateway, "get_charge", with_fees)
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await issued_invoice(world)
    await pay(world, invoice, amountCents=4000)
    assert (await read(world, invoice))["status"] == "issued"
    await pay(world, invoice)
    await world.made(f"/v1/sandbox/charges/{invoice['gatewayInvoiceId']}/refund", {"amountCents": 1000})
    await world.run("reconciliation")

    paid = await read(world, invoice)
    assert (paid["status"], paid["paidCents"], paid["refundedCents"]) == ("paid", 9990, 1000)
    assert columns(paid["payments"], "kind", "amountCents", "feeCents") == rows("""
        payment | amount | fee
        payment | 4000   | 130
        payment | 5990   | 130
        refund  | 1000   | 7
    """)
    emitted = await world.events("invoice.partially_paid", "invoice.refunded")
    assert [each["data"]["entry"]["feeCents"] for each in emitted] == [130, 7]
    assert (await refund(world, invoice)).json["refundedCents"] == 9990
    assert await world.broken() == []
