"""An invoice is issued when the gateway confirms its charge, and paid when the gateway reports the payment."""

from datetime import datetime, timedelta

import pytest

from tests.support.event_fields import fields, fields_of_sample
from tests.support.sandbox_steps import (
    charges,
    connection_id,
    issued_invoice,
    move,
    now,
    pass_time,
    patch_connection,
    queue_fault,
    read,
    ready_invoice,
)
from tests.support.world import World, columns, item, rows


async def test_an_invoice_is_issued_with_the_charge_that_the_gateway_confirmed(world: World) -> None:
    """[spec 3.3 ready to issued]"""
    ready = await read(world, await ready_invoice(world))

    await world.run("issuance")

    (emitted,) = await world.events("invoice.issued")
    issued = await read(world, ready)
    assert issued == {
        **ready,
        "status": "issued",
        "gatewayInvoiceId": emitted["data"]["invoice"]["gatewayInvoiceId"],
        "issuedAt": emitted["createdAt"],
        "charges": issued["charges"],
        "payment": issued["payment"],
    }
    assert await charges(world) == [
        {
            "chargeId": issued["gatewayInvoiceId"],
            "invoiceId": ready["id"],
            "connectionId": await connection_id(world),
            "amountCents": 9990,
            "paymentMethod": "pix",
            "installments": None,
            "dueDate": ready["dueDate"],
            "status": "open",
        }
    ]


async def test_card_installments_reach_the_gateway(world: World) -> None:
    """[D-25]"""
    invoice = await issued_invoice(world, defaultPaymentMethod="card", maxInstallments=3)

    (charge,) = await charges(world, invoice)
    assert (charge["paymentMethod"], charge["installments"]) == ("card", 3)


@pytest.mark.parametrize(
    "fault", ["timeout_before", "timeout_after", "server_error", "rate_limited", "rejected"]
)
async def test_nothing_is_issued_before_the_gateway_confirms(world: World, fault: str) -> None:
    """[spec 3.3 rule 1]"""
    invoice = await ready_invoice(world)
    await queue_fault(world, "create_charge", fault)

    await world.run("issuance")

    found = await read(world, invoice)
    assert (found["status"], found["gatewayInvoiceId"], found["issuedAt"]) == ("ready", None, None)
    assert await world.events("invoice.issued") == []
    assert await world.broken() == []


async def test_a_poll_finds_a_payment_on_the_due_date(world: World) -> None:
    """[spec 3.3 issued to paid, D-35 polling]"""
    invoice = await issued_invoice(world)

    await world.advance(invoice["dueDate"])

    paid = await read(world, invoice)
    assert (paid["status"], paid["paidAt"]) == ("paid", f"{invoice['dueDate']}T03:00:00.000Z")
    (emitted,) = await world.events("invoice.paid")
    assert emitted["data"]["invoice"]["paidAt"] == paid["paidAt"]
    assert [charge["status"] for charge in await charges(world)] == ["paid"]
    assert await world.broken() == []


async def test_an_invoice_is_issued_even_if_its_charge_is_paid_immediately(world: World) -> None:
    """[spec 3.3 issued to paid, D-46]"""
    await world.set_up_gateway(behaviour="pay_at_once")
    invoice = await ready_invoice(world)

    await world.run()

    assert (await read(world, invoice))["status"] == "paid"
    kinds = [event["type"] for event in await world.events() if "invoice" in event["data"]]
    assert kinds == ["invoice.created", "invoice.issued", "invoice.paid"]


async def test_a_payment_emits_one_event_however_often_it_is_polled(world: World) -> None:
    """[D-36]"""
    invoice = await issued_invoice(world)
    (charge,) = await charges(world)
    for _ in range(3):
        await move(world, charge, "pay")
        await world.run("reconciliation")
    await pass_time(world, days=5)

    assert len(await world.events("invoice.paid")) == 1
    assert (await read(world, invoice))["status"] == "paid"


@pytest.mark.parametrize(
    ("cents", "discounts"),
    [(0, []), (9990, [(100, 1, None)]), (1, [(51, 1, None)])],
    ids=["free product", "100 % off", "rounded down to zero"],
)
async def test_a_total_of_zero_never_reaches_the_gateway(
    world: World, cents: int, discounts: list[tuple[int, int, int | None]]
) -> None:
    """[spec 3.3 rule 2, D-9]"""
    await queue_fault(world, "create_charge", "rejected", times=1000)
    subscription = await world.enroll(await world.plan(item(await world.product(cents), *discounts)))

    await world.run()

    (invoice,) = await world.invoices(subscription)
    assert (invoice["status"], invoice["totalCents"]) == ("paid", 0)
    assert (invoice["gatewayInvoiceId"], invoice["issuedAt"]) == (None, None)
    assert invoice["paidAt"] == invoice["createdAt"]
    detail = await read(world, invoice)
    assert [(each["pricingStatus"], each["amountCents"]) for each in detail["items"]] == [("priced", 0)]
    assert await charges(world) == []
    assert [event["type"] for event in await world.events()][1:] == ["invoice.created", "invoice.paid"]
    assert await world.broken() == []


async def test_a_free_item_and_a_priced_item_make_one_charge(world: World) -> None:
    """[D-9]"""
    free, priced = await world.product(0), await world.product(500)
    subscription = await world.enroll(await world.plan(free, priced))

    await world.run()

    (invoice,) = await world.invoices(subscription)
    assert (invoice["status"], invoice["totalCents"]) == ("issued", 500)
    assert [charge["amountCents"] for charge in await charges(world)] == [500]


async def test_an_invoice_without_variable_items_is_created_ready(world: World) -> None:
    """`invoice.ready` is emitted only for invoices that were drafts or held. [D-24]"""
    await ready_invoice(world)

    (created,) = await world.events("invoice.created")
    assert created["data"]["invoice"]["status"] == "ready"
    await world.run()
    assert await world.events("invoice.ready", "invoice.held") == []


async def test_a_failed_charge_is_retried_on_the_same_invoice(world: World) -> None:
    """[spec 3.3 rule 3]"""
    invoice = await ready_invoice(world)
    await queue_fault(world, "create_charge", "rate_limited", times=4)

    await pass_time(world, hours=2)

    assert columns(await world.invoices(), "id", "cycle", "status") == [(invoice["id"], "1", "issued")]
    assert len(await charges(world)) == 1
    assert len(await world.events("invoice.created")) == 1


async def test_a_transient_failure_is_retried_with_growing_delays(world: World) -> None:
    """After three failures, each attempt is a probe of the failing connection. The pauses between probes grow to
    15 minutes. After an hour of failures, `invoice.issue_delayed` is emitted once. [D-34, D-55 failing]
    """
    invoice = await ready_invoice(world)
    await queue_fault(world, "create_charge", "rate_limited", times=30)
    since = await now(world)

    await pass_time(world, days=1, hours=12)

    (delayed,) = await world.events("invoice.issue_delayed")
    waited = datetime.fromisoformat(delayed["createdAt"]) - since
    assert timedelta(hours=1) <= waited < timedelta(hours=2)
    assert delayed["data"]["error"] == {"code": "retrying", "detail": "rate_limited"}
    assert fields(delayed) == fields_of_sample(delayed["type"])
    issued = await read(world, invoice)
    took = datetime.fromisoformat(issued["issuedAt"]) - since
    assert issued["status"] == "issued"
    assert timedelta(hours=4) < took < timedelta(hours=8)  # 22 of the 30 delays last 12 to 15 minutes
    assert len(await charges(world)) == 1
    assert await world.broken() == []


async def test_refused_data_waits_for_a_person(world: World) -> None:
    """[D-34, D-129]"""
    invoice = await ready_invoice(world)
    await queue_fault(world, "create_charge", "rejected")

    await pass_time(world, days=30)

    (failed,) = await world.events("invoice.issue_failed")
    assert fields(failed) == fields_of_sample(failed["type"])
    assert failed["data"]["error"] == {"code": "rejected", "detail": "A queued fault refuses this call."}
    shown = await read(world, invoice)
    assert shown["status"] == "ready"
    assert shown["issueError"] == {
        "code": "rejected",
        "detail": "A queued fault refuses this call.",
        "at": failed["createdAt"],
    }
    for seen in (failed["data"]["invoice"], (await world.invoices())[0]):
        assert (seen["id"], seen["issueError"]) == (invoice["id"], shown["issueError"])
    assert await charges(world, invoice) == []
    assert await world.events("invoice.issue_delayed") == []


async def test_an_invoice_waits_while_its_connection_is_inactive(world: World) -> None:
    """[D-34, D-129]"""
    invoice = await ready_invoice(world)
    await patch_connection(world, active=False)

    await pass_time(world, days=2)

    waiting = await read(world, invoice)
    assert (waiting["status"], waiting["issueError"]) == ("ready", None)
    (delayed,) = await world.events("invoice.issue_delayed")
    assert delayed["data"]["error"] == {"code": "inactive", "detail": "The gateway connection is inactive."}
    assert await charges(world) == []

    await patch_connection(world, active=True)
    await world.run("issuance")

    assert (await read(world, invoice))["status"] == "issued"
    assert len(await charges(world)) == 1


async def test_a_method_that_the_connection_no_longer_supports_is_refused(world: World) -> None:
    """[D-34]"""
    await ready_invoice(world)
    await world.set_up_gateway(methods=["card"])

    await world.run("issuance")

    (failed,) = await world.events("invoice.issue_failed")
    assert failed["data"]["error"]["code"] == "method_unsupported"


async def test_missed_cycles_are_charged_with_a_due_date_of_today(world: World) -> None:
    """The charge is due on the invoice's due date or today, whichever is later. [D-5]"""
    invoice = await ready_invoice(world)
    await patch_connection(world, active=False)
    await pass_time(world, days=5)

    await patch_connection(world, active=True)
    await world.run("issuance")

    (charge,) = await charges(world, invoice)
    today = (await now(world) - timedelta(hours=3)).date().isoformat()
    assert (charge["dueDate"], (await read(world, invoice))["dueDate"]) == (today, invoice["dueDate"])
    assert columns(await world.invoices(), "cycle", "status") == rows("""
        cycle | status
        1     | issued
    """)
