"""`retry-issuance` immediately retries an invoice whose issuance was refused, delayed or parked (D-34)."""

import asyncio

import pytest

from tests.support.expect import UNKNOWN_ID, problem
from tests.support.sandbox_steps import (
    charges,
    issued_invoice,
    move,
    park,
    pass_time,
    patch_connection,
    queue_fault,
    read,
    ready_invoice,
    stored_charges,
    table_held,
    until_waiting,
)
from tests.support.world import Answer, Json, World, plan_body


async def retry(world: World, invoice: Json) -> Answer:
    return await world.post(f"/v1/invoices/{invoice['id']}/retry-issuance")


async def states(world: World) -> list[tuple[int, str]]:
    return [(each["number"], each["stage"]) for each in await stored_charges(world)]


async def test_after_a_refusal_the_next_attempt_is_sent(world: World):
    """[D-34 retry, D-34, D-113, D-129]"""
    invoice = await ready_invoice(world)
    await queue_fault(world, "create_charge", "rejected", times=2)
    await world.run("issuance")
    await pass_time(world, days=2)
    assert await states(world) == [(1, "failed")], "workers do not retry a refused attempt"
    refused = await read(world, invoice)

    again = await retry(world, invoice)
    assert (again.status, again.json["status"]) == (200, "ready")
    assert len(await world.events("invoice.issue_failed")) == 2
    assert again.json["issueError"]["at"] > refused["issueError"]["at"]

    issued = await retry(world, invoice)
    assert (issued.status, issued.json) == (200, await read(world, invoice))
    assert (issued.json["status"], issued.json["items"]) == ("issued", invoice_items(issued.json))
    assert issued.json["issueError"] is None
    [charge] = await charges(world)
    assert issued.json["gatewayInvoiceId"] == charge["chargeId"]
    assert await states(world) == [(1, "failed"), (2, "failed"), (3, "open")]
    assert len(await world.events("invoice.issued")) == 1
    assert await world.broken() == []


def invoice_items(invoice: Json) -> Json:
    assert invoice["items"]
    return invoice["items"]


async def test_an_invoice_that_was_never_sent_is_issued(world: World):
    """[D-34 retry]"""
    invoice = await ready_invoice(world)
    assert (await retry(world, invoice)).json["status"] == "issued"
    assert await world.run("issuance") == 0
    assert len(await charges(world)) == 1


async def test_a_retry_does_not_wait_for_the_next_delay(world: World):
    """[D-34 retry]"""
    invoice = await ready_invoice(world)
    await queue_fault(world, "create_charge", "rate_limited", times=3)
    await world.run("issuance")
    assert await world.run("issuance") == 0
    statuses = [(await retry(world, invoice)).json["status"] for _ in range(3)]
    assert statuses == ["ready", "ready", "issued"]
    assert await states(world) == [(1, "open")]


@pytest.mark.parametrize(
    ("fault", "made"), [("timeout_after", 1), ("timeout_before", 0), ("server_error", 0)]
)
async def test_an_unknown_outcome_is_looked_up_and_not_sent_again(world: World, fault: str, made: int):
    """A retry sends no second request before two look-ups have found no charge. [D-34 retry, D-33]"""
    invoice = await ready_invoice(world)
    await queue_fault(world, "create_charge", fault)
    await world.run("issuance")

    for asked in range(5):
        assert (await retry(world, invoice)).status == (409 if made and asked else 200)
        assert len(await charges(world)) == made
        assert len(await stored_charges(world)) == 1

    await pass_time(world, minutes=5)
    assert (await read(world, invoice))["status"] == "issued"
    assert len(await charges(world)) == 1


async def test_a_retry_closes_a_parked_attempt_and_sends_the_next(world: World):
    """The person who retries accepts that the attempt may have created a charge. [D-34 retry, D-33]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await ready_invoice(world)
    await park(world)
    await pass_time(world, days=1)
    [stray] = await charges(world)
    await move(world, stray, "cancel")

    issued = (await retry(world, invoice)).json

    assert await states(world) == [(1, "failed"), (2, "open")]
    charge, _ = await charges(world)
    assert (issued["status"], issued["gatewayInvoiceId"]) == ("issued", charge["chargeId"])
    assert await world.broken() == []


async def test_a_charge_that_the_person_overlooked_is_canceled(world: World):
    """A late look-up finds the overlooked charge, and Fatura cancels it. [D-34 retry, D-113, D-125]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await ready_invoice(world)
    await park(world)
    [overlooked] = await charges(world)

    issued = (await retry(world, invoice)).json
    await pass_time(world, minutes=11)

    assert {each["chargeId"]: each["status"] for each in await charges(world)} == {
        issued["gatewayInvoiceId"]: "open",
        overlooked["chargeId"]: "canceled",
    }
    assert await world.broken() == []


async def test_a_retry_during_issuance_sends_nothing(world: World):
    """[D-34 retry, D-33]"""
    invoice = await ready_invoice(world)
    await queue_fault(world, "list_charges", "rejected")
    async with table_held(world, "sandbox_charge"):
        issuing = asyncio.create_task(world.run("issuance"))
        await until_waiting(world)
        assert (await retry(world, invoice)).json["status"] == "ready"
        assert await states(world) == [(1, "sending")]
    await issuing
    assert (await read(world, invoice))["status"] == "issued"
    assert await states(world) == [(1, "open")]
    [fault] = await world.sql("SELECT times_left FROM sandbox_fault")
    assert fault["times_left"] == 1, "the retry made no look-up"


@pytest.mark.parametrize("refused", [True, False])
async def test_concurrent_retries_create_one_charge(world: World, *, refused: bool):
    """[D-34 retry, D-33]"""
    invoice = await ready_invoice(world)
    if refused:
        await queue_fault(world, "create_charge", "rejected")
        await world.run("issuance")

    retries = asyncio.gather(*(retry(world, invoice) for _ in range(8)))
    await asyncio.gather(*(world.run("issuance") for _ in range(3)))
    assert {answer.status for answer in await retries} <= {200, 409}

    await world.run()
    assert (await read(world, invoice))["status"] == "issued"
    assert len(await charges(world)) == 1
    assert (await states(world))[-1] == ((2 if refused else 1), "open")
    assert len(await world.events("invoice.issued")) == 1
    assert await world.broken() == []


async def test_a_retry_waits_for_an_unusable_connection(world: World):
    """[D-34 retry, D-34]"""
    invoice = await ready_invoice(world)
    await patch_connection(world, active=False)
    for _ in range(2):
        assert (await retry(world, invoice)).json["status"] == "ready"
    assert await stored_charges(world) == []
    assert len(await world.events("invoice.issue_delayed")) == 1
    await patch_connection(world, active=True)
    await world.run("issuance")
    assert (await read(world, invoice))["status"] == "issued"


async def test_a_retry_is_refused_in_every_other_state(world: World):
    """[D-34 retry, D-11]"""
    issued = await issued_invoice(world)
    canceled, draft = (
        await ready_invoice(world),
        await world.enroll(await world.plan(await world.variable_product())),
    )
    await world.made(f"/v1/invoices/{canceled['id']}/cancel")
    await world.run("generation")
    paid = await issued_invoice(world)
    [charge] = await charges(world, paid)
    await move(world, charge, "pay")
    overdue = await issued_invoice(world)
    [charge] = await charges(world, overdue)
    await move(world, charge, "refuse")
    await world.run("reconciliation")
    before = await world.invoices()

    [pending] = await world.invoices(draft)
    for invoice in (issued, canceled, paid, overdue, pending):
        answer = await retry(world, invoice)
        assert problem(answer) == (409, "engine.invoice_not_ready", None)
    for sought in (UNKNOWN_ID, "7"):
        answer = await world.post(f"/v1/invoices/{sought}/retry-issuance")
        assert problem(answer) == (404, "engine.not_found", None)

    assert {each["status"] for each in before} == {"issued", "canceled", "paid", "overdue", "draft"}
    assert await world.invoices() == before


async def test_a_retry_ignores_an_idempotency_key(world: World):
    """[D-34 retry, D-14]"""
    invoice = await ready_invoice(world)
    await queue_fault(world, "create_charge", "rejected")
    path = f"/v1/invoices/{invoice['id']}/retry-issuance"
    answers = [await world.post(path, key="same") for _ in range(3)]
    assert [(each.status, each.headers.get("idempotent-replayed")) for each in answers] == [
        (200, None),
        (200, None),
        (409, None),
    ]


async def test_a_repeat_keeps_a_parked_attempt_that_it_may_have_sent(world: World):
    """A retry sent an attempt, which is now parked. The client repeats the retry with the same key.

    Only a new key would tell the engine that a person has checked the gateway for a charge. [D-113]
    """
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await ready_invoice(world)
    path = f"/v1/invoices/{invoice['id']}/retry-issuance"
    await queue_fault(world, "create_charge", "rejected")
    await world.run("issuance")
    await queue_fault(world, "create_charge", "timeout_after")
    assert (await world.post(path, key="first")).json["status"] == "ready"
    await world.sql(
        "UPDATE charge SET stage = 'parked', error_code = 'outcome_unknown', error_detail = 'x' WHERE number = 2"
    )
    await world.sql(
        "UPDATE invoice SET next_attempt_at = NULL, issue_error_code = 'outcome_unknown', issue_error_detail = 'x',"
        " issue_error_at = created_at"
    )

    for _ in range(2):
        again = await world.post(path, key="first")
        assert (again.status, again.json) == (200, await read(world, invoice))
    assert await states(world) == [(1, "failed"), (2, "parked")]
    assert len(await charges(world)) == 1

    [stray] = await charges(world)
    await move(world, stray, "cancel")
    assert (await world.post(path, key="second")).json["status"] == "issued"
    assert await states(world) == [(1, "failed"), (2, "failed"), (3, "open")]
    assert await world.broken() == []


async def test_a_repeat_keeps_a_parked_attempt_that_was_in_progress(world: World):
    """When the first retry arrived, a worker was still sending the attempt, so the attempt was not parked yet.

    A repeat with the same key does not show that the merchant has checked the gateway since then. The repeat therefore
    leaves the attempt parked. [D-113]
    """
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await ready_invoice(world)
    path = f"/v1/invoices/{invoice['id']}/retry-issuance"
    await park(world)
    await world.sql("UPDATE invoice SET lease_until = now() + interval '1 minute'")
    assert (await world.post(path, key="first")).json["status"] == "ready"
    await world.sql("UPDATE invoice SET lease_until = NULL")

    assert (await world.post(path, key="first")).json["status"] == "ready"
    assert await states(world) == [(1, "parked")]
    assert (await world.post(path, key="second")).json["status"] == "issued"


async def test_the_key_of_another_request_is_refused(world: World):
    """A retry has the key of another request. If the API accepted the key, the engine could not recognize a repeat.

    The repeat could create a second charge. [D-113, D-14]
    """
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await ready_invoice(world)
    path = f"/v1/invoices/{invoice['id']}/retry-issuance"
    assert (await world.post("/v1/plans", plan_body(await world.product()), key="used")).status == 201
    assert problem(await world.post(path, key="used")) == (422, "engine.idempotency_key_reused", None)
    await park(world)
    assert problem(await world.post(path, key="used")) == (422, "engine.idempotency_key_reused", None)
    assert await states(world) == [(1, "parked")]
    assert len(await charges(world)) == 1


@pytest.mark.faults
async def test_retries_of_one_invoice_have_a_pace(world: World):
    """The API accepts ten immediate retries of an invoice, and then one retry every 15 minutes. [D-113, D-34 retry]"""
    invoice, other = await ready_invoice(world), await ready_invoice(world)
    await queue_fault(world, "create_charge", "rate_limited", times=100)

    answers = [await retry(world, invoice) for _ in range(30)]

    assert [answer.status for answer in answers] == [200] * 10 + [429] * 20
    assert answers[-1].type == "engine.rate_limited"
    assert 840 < int(answers[-1].headers["retry-after"]) <= 900
    [fault] = await world.sql("SELECT times_left FROM sandbox_fault")
    assert fault["times_left"] == 90
    assert (await retry(world, other)).status == 200
    await world.sql("UPDATE invoice SET retry_paced_until = retry_paced_until - interval '30 minutes'")
    assert [(await retry(world, invoice)).status for _ in range(3)] == [200, 200, 429]


async def test_a_pace_written_by_a_host_with_a_wrong_clock_is_ignored(world: World):
    """[D-113, D-5]"""
    invoice = await ready_invoice(world)
    await world.sql("UPDATE invoice SET retry_paced_until = now() + interval '40 days'")
    assert (await retry(world, invoice)).json["status"] == "issued"
