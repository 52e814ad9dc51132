"""Copies of a gateway's webhook have no effect, and webhooks that arrive together share a transaction (D-266)."""

import asyncio
import json
import time
from dataclasses import replace
from uuid import UUID, uuid4

import pytest

from fatura.shared_call import SharedBatches
from fatura.usecases.deps import Deps
from fatura.usecases.open_call_limit import OpenCallLimit
from fatura.usecases.reconciliation import gateway_webhooks
from fatura.usecases.reconciliation.gateway_webhooks import AuthenticWebhook
from fatura.usecases.reconciliation.scheduled_looks import MAX_WAITING
from fatura.usecases.transaction import load_account
from tests.support.expect import UNKNOWN_ID, everything
from tests.support.propagate_steps import tables
from tests.support.retention_steps import WEBHOOK_DAYS, age, count
from tests.support.sandbox_steps import (
    connection_id,
    issued_invoice,
    pass_time,
    queue_fault,
    read,
    row_held,
    table_held,
    until_waiting,
)
from tests.support.webhook_steps import Hook, hook, issued_with_webhooks, paid_unnoticed
from tests.support.world import Json, World


@pytest.fixture
async def issued(world: World) -> Json:
    return await issued_with_webhooks(world)


async def event(world: World, invoice: Json | None, event_id: str = "evt_1") -> Hook:
    """Return a webhook with an event id. It names the invoice's charge, or none."""
    fields = {"chargeId": invoice["gatewayInvoiceId"]} if invoice else {}
    return await hook(world, None, body=json.dumps({**fields, "id": event_id}).encode())


async def accepted(deps: Deps, world: World, invoice: Json, *, digest: bytes = b"1" * 32) -> None:
    """Accept an authentic webhook about the invoice's charge in the process with these `deps`."""
    account = await load_account(deps, world.account_id)
    of, named = UUID(await connection_id(world)), [invoice["gatewayInvoiceId"]]
    await gateway_webhooks.accept(deps, AuthenticWebhook(account, of, named, digest))


def another_process(world: World) -> Deps:
    """Return dependencies that share nothing but the database with the other webhooks, as after a restart."""
    return replace(world.deps, webhook_batches=SharedBatches())


@pytest.mark.parametrize("named", [True, False])
async def test_a_copy_has_no_effect(world: World, issued: Json, *, named: bool) -> None:
    """[D-266, D-266 copies]"""
    sent = await event(world, issued if named else None)
    assert (await sent.send(world)).status == 200
    assert await world.run("reconciliation") == 1
    before = await tables(world)

    assert (await sent.send(world)).json == {"received": True}

    assert await tables(world) == before
    assert await world.run("reconciliation") == 0


async def test_another_event_about_the_same_charge_takes_effect(world: World, issued: Json) -> None:
    """[D-266 copies]"""
    await (await event(world, issued)).send(world)
    assert await world.run("reconciliation") == 1
    await paid_unnoticed(world, issued)
    await (await event(world, issued, "evt_2")).send(world)
    assert await world.run("reconciliation") == 1
    assert (await read(world, issued))["status"] == "paid"


async def test_an_id_that_is_used_for_two_charges_loses_no_event(world: World, issued: Json) -> None:
    """[D-266 copies]"""
    other = await issued_invoice(world)
    for each in (issued, other):
        await paid_unnoticed(world, each)
        await (await event(world, each)).send(world)
    assert await world.run("reconciliation") == 2
    assert [(await read(world, each))["status"] for each in (issued, other)] == ["paid", "paid"]


@pytest.mark.parametrize("identified", ["", None, 7, [], {"id": "evt_1"}])
async def test_a_webhook_without_an_id_always_takes_effect(
    world: World, issued: Json, identified: Json
) -> None:
    """[D-266 no id]"""
    body = json.dumps({"chargeId": issued["gatewayInvoiceId"], "id": identified}).encode()
    sent = await hook(world, None, body=body)
    for _ in range(2):
        assert (await sent.send(world)).status == 200
        assert await world.run("reconciliation") == 1
    assert await count(world, "gateway_webhook") == 0


@pytest.mark.parametrize("identified", ["\x00", "\ud800", "é", "x" * 60_000])
async def test_any_text_is_an_id(world: World, issued: Json, identified: str) -> None:
    """[D-266 copies]"""
    sent = await event(world, issued, identified)
    for polls in (1, 0):
        assert (await sent.send(world)).status == 200
        assert await world.run("reconciliation") == polls


async def test_two_processes_get_the_same_event_at_once(world: World, issued: Json) -> None:
    """[D-266 copies]"""
    async with table_held(world, "gateway_webhook"):
        both = [asyncio.create_task(accepted(another_process(world), world, issued)) for _ in range(2)]
        await until_waiting(world, statements=2)
    await asyncio.gather(*both)
    assert await world.run("reconciliation") == 1
    assert await count(world, "gateway_webhook") == 1

    before = await tables(world)
    await accepted(another_process(world), world, issued)
    assert await tables(world) == before, "a copy after a restart"


async def test_webhooks_that_wait_share_a_transaction(world: World, issued: Json) -> None:
    """[D-266 together]"""
    invoices = [issued, *[await issued_invoice(world) for _ in range(4)]]
    sent = [await event(world, each, str(number)) for number, each in enumerate(invoices)]
    async with table_held(world, "gateway_webhook"):
        first = asyncio.create_task(sent[0].send(world))
        await until_waiting(world)
        others = [asyncio.create_task(each.send(world)) for each in sent[1:]]
        await asyncio.sleep(0.2)
    answers = await asyncio.gather(first, *others)

    assert [each.status for each in answers] == [200] * 5
    stored = await world.sql("SELECT DISTINCT xmin::text FROM gateway_webhook")
    assert len(stored) == 2
    assert await world.run("reconciliation") == 5


async def test_a_webhook_about_a_locked_invoice_fails_alone(world: World, issued: Json) -> None:
    """The webhook that gets 503 takes effect when the provider sends it again. [D-266 together, D-266 failed]"""
    other = await issued_invoice(world)
    both = [await event(world, each, str(number)) for number, each in enumerate((issued, other))]
    for each in (issued, other):
        await paid_unnoticed(world, each)
    async with row_held(world, "invoice", invoice_id=issued["id"]):
        async with table_held(world, "gateway_webhook"):
            first = asyncio.create_task((await event(world, None, "first")).send(world))
            await until_waiting(world)
            sending = [asyncio.create_task(each.send(world)) for each in both]
            await asyncio.sleep(0.2)
        answers = await asyncio.gather(first, *sending)
    assert [each.status for each in answers] == [200, 503, 200]
    assert await count(world, "gateway_webhook") == 2

    assert (await both[0].send(world)).status == 200
    await world.run("reconciliation")
    assert [(await read(world, each))["status"] for each in (issued, other)] == ["paid", "paid"]


async def test_an_event_whose_transaction_failed_is_not_lost(
    world: World, issued: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The code that runs after the event was stored raises an error. [D-266 failed]"""

    async def fail(*_args: object, **_named: object) -> None:
        raise ValueError

    await paid_unnoticed(world, issued)
    sent = await event(world, issued)
    with monkeypatch.context() as patch:
        patch.setattr(gateway_webhooks.scheduled_looks, "look_later", fail)
        assert (await sent.send(world)).status == 500
    assert await count(world, "gateway_webhook") == 0

    assert (await sent.send(world)).status == 200
    await world.run("reconciliation")
    assert (await read(world, issued))["status"] == "paid"


@pytest.mark.parametrize("fault", ["server_error", "timeout_after", "unknown"])
async def test_a_failed_poll_of_a_stored_event_is_repeated(world: World, issued: Json, fault: str) -> None:
    """No webhook is needed for the second poll. [D-266 poll failed]"""
    await paid_unnoticed(world, issued)
    await queue_fault(world, "get_charge", fault)
    await (await event(world, issued)).send(world)
    await world.run("reconciliation")
    assert (await read(world, issued))["status"] == "issued"

    await pass_time(world, hours=2)

    assert (await read(world, issued))["status"] == "paid"


async def test_a_provider_that_shows_a_payment_late(world: World, issued: Json) -> None:
    """The poll comes before the provider shows the payment. A copy does not help, but the schedule does.

    [D-266 poll failed]
    """
    sent = await event(world, issued)
    await sent.send(world)
    await world.run("reconciliation")
    await paid_unnoticed(world, issued)
    await sent.send(world)
    assert await world.run("reconciliation") == 0

    await pass_time(world, days=1, hours=2)

    assert (await read(world, issued))["status"] == "paid"


async def test_an_event_about_a_dropped_charge_is_not_stored(world: World, issued: Json) -> None:
    """A copy that arrives when there is a place again schedules a look. [D-162, D-266 failed]"""
    strangers = [{"gatewayInvoiceId": f"sbx_{uuid4().hex}"} for _ in range(MAX_WAITING + 1)]
    hooks = [await event(world, each) for each in strangers]
    for each in hooks:
        assert (await each.send(world)).status == 200
    assert (await count(world, "unmatched_charge"), await count(world, "gateway_webhook")) == (20, 20)
    await world.sql("DELETE FROM unmatched_charge")

    for each in (hooks[-1], hooks[0]):
        await each.send(world)

    [kept] = await world.sql("SELECT gateway_charge_id FROM unmatched_charge")
    assert kept["gateway_charge_id"] == strangers[-1]["gatewayInvoiceId"]
    assert (await read(world, issued))["status"] == "issued"


async def test_too_many_waiting_webhooks_are_refused(world: World, issued: Json) -> None:
    """[D-266 limit]"""
    limit = OpenCallLimit(2, most_in_all=2, what="webhooks of gateways")
    deps = replace(world.deps, open_webhooks=limit, webhook_batches=SharedBatches())
    async with table_held(world, "gateway_webhook"):
        held = [asyncio.create_task(accepted(deps, world, issued, digest=bytes([n]) * 32)) for n in range(2)]
        await until_waiting(world)
        await asyncio.sleep(0.1)
        with pytest.raises(Exception, match="At most 2 webhooks of gateways"):
            await accepted(deps, world, issued, digest=b"9" * 32)
    await asyncio.gather(*held)
    assert await count(world, "gateway_webhook") == 2
    await accepted(deps, world, issued, digest=b"9" * 32)


async def test_a_copy_that_arrives_after_the_retention_only_causes_a_poll(world: World, issued: Json) -> None:
    """[D-246, D-266 copies]"""
    sent = await event(world, issued)
    await sent.send(world)
    await world.run("reconciliation")
    await age(world, days=WEBHOOK_DAYS - 1)
    await world.run("retention")
    assert await count(world, "gateway_webhook") == 1
    await age(world, days=1)
    await world.run("retention")
    assert await count(world, "gateway_webhook") == 0

    await sent.send(world)
    assert await world.run("reconciliation") == 1
    assert await world.broken() == []


@pytest.mark.faults
async def test_ten_thousand_bad_webhooks_change_nothing(world: World, issued: Json) -> None:
    """They are copies, forged, stale, for another account, or about foreign charges. No call is made.

    [D-266 copies, D-35 webhook refused]
    """
    other = await world.another()
    genuine = await event(world, issued)
    assert (await genuine.send(world)).status == 200
    stranger = await event(world, {"gatewayInvoiceId": f"sbx_{uuid4().hex}"}, "evt_stranger")
    assert (await stranger.send(world)).status == 200
    unnamed = await event(world, {"gatewayInvoiceId": "no charge of the sandbox"}, "evt_none")
    for _ in range(3):  # the engine gives up the stranger, so that no look is due after a minute of this test
        await pass_time(world, minutes=61)
    bad = [
        genuine,
        stranger,
        unnamed,
        replace(genuine, secret="another-secret-!"),
        replace(genuine, at=int(time.time()) - 301),
        replace(genuine, body=genuine.body + b" ", headers={"X-Sandbox-Signature": "t=1,v1=00"}),
        replace(genuine, account=str(other.account_id)),
        replace(genuine, account=UNKNOWN_ID),
        replace(genuine, connection=UNKNOWN_ID),
        replace(genuine, connection=await connection_id(other)),
    ]
    before, seen = await tables(world), await everything(world)

    for _ in range(100):
        answers = await asyncio.gather(*(each.send(world) for each in bad for _ in range(10)))
        assert {each.status for each in answers[:30]} == {200}
        assert {each.status for each in answers[30:]} == {404}

    assert await tables(world) == before
    assert await world.run("reconciliation") == 0
    assert await everything(world) == seen
