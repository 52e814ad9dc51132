"""The detail of an invoice shows its charges, and how the payer can pay the open charge (D-49)."""

import pytest

from tests.support.sandbox_steps import (
    charges,
    issued_invoice,
    move,
    pass_time,
    queue_fault,
    read,
    ready_invoice,
)
from tests.support.world import World, columns, rows


async def test_a_refused_charge_and_the_next_one_are_shown(world: World) -> None:
    """[D-49, D-49 detail]"""
    invoice = await ready_invoice(world)
    assert (invoice.get("charges"), (await read(world, invoice))["charges"]) == (None, [])
    await queue_fault(world, "create_charge", "rejected")
    await world.run("issuance")
    await world.made(f"/v1/invoices/{invoice['id']}/retry-issuance")

    shown = await read(world, invoice)

    [made] = await charges(world)
    assert columns(shown["charges"], "number", "status", "amountCents", "currency", "paymentMethod") == rows("""
        number | status   | cents | currency | method
        1      | not_made | 9990  | BRL      | pix
        2      | open     | 9990  | BRL      | pix
    """)
    failed, opened = shown["charges"]
    assert failed["error"] == {"code": "rejected", "detail": "A queued fault refuses this call."}
    assert (failed["gatewayInvoiceId"], failed["closedAt"] is None) == (None, False)
    assert (opened["error"], opened["closedAt"], opened["installments"]) == (None, None, None)
    assert opened["gatewayInvoiceId"] == shown["gatewayInvoiceId"] == made["chargeId"]
    assert (opened["provider"], opened["connectionId"]) == ("sandbox", made["connectionId"])
    assert (opened["dueDate"], opened["createdAt"] <= shown["issuedAt"]) == (invoice["dueDate"], True)


async def test_a_charge_shows_what_the_gateway_says(world: World) -> None:
    """[D-49, D-35 polling]"""
    await world.set_up_gateway(behaviour="never_pay")
    found: list[tuple[str, str]] = []
    for deed in ("refuse", "pay", "cancel"):
        invoice = await issued_invoice(world)
        [charge] = await charges(world, invoice)
        await move(world, charge, deed)
        await world.run("reconciliation")
        shown = await read(world, invoice)
        found.append((shown["charges"][0]["status"], shown["status"]))
        assert (shown["payment"] is None) is (deed != "refuse"), "a payer may try again after a refusal"

    assert found == [("refused", "overdue"), ("paid", "paid"), ("canceled", "canceled")]
    assert await world.broken() == []


async def test_an_unknown_outcome_is_shown(world: World) -> None:
    """[D-49, D-33]"""
    invoice = await ready_invoice(world)
    await queue_fault(world, "create_charge", "timeout_before")
    await world.run("issuance")
    [unknown] = (await read(world, invoice))["charges"]
    assert (unknown["status"], unknown["gatewayInvoiceId"]) == ("unknown", None)

    await pass_time(world, minutes=5)
    [opened] = (await read(world, invoice))["charges"]
    assert (opened["id"], opened["status"]) == (unknown["id"], "open")


@pytest.mark.parametrize(("method", "given"), [("pix", "pixCode"), ("boleto", "boletoLine"), ("card", "url")])
async def test_the_payer_can_pay_while_the_charge_is_open(world: World, method: str, given: str) -> None:
    """[D-49, D-49 detail]"""
    invoice = await ready_invoice(world, defaultPaymentMethod=method)
    assert (await read(world, invoice))["payment"] is None
    await world.run("issuance")

    payment = (await read(world, invoice))["payment"]

    assert payment[given]
    assert payment["url"].startswith("https://")
    assert {key for key in ("pixCode", "boletoLine") if payment[key]} <= {given}
    assert payment["expiresAt"] > invoice["dueDate"]
    if method == "boleto":
        assert (len(payment["boletoLine"]), payment["boletoLine"][-10:]) == (47, "0000009990")
    [charge] = await charges(world)
    await move(world, charge, "pay")
    await world.run("reconciliation")
    assert (await read(world, invoice))["payment"] is None
