"""An authentic gateway webhook triggers polls of the charges that it names (D-35).

If a webhook names no charge, the engine polls all unpaid charges of the connection.
The engine ignores all other content of webhooks.
"""

import asyncio
import json
import time
from uuid import uuid4

import pytest

from fatura.domain.credentials import Mode
from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import Charge
from fatura.signature import sign
from tests.support.expect import UNKNOWN_ID, everything
from tests.support.propagate_steps import tables
from tests.support.sandbox_steps import (
    charges,
    connection_id,
    issued_invoice,
    pass_time,
    patch_connection,
    queue_fault,
    read,
    refund_silently,
    table_held,
    until_waiting,
)
from tests.support.webhook_steps import SECRET, budget_free, hook, issued_with_webhooks, paid_unnoticed
from tests.support.world import Json, World


@pytest.fixture
async def issued(world: World) -> Json:
    return await issued_with_webhooks(world)


async def test_a_webhook_polls_the_named_charge_immediately(world: World, issued: Json):
    """[D-35 webhook, D-114]"""
    other = await issued_invoice(world)
    for each in (issued, other):
        await paid_unnoticed(world, each)

    answer = await (await hook(world, issued)).send(world)

    assert (answer.status, answer.json) == (200, {"received": True})
    assert await world.run("reconciliation") == 1
    assert [(await read(world, each))["status"] for each in (issued, other)] == ["paid", "issued"]


async def test_the_state_in_a_webhook_is_ignored(world: World, issued: Json):
    """[D-35 webhook]"""
    assert (await (await hook(world, issued)).send(world)).status == 200
    assert await world.run("reconciliation") == 1
    assert (await read(world, issued))["status"] == "issued"
    assert len(await world.events("invoice.paid")) == 0


async def test_a_webhook_without_a_charge_polls_all_open_ones(world: World, issued: Json):
    """[D-35 webhook]"""
    second = await issued_invoice(world)
    elsewhere = (await world.connect(behaviour="never_pay"))["connectionId"]
    subscription = await world.enroll(await world.plan(), gatewayConnectionId=elsewhere)
    await world.run("generation", "issuance")
    for each in (issued, second, *await world.invoices(subscription)):
        await paid_unnoticed(world, each)

    await (await hook(world, None)).send(world)

    assert await world.run("reconciliation") == 2
    statuses = [each["status"] for each in await world.invoices()]
    assert sorted(statuses) == ["issued", "paid", "paid"]


@pytest.mark.parametrize("state", ["paid", "canceled"])
async def test_a_webhook_polls_the_charge_of_a_closed_invoice(world: World, issued: Json, state: str):
    """[D-35 webhook, D-27 payment unexpected]"""
    if state == "paid":
        await paid_unnoticed(world, issued)
        await (await hook(world, issued)).send(world)
        await world.run("reconciliation")
        await refund_silently(world)
    else:
        await world.made(f"/v1/invoices/{issued['id']}/cancel")
        await paid_unnoticed(world, issued)

    await (await hook(world, issued)).send(world)
    await world.run("reconciliation")

    emitted = {"paid": "invoice.refunded", "canceled": "invoice.payment_unexpected"}[state]
    assert len(await world.events(emitted)) == 1
    assert (await read(world, issued))["status"] == state


@pytest.mark.parametrize("named", [True, False])
async def test_a_webhook_during_a_poll_polls_again(world: World, issued: Json, *, named: bool):
    """The running poll may have read the charge before the change that the webhook reports. [D-35 webhook]"""
    await (await hook(world, issued)).send(world)
    async with table_held(world, "sandbox_fault"):  # the sandbox cannot respond while the table is locked
        asking = asyncio.create_task(world.run("reconciliation"))
        await until_waiting(world)
        await (await hook(world, issued if named else None)).send(world)
    assert await asking == 2


async def test_continuous_webhooks_do_not_delay_a_payment(
    world: World, issued: Json, monkeypatch: pytest.MonkeyPatch
):
    """The payer pays just after the first poll has read the charge. [D-35 webhook replayed, D-190]"""
    genuine, asked = await hook(world, None), 0
    get_charge = SandboxGateway.get_charge

    async def get_amid_webhooks(gateway: SandboxGateway, charge_id: str) -> Charge:
        nonlocal asked
        asked += 1
        charge = await get_charge(gateway, charge_id)
        if asked == 1:
            await paid_unnoticed(world, issued)
        if asked < 20:
            assert (await genuine.send(world)).status == 200
        return charge

    monkeypatch.setattr(SandboxGateway, "get_charge", get_amid_webhooks)
    await genuine.send(world)
    assert await world.run("reconciliation") == 1
    assert (await read(world, issued))["status"] == "issued"
    await pass_time(world, minutes=1)
    assert (await read(world, issued))["status"] == "paid"
    assert asked == 2


async def test_a_named_charge_is_polled_before_a_round(world: World, issued: Json):
    """The budget allows one poll per second. When the webhook arrives, all polls are due. [D-35 webhook first]"""
    invoices = [issued, *[await issued_invoice(world) for _ in range(3)]]
    for each in invoices:
        await paid_unnoticed(world, each)
    await world.sql("UPDATE connection_health SET polls_per_minute = 60")
    await world.sql("UPDATE invoice SET next_attempt_at = created_at")
    await (await hook(world, invoices[-1])).send(world)

    await world.run("reconciliation")

    assert [(await read(world, each))["status"] for each in invoices] == [
        "issued",
        "issued",
        "issued",
        "paid",
    ]
    assert await world.sql("SELECT FROM invoice WHERE polls_first") == []


async def test_a_named_charge_stays_first_while_the_budget_is_spent(world: World, issued: Json):
    """[D-35 webhook first]"""
    invoices = [issued, *[await issued_invoice(world) for _ in range(3)]]
    await world.sql(
        "UPDATE connection_health SET polls_per_minute = 60, polls_from = now() + interval '1 minute'"
    )
    await world.sql("UPDATE invoice SET next_attempt_at = created_at")
    await (await hook(world, invoices[-1])).send(world)
    await world.run("reconciliation")
    for each in invoices:
        await paid_unnoticed(world, each)
    await world.sql("UPDATE connection_health SET polls_from = NULL")
    await world.sql("UPDATE invoice SET next_attempt_at = created_at")

    await world.run("reconciliation")

    assert [(await read(world, each))["status"] for each in invoices] == [
        "issued",
        "issued",
        "issued",
        "paid",
    ]


async def test_every_unauthentic_webhook_gets_the_same_answer(world: World, issued: Json):
    """[D-35 webhook refused, D-11, spec 5.4]"""
    genuine = await hook(world, issued)
    other = await world.another()
    live = await world.another(Mode.LIVE)
    await patch_connection(world, active=True)
    without = (await world.connect())["connectionId"]
    upper = genuine.connection.upper()
    changes: list[dict[str, Json]] = [
        {"account": UNKNOWN_ID},
        {"account": "7"},
        {"account": "%00"},
        {"account": str(other.account_id)},
        {"account": str(live.account_id)},
        {"connection": UNKNOWN_ID},
        {"connection": f"{genuine.connection}0"},
        {"connection": without},
        {"connection": await connection_id(other)},
        {"secret": "another-secret-!"},
        {"at": int(time.time()) - 301},
        {"at": int(time.time()) + 310},
        {"headers": {"X-Sandbox-Signature": ""}},
        {"headers": {"X-Sandbox-Signature": "t=1,v1="}},
        {"headers": {"X-Sandbox-Signature": "t=" + "9" * 9000}},
        {
            "body": b"",
            "headers": {"X-Sandbox-Signature": sign(genuine.body, [SECRET], timestamp=int(time.time()))},
        },
    ]
    answers = [await (await hook(world, issued, **change)).send(world) for change in changes]
    seen = {
        (each.status, each.body, tuple(pair for pair in each.headers.items() if pair[0] != "date"))
        for each in answers
    }
    assert len(seen) == 1
    assert (answers[0].status, answers[0].type) == (404, "engine.not_found")
    assert await world.run("reconciliation") == 0
    assert (await (await hook(world, issued, connection=upper)).send(world)).status == 200


async def test_a_webhook_about_an_unknown_charge_has_no_effect(world: World, issued: Json):
    """[D-35 webhook]"""
    for named in (f"sbx_{uuid4().hex}", "", "\0", "\ud800", "x" * 5000):
        body = json.dumps({"chargeId": named}).encode()
        assert (await (await hook(world, issued, body=body)).send(world)).status == 200
    assert await world.run("reconciliation") == 0


async def test_a_webhook_has_a_maximum_size(world: World, issued: Json):
    """[D-35 webhook]"""
    fits, large = (b"{" + b" " * (size - 2) + b"}" for size in (64 * 1024, 64 * 1024 + 1))
    assert (await (await hook(world, issued, body=fits)).send(world)).status == 200
    answer = await (await hook(world, issued, body=large)).send(world)
    assert (answer.status, answer.type) == (413, "engine.payload_too_large")


@pytest.mark.faults
async def test_a_thousand_replays_change_nothing(world: World, issued: Json):
    """A thousand copies of a webhook, twenty at a time, cause one poll. [D-35 webhook replayed]"""
    await paid_unnoticed(world, issued)
    genuine = await hook(world, issued)
    await genuine.send(world)
    await world.run("reconciliation")
    same_time = "UPDATE charge SET asked_at = confirmed_at"
    await world.sql(same_time)
    before, events = await tables(world), await everything(world)
    written = "SELECT xmin::text FROM invoice"
    await genuine.send(world)
    once = await world.sql(written)

    for _ in range(50):
        answers = await asyncio.gather(*(genuine.send(world) for _ in range(20)))
        assert {answer.status for answer in answers} == {200}

    assert await world.sql(written) == once, "later copies write nothing"
    assert await world.run("reconciliation") == 1
    await world.sql(same_time)
    assert await tables(world) == before
    assert await everything(world) == events
    assert await world.broken() == []


async def test_a_webhook_about_the_earlier_charge_of_a_ready_invoice_is_followed(world: World, issued: Json):
    """A repeated webhook writes nothing. [D-51, D-125]"""
    await queue_fault(world, "create_charge", "rejected")
    await world.made(f"/v1/invoices/{issued['id']}/reissue", {})
    await world.run("issuance")
    await paid_unnoticed(world, issued)
    named = await hook(world, issued)

    await named.send(world)
    before = await tables(world)
    await named.send(world)
    assert await tables(world) == before
    await world.run("reconciliation")

    assert (await read(world, issued))["status"] == "paid"


async def test_an_api_key_does_not_authenticate_a_webhook(world: World, issued: Json):
    """[D-35 webhook refused]"""
    path = f"/gateways/{world.account_id}/{await connection_id(world)}/webhook"
    assert (await world.post(path, {"chargeId": issued["gatewayInvoiceId"]})).status == 404
    assert (await world.get(path)).status == 405
    assert SECRET.encode() not in (await world.get("/v1/integration")).body


async def test_webhooks_create_no_charges(world: World, issued: Json):
    """[D-35 webhook]"""
    await (await hook(world, None)).send(world)
    await world.run()
    assert len(await charges(world, issued)) == 1


@pytest.mark.parametrize("is_round", [False, True])
async def test_copies_of_a_webhook_do_not_stop_other_polls(world: World, issued: Json, *, is_round: bool):
    """The budget allows one poll per second, and a copy arrives before each poll. [D-35 webhook fair, D-190]"""
    others = [await issued_invoice(world), await issued_invoice(world)]
    for each in others:
        await paid_unnoticed(world, each)
    await world.sql("UPDATE connection_health SET polls_per_minute = 60")
    if is_round:
        await (await hook(world, None)).send(world)
    else:
        await world.sql("UPDATE invoice SET next_attempt_at = created_at")
    named = await hook(world, issued)

    for _ in range(4):
        assert (await named.send(world)).status == 200
        await budget_free(world)
        await world.run("reconciliation")

    assert [(await read(world, each))["status"] for each in others] == ["paid", "paid"]
    [health] = await world.sql("SELECT polled_named FROM connection_health")
    assert not health["polled_named"]


async def test_copies_of_a_webhook_do_not_stop_polls_of_other_named_charges(world: World, issued: Json):
    """[D-35 webhook fair]"""
    other = await issued_invoice(world)
    await paid_unnoticed(world, other)
    await world.sql("UPDATE connection_health SET polls_per_minute = 60")
    named = await hook(world, issued)
    await named.send(world)
    await world.run("reconciliation")
    await (await hook(world, other)).send(world)
    await named.send(world)
    await budget_free(world)
    await world.run("reconciliation")
    assert (await read(world, other))["status"] == "paid"
