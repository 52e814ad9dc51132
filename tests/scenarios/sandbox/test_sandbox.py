"""The sandbox gateway: its connection and settings, manual changes of its charges, and injected faults."""

import time
from uuid import uuid4

import pytest

from fatura.domain.credentials import Mode
from fatura.gateways.adapters.sandbox import adapter
from fatura.gateways.sandbox_port import MAX_DOUBLES
from fatura.usecases.sandbox import sandbox_gateway
from tests.support.sandbox_steps import (
    charges,
    connection_id,
    issued_invoice,
    move,
    pass_time,
    queue_fault,
    read,
    ready_invoice,
)
from tests.support.world import Json, Merchant, World, rows, subscription_body


async def test_a_live_account_has_no_sandbox(world: World) -> None:
    """[D-44]"""
    live = await world.another(Mode.LIVE)

    assert (await live.get("/v1/integration")).json["gateways"] == []
    assert (await live.get("/v1/sandbox/charges")).json == {"data": []}
    assert (await live.get("/v1/sandbox/products")).json == {"data": []}
    assert (await live.post(f"/v1/sandbox/charges/sbx_{0:032x}/pay")).status == 404
    fault = {"connectionId": await connection_id(world), "operation": "get_charge", "fault": "rejected"}
    assert (await live.post("/v1/sandbox/faults", fault)).status == 404


BEHAVIOURS = rows("""
    behaviour   | at once | on the due date | ten days later
    pay_on_due  | issued  | paid            | paid
    pay_at_once | paid    | paid            | paid
    refuse      | overdue | overdue         | overdue
    never_pay   | issued  | issued          | overdue
""")


@pytest.mark.faults
@pytest.mark.parametrize(
    ("behaviour", "at_once", "on_due", "later"), BEHAVIOURS, ids=[row[0] for row in BEHAVIOURS]
)
async def test_the_behaviour_setting_decides_when_payers_pay(
    world: World, behaviour: str, at_once: str, on_due: str, later: str
) -> None:
    """[D-46, spec 3.3 issued to paid, D-26]"""
    await world.set_up_gateway(behaviour=behaviour)
    invoice = await ready_invoice(world)
    found: list[str] = []

    await world.run()
    found.append((await read(world, invoice))["status"])
    await world.advance(invoice["dueDate"])
    found.append((await read(world, invoice))["status"])
    await pass_time(world, days=10)
    found.append((await read(world, invoice))["status"])

    assert found == [at_once, on_due, later]
    assert len(await charges(world)) == 1


MOVES = rows("""
    from     | deed   | status | ends as
    open     | pay    | 200    | paid
    open     | refuse | 200    | refused
    open     | cancel | 200    | canceled
    open     | refund | 409    | open
    paid     | pay    | 200    | paid
    paid     | refuse | 409    | paid
    paid     | cancel | 409    | paid
    paid     | refund | 200    | refunded
    refused  | pay    | 200    | paid
    refused  | refuse | 200    | refused
    refused  | cancel | 200    | canceled
    refused  | refund | 409    | refused
    canceled | pay    | 200    | canceled
    canceled | refuse | 409    | canceled
    canceled | cancel | 200    | canceled
    canceled | refund | 409    | canceled
    refunded | pay    | 409    | refunded
    refunded | refuse | 409    | refunded
    refunded | cancel | 409    | refunded
    refunded | refund | 200    | refunded
""")
WAY_TO = {
    "open": [],
    "paid": ["pay"],
    "refused": ["refuse"],
    "canceled": ["cancel"],
    "refunded": ["pay", "refund"],
}


async def test_impossible_moves_are_refused_in_every_status(world: World) -> None:
    """[D-46, D-101]"""
    await world.set_up_gateway(behaviour="never_pay")
    plan = await world.plan()
    for _ in MOVES:
        await world.enroll(plan)
    await world.run("generation", "issuance")

    found: list[tuple[str, ...]] = []
    for charge, (status, deed, _, _) in zip(await charges(world), MOVES, strict=True):
        for step in WAY_TO[status]:
            await move(world, charge, step)
        answer = await world.post(f"/v1/sandbox/charges/{charge['chargeId']}/{deed}")
        (now_is,) = await charges(world, {"id": charge["invoiceId"]})
        assert (
            answer.json == now_is if answer.status == 200 else answer.type == "engine.sandbox_charge_conflict"
        )
        found.append((status, deed, str(answer.status), now_is["status"]))

    assert found == MOVES


@pytest.mark.parametrize("deed", ["pay", "refuse", "cancel", "refund"])
async def test_an_unknown_charge_is_a_404(world: World, deed: str) -> None:
    """[D-46, D-101, spec 5.4, spec 7 404]"""
    for charge_id in (f"sbx_{7:032x}", "sbx_7", "x" * 300, "%00", "%ED%A0%80", "%F0%9F%92%B8"):
        answer = await world.post(f"/v1/sandbox/charges/{charge_id}/{deed}")
        assert (answer.status, answer.type) == (404, "engine.not_found"), charge_id


async def test_the_404_of_an_unknown_charge_names_the_list_of_charges(world: World) -> None:
    """[D-46]"""
    invoice = await issued_invoice(world)
    (charge,) = (await read(world, invoice))["charges"]
    answer = await world.post(f"/v1/sandbox/charges/{charge['id']}/pay")
    assert answer.status == 404
    assert "send `chargeId` of GET /v1/sandbox/charges" in answer.json["detail"]


async def test_charges_are_listed_newest_first_and_by_invoice(world: World) -> None:
    """[D-46]"""
    second = await world.connect()
    plan = await world.plan()
    for connection in (await connection_id(world), second["connectionId"], second["connectionId"]):
        await world.made("/v1/subscriptions", subscription_body(plan, gatewayConnectionId=connection))
        await world.run()
    issued = await world.invoices()

    listed = await charges(world)

    assert [each["chargeId"] for each in listed] == [each["gatewayInvoiceId"] for each in issued[::-1]]
    assert await charges(world, issued[1]) == [listed[1]]
    assert await charges(world, {"id": str(uuid4())}) == []
    assert (await world.get("/v1/sandbox/charges?invoiceId=7")).status == 400


@pytest.mark.parametrize(("deed", "status"), [("pay", "paid"), ("refuse", "overdue"), ("cancel", "canceled")])
async def test_a_move_is_polled_immediately(world: World, deed: str, status: str) -> None:
    """[D-46]"""
    invoice = await issued_invoice(world)
    (charge,) = await charges(world)

    await move(world, charge, deed)
    await world.run("reconciliation")

    assert (await read(world, invoice))["status"] == status


async def test_a_changed_behaviour_applies_to_open_charges(world: World) -> None:
    """[D-46]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await issued_invoice(world)

    await world.set_up_gateway(behaviour="pay_at_once")
    await world.run("reconciliation")

    assert (await read(world, invoice))["status"] == "paid"


async def test_a_queued_fault_is_returned(world: World) -> None:
    """[D-46]"""
    body = {"connectionId": await connection_id(world), "operation": "get_charge", "fault": "timeout_after"}

    answer = await world.post("/v1/sandbox/faults", body)

    assert answer.status == 201
    assert answer.json == {"id": answer.json["id"], **body, "times": 1}
    assert (await queue_fault(world, "create_product", "rejected", times=1000))["times"] == 1000
    lasting = {**body, "operation": "all", "fault": "hang", "seconds": 86_400}
    assert (await world.made("/v1/sandbox/faults", lasting)).keys() == {"id", *lasting}


async def test_ended_faults_are_deleted(world: World) -> None:
    """[D-46]"""
    await queue_fault(world, "get_charge", "rejected")
    await world.sql("UPDATE sandbox_fault SET times_left = 0")
    kept = await queue_fault(world, "get_charge", "rejected")
    assert [str(row[0]) for row in await world.sql("SELECT sandbox_fault_id FROM sandbox_fault")] == [
        kept["id"]
    ]


async def test_a_charge_has_at_most_a_hundred_entries(world: World) -> None:
    """[D-61]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await issued_invoice(world)
    path = f"/v1/sandbox/charges/{invoice['gatewayInvoiceId']}/pay"
    for _ in range(100):
        await world.made(path, {"amountCents": 1})
    refused = await world.post(path, {"amountCents": 1})
    assert (refused.status, refused.type) == (409, "engine.sandbox_charge_conflict")


WRONG_FAULTS: tuple[tuple[Json, str], ...] = (
    ({"operation": "pay"}, "operation"),
    ({"fault": "explode"}, "fault"),
    ({"times": 0}, "times"),
    ({"times": 1001}, "times"),
    ({"times": 1.0}, "times"),
    ({"seconds": 0}, "seconds"),
    ({"seconds": 86_401}, "seconds"),
    ({"seconds": "60"}, "seconds"),
    ({"times": 1, "seconds": 1}, "seconds"),
    ({"operation": "ALL"}, "operation"),
    ({"connectionId": "7"}, "connectionId"),
    ({"connectionId": None}, "connectionId"),
    ({"delay": 1}, "delay"),
)


async def test_a_malformed_fault_is_refused(world: World) -> None:
    """[D-46, D-11]"""
    body = {"connectionId": await connection_id(world), "operation": "get_charge", "fault": "rejected"}

    for change, path in WRONG_FAULTS:
        answer = await world.post("/v1/sandbox/faults", {**body, **change})
        assert (answer.status, answer.type) == (400, "engine.invalid_request"), change
        assert [each["path"] for each in answer.json["meta"]["fields"]] == [path]


async def test_a_fault_for_an_unknown_connection_is_a_404(world: World) -> None:
    """[D-46, spec 5.4]"""
    body = {"connectionId": str(uuid4()), "operation": "get_charge", "fault": "rejected"}

    answer = await world.post("/v1/sandbox/faults", body)

    assert (answer.status, answer.type) == (404, "engine.not_found")


@pytest.mark.parametrize("fault", ["unknown", "unauthorized", "hang"])
@pytest.mark.parametrize("operation", ["create_charge", "cancel_charge", "refund_charge", "all"])
async def test_every_operation_takes_every_fault(world: World, operation: str, fault: str) -> None:
    """[D-61 faults]"""
    assert (await queue_fault(world, operation, fault))["operation"] == operation


async def test_faults_are_ended_on_request(world: World) -> None:
    """[D-61 faults, D-67 faults]"""
    invoice = await ready_invoice(world)
    body = {
        "connectionId": await connection_id(world),
        "operation": "all",
        "fault": "rejected",
        "seconds": 600,
    }
    await world.made("/v1/sandbox/faults", body)
    await queue_fault(world, "create_charge", "rejected", times=1000)

    for _ in range(2):
        answer = await world.delete(f"/v1/sandbox/faults?connectionId={body['connectionId']}")
        assert (answer.status, answer.body) == (204, b"")

    await world.run()
    assert (await read(world, invoice))["status"] == "issued"


async def test_faults_of_an_unknown_connection_are_not_ended(world: World) -> None:
    """[D-61 faults, spec 5.4, D-11]"""
    other = await world.another()
    theirs = await connection_id(other)
    await queue_fault(other, "create_charge", "rejected")
    for query, status in (
        (f"?connectionId={theirs}", 404),
        (f"?connectionId={uuid4()}", 404),
        ("?connectionId=7", 400),
        ("", 400),
        (f"?connectionId={theirs}&operation=all", 400),
    ):
        assert (await world.delete(f"/v1/sandbox/faults{query}")).status == status, query

    await ready_invoice_refused(other, world)


async def ready_invoice_refused(merchant: Merchant, world: World) -> None:
    """Check that the account's gateway refuses the charge of the next invoice."""
    await merchant.enroll(await merchant.plan())
    await world.run()
    assert [event["type"] for event in await merchant.events("invoice.issue_failed")] == [
        "invoice.issue_failed"
    ]


async def test_a_gateway_without_an_answer_delays_a_request_by_its_deadline(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The invoice stays issued, because the gateway did not confirm the cancellation. [D-61 faults, D-27]"""
    invoice = await issued_invoice(world)
    monkeypatch.setattr("fatura.gateways.port.CALL_TIMEOUT_SECONDS", 0.5)
    await queue_fault(world, "cancel_charge", "hang")

    began = time.monotonic()
    answer = await world.post(f"/v1/invoices/{invoice['id']}/cancel")

    assert (answer.status, answer.type) == (409, "engine.invoice_not_cancelable")
    assert 0.5 <= time.monotonic() - began < 5
    assert (await world.post(f"/v1/invoices/{invoice['id']}/cancel")).json["status"] == "canceled"


async def test_an_invoice_is_issued_once_after_an_outage_of_all_calls(world: World) -> None:
    """While the gateway refuses the credentials, the connection is failing. Later, the connection recovers by itself.
    [D-61 faults, D-55 failing]
    """
    invoice = await ready_invoice(world)
    fault = {
        "connectionId": await connection_id(world),
        "operation": "all",
        "fault": "unauthorized",
        "seconds": 600,
    }
    await world.made("/v1/sandbox/faults", fault)
    await pass_time(world, hours=3)
    (connection,) = (await world.get("/v1/integration")).json["gateways"]
    assert connection["health"]["state"] == "failing"
    assert (await read(world, invoice))["status"] == "ready"
    refused = await world.patch(f"/v1/integration/gateways/{connection['connectionId']}", {"credentials": {}})
    assert (refused.status, refused.type) == (400, "engine.invalid_request")

    await world.delete(f"/v1/sandbox/faults?connectionId={connection['connectionId']}")
    await pass_time(world, hours=1)

    (connection,) = (await world.get("/v1/integration")).json["gateways"]
    assert connection["health"]["state"] == "ok"
    assert (await read(world, invoice))["status"] == "issued"
    assert len(await charges(world)) == 1
    assert await world.broken() == []


async def test_a_charge_that_the_gateway_does_not_know_is_missing(world: World) -> None:
    """[D-61 faults, D-56]"""
    invoice = await issued_invoice(world)
    await queue_fault(world, "get_charge", "unknown", times=1000)

    await world.advance(invoice["dueDate"])

    assert len(await world.events("invoice.charge_missing")) == 1


async def test_the_newest_products_of_all_connections_are_listed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[D-46]"""
    monkeypatch.setattr(adapter, "PRODUCTS_LISTED", 2)
    monkeypatch.setattr(sandbox_gateway, "PRODUCTS_LISTED", 2)
    await world.set_up_gateway(productCatalog=True)
    await world.connect(productCatalog=True)
    products = [(await world.product())["id"] for _ in range(3)]
    await world.run("mirroring")
    listed = (await world.get("/v1/sandbox/products")).json["data"]
    assert [each["productId"] for each in listed] == [products[2], products[2]]


async def test_the_newest_charges_of_all_connections_are_listed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[D-46]"""
    await issued_invoice(world)
    elsewhere = (await world.connect())["connectionId"]
    await world.enroll(await world.plan(), gatewayConnectionId=elsewhere)
    await world.run("generation", "issuance")
    newest, _ = await charges(world)
    monkeypatch.setattr(adapter, "CHARGES_LISTED", 1)
    monkeypatch.setattr(sandbox_gateway, "CHARGES_LISTED", 1)
    assert await charges(world) == [newest]


async def test_an_invoice_has_a_maximum_of_second_charges(world: World) -> None:
    """[D-61]"""
    invoice = await issued_invoice(world)
    path = f"/v1/sandbox/charges/{invoice['gatewayInvoiceId']}/double"
    for _ in range(MAX_DOUBLES):
        assert (await world.post(path)).status == 200
    refused = await world.post(path)
    assert (refused.status, refused.type) == (409, "engine.sandbox_charge_conflict")
    double, *_ = await charges(world)
    await move(world, double, "pay")
    assert (await world.post(f"/v1/sandbox/charges/{double['chargeId']}/forget")).status == 409
    assert len(await charges(world)) == MAX_DOUBLES + 1
    other = await issued_invoice(world)
    assert (await world.post(f"/v1/sandbox/charges/{other['gatewayInvoiceId']}/double")).status == 200
