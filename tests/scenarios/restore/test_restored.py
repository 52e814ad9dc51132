"""After a restore, the gateway has charges that the database lacks. No charge is created twice (D-123)."""

import asyncio
from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from fatura import ids
from fatura.usecases.restore import comparison
from fatura.usecases.restore.matching import MatchKind
from tests.support.expect import problem
from tests.support.restore_steps import compare, create_unmatched_charge, issued_by
from tests.support.sandbox_steps import (
    charges,
    move,
    now,
    pass_time,
    pay_silently,
    read,
    ready_invoice,
    stored_charges,
    table_held,
    until_waiting,
)
from tests.support.world import World


async def test_an_invoice_charged_after_the_backup_is_issued_with_that_charge(world: World):
    """[D-123, D-33]"""
    invoice = await ready_invoice(world)
    charge = await create_unmatched_charge(world, UUID(invoice["id"]), invoice["totalCents"])

    assert (await compare(world, dry_run=True)).counts == {MatchKind.ADOPTED: 1}
    assert await stored_charges(world) == []
    report = await compare(world)

    assert (report.counts, report.unmatched, report.problems) == ({MatchKind.ADOPTED: 1}, [], [])
    assert await issued_by(world, invoice) == charge.charge_id
    assert len(await charges(world)) == len(await world.events("invoice.issued")) == 1
    assert (await compare(world)).counts == {MatchKind.KNOWN: 1}


async def test_a_cycle_billed_after_the_backup_gets_the_same_invoice_id(world: World):
    """[D-123]"""
    subscription = await world.enroll(await world.plan())
    billed = [(UUID(subscription["id"]), cycle) for cycle in (1, 2)]
    lost = ids.invoice_ids(await now(world) - timedelta(seconds=5), billed)
    made = [await create_unmatched_charge(world, invoice_id, 9990) for invoice_id in lost]

    assert (await compare(world)).counts == {MatchKind.LOST: 2}
    await pass_time(world, seconds=1)

    invoices = await world.invoices(subscription)
    issued = {each["cycle"]: (each["id"], each["gatewayInvoiceId"]) for each in invoices}
    expected = zip(lost, made, strict=True)
    assert issued == {cycle: (str(id_), charge.charge_id) for cycle, (id_, charge) in enumerate(expected, 1)}
    assert len(await charges(world)) == 2
    assert await world.broken() == []


async def test_a_charge_with_another_amount_waits_for_a_person(world: World):
    """After each retry, the invoice waits again, until a person cancels the charge at the gateway. [D-123]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await ready_invoice(world)
    await create_unmatched_charge(world, UUID(invoice["id"]), invoice["totalCents"] + 1)
    await compare(world)

    assert await issued_by(world, invoice) is None
    for _ in range(2):
        assert (await world.post(f"/v1/invoices/{invoice['id']}/retry-issuance")).json["status"] == "ready"
    emitted = [each["data"]["error"]["code"] for each in await world.events("invoice.issue_failed")]
    assert emitted == ["amount_differs"] * 3

    [stray] = await charges(world)
    await move(world, stray, "cancel")
    await world.post(f"/v1/invoices/{invoice['id']}/retry-issuance")
    issued_charge = await issued_by(world, invoice)
    assert issued_charge == (await charges(world))[0]["chargeId"] != stray["chargeId"]


async def test_the_payment_of_a_charge_with_another_amount_is_recorded_after_its_cancellation(world: World):
    """[D-123, D-50]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await ready_invoice(world)
    stray = await create_unmatched_charge(world, UUID(invoice["id"]), 999)
    await compare(world)
    assert await issued_by(world, invoice) is None

    await pay_silently(world)
    await world.sql("UPDATE sandbox_charge SET status = 'canceled'")
    await world.post(f"/v1/invoices/{invoice['id']}/retry-issuance")
    assert await issued_by(world, invoice) not in {None, stray.charge_id}

    assert (await read(world, invoice))["paidCents"] == 999
    assert (await charges(world))[0]["amountCents"] == 9990 - 999
    assert await world.broken() == []


@pytest.mark.parametrize(
    ("difference", "status", "emitted"),
    [(5, "paid", "invoice.overpaid"), (-990, "issued", "invoice.partially_paid")],
)
async def test_a_paid_charge_with_another_amount_is_adopted(
    world: World, difference: int, status: str, emitted: str
):
    """The payment cannot be undone, so the engine records it without asking a person.

    A reissue can charge the rest. [D-170, D-123, D-50]
    """
    invoice = await ready_invoice(world)
    cents = invoice["totalCents"] + difference
    charge = await create_unmatched_charge(world, UUID(invoice["id"]), cents)
    await pay_silently(world)
    await compare(world)
    await world.run()

    shown = await read(world, invoice)
    assert (shown["status"], shown["gatewayInvoiceId"], shown["paidCents"]) == (
        status,
        charge.charge_id,
        cents,
    )
    assert [each["status"] for each in shown["charges"]] == ["paid"]
    assert len(await world.events(emitted)) == len(await world.events("invoice.issued")) == 1
    assert await world.events("invoice.issue_failed") == []
    assert await world.broken() == []
    if difference < 0:
        await world.made(f"/v1/invoices/{invoice['id']}/reissue", {})
        await world.run("issuance")
        assert (await charges(world))[0]["amountCents"] == -difference


async def test_a_late_check_leaves_the_payment_of_a_restored_charge_to_a_poll(world: World):
    """If the late look-up recorded the payment, the invoice would be paid before it adopts the charge.

    [D-170, D-125]
    """
    invoice = await ready_invoice(world)
    charge = await create_unmatched_charge(world, UUID(invoice["id"]), invoice["totalCents"])
    await pay_silently(world)
    await compare(world)
    await world.sql(
        "INSERT INTO late_charge_check (account_id, charge_id, connection_id, next_check_at) "
        "SELECT account_id, charge_id, connection_id, sent_at FROM charge"
    )

    await world.run("reconciliation")
    assert (await read(world, invoice))["status"] == "ready"
    await world.run()

    shown = await read(world, invoice)
    assert (shown["status"], shown["gatewayInvoiceId"]) == ("paid", charge.charge_id)
    assert len(await world.events("invoice.issued")) == len(await world.events("invoice.paid")) == 1
    assert await world.broken() == []


async def test_an_invoice_reissued_after_the_backup_gets_its_next_charge(world: World):
    """If the invoice kept the replaced charge, a poll would cancel the invoice, although its next charge is payable.

    [D-123, D-51]
    """
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await ready_invoice(world)
    await world.run("issuance")
    [replaced] = await charges(world)
    await world.sql("UPDATE sandbox_charge SET status = 'canceled'")
    charge = await create_unmatched_charge(world, UUID(invoice["id"]), invoice["totalCents"], attempt=2)

    await comparison.freeze(world.deps, world.account_id)
    await world.sql("UPDATE invoice SET next_attempt_at = created_at")
    await world.run("reconciliation")
    assert (await read(world, invoice))["status"] == "issued"
    refused = await world.post(f"/v1/invoices/{invoice['id']}/cancel")
    assert problem(refused)[:2] == (503, "engine.account_recovering")

    counts = {MatchKind.KNOWN: 1, MatchKind.ADOPTED: 1}
    assert (await compare(world, dry_run=True)).counts == counts
    assert (await read(world, invoice))["gatewayInvoiceId"] == replaced["chargeId"]
    assert (await compare(world)).counts == counts

    assert await issued_by(world, invoice) == charge.charge_id
    assert (await compare(world)).counts == {MatchKind.KNOWN: 2}
    await pass_time(world, hours=30)
    shown = await read(world, invoice)
    assert (shown["status"], [each["status"] for each in shown["charges"]]) == (
        "issued",
        ["canceled", "open"],
    )
    assert len(await world.events("invoice.reissued")) == 1
    assert len(await charges(world)) == 2
    assert await world.broken() == []


async def test_a_charge_canceled_after_the_backup_cancels_its_invoice(world: World):
    """[D-123, D-27]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await ready_invoice(world)
    await create_unmatched_charge(world, UUID(invoice["id"]), invoice["totalCents"])
    await move(world, (await charges(world))[0], "cancel")
    await compare(world)

    await issued_by(world, invoice)

    assert (await read(world, invoice))["status"] == "canceled"
    assert len(await charges(world)) == 1


async def test_while_an_account_is_frozen_nothing_is_charged(world: World):
    """[D-123, D-34 retry]"""
    invoice = await ready_invoice(world)
    subscription = await world.enroll(await world.plan())
    await comparison.freeze(world.deps, world.account_id)

    await world.run("generation", "issuance")
    refused = await world.post(f"/v1/invoices/{invoice['id']}/retry-issuance")
    assert problem(refused)[:2] == (503, "engine.account_recovering")
    assert "retry-after" in refused.headers
    refused = await world.post(f"/v1/invoices/{invoice['id']}/cancel")
    assert problem(refused)[:2] == (503, "engine.account_recovering")
    assert (await charges(world), await world.invoices(subscription)) == ([], [])

    await compare(world)
    assert await issued_by(world, invoice) is not None
    assert len(await world.invoices(subscription)) == 1


async def test_unmatched_charges_are_reported(world: World):
    """A charge is unmatched if its subscription is unknown or canceled, or its invoice has another charge. [D-123]"""
    invoice = await ready_invoice(world)
    await world.run("issuance")
    canceled = await world.enroll(await world.plan())
    await world.post(f"/v1/subscriptions/{canceled['id']}/cancel")
    [lost] = ids.invoice_ids(await now(world), [(UUID(canceled["id"]), 1)])
    for invoice_id in (uuid4(), UUID(invoice["id"]), lost):
        await create_unmatched_charge(world, invoice_id, 500, attempt=2)

    report = await compare(world)

    assert report.counts == {MatchKind.KNOWN: 1, MatchKind.UNMATCHED: 3}
    assert sorted(each.why.split(" ")[0] for each in report.unmatched) == ["a", "its", "its"]
    assert len(await world.events("invoice.issue_failed")) == 1


@pytest.mark.parametrize("fault", ["server_error", "rate_limited"])
async def test_an_account_stays_frozen_while_its_gateway_does_not_answer(world: World, fault: str):
    """A person can end the freeze by running a comparison that skips this connection. [D-123]"""
    invoice = await ready_invoice(world)
    connection_id = (await world.get("/v1/integration")).json["gateways"][0]["connectionId"]
    body = {"connectionId": connection_id, "operation": "list_charges", "fault": fault, "times": 1}
    await world.made("/v1/sandbox/faults", body)

    report = await compare(world)
    assert [connection_id in problem for problem in report.problems] == [True]
    await world.run("issuance")
    assert await charges(world) == []

    skipping = {UUID(connection_id)}
    since = world.deps.clock()
    await comparison.compare(world.deps, world.account_id, since=since, skipping=skipping)
    assert await issued_by(world, invoice) is not None


async def test_a_charge_sent_during_the_comparison_is_looked_up_with_the_others(world: World):
    """While a worker requests charge 1, the comparison finds charge 2, which the database lacks. The invoice adopts it.
    [D-123, D-181, D-33]
    """
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await ready_invoice(world)
    newer = await create_unmatched_charge(world, UUID(invoice["id"]), invoice["totalCents"], attempt=2)
    async with table_held(world, "sandbox_charge"):
        sending = asyncio.create_task(world.run("issuance"))
        await until_waiting(world)
        assert (await compare(world)).counts == {MatchKind.ADOPTED: 1}
    await sending

    assert await issued_by(world, invoice) == newer.charge_id
    assert sorted(each["status"] for each in await charges(world)) == ["canceled", "open"]
    [emitted] = await world.events("invoice.issue_failed")
    assert emitted["data"]["error"]["code"] == "second_charge"
