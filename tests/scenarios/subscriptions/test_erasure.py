"""Erasing a customer: refused erasures, answers, and requests for the customer after the erasure (D-62)."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from fatura.store.subscriptions import erased_rows
from fatura.store.subscriptions.erased_rows import StoredAnswer
from fatura.store.subscriptions.erasures import Erasure
from fatura.usecases.subscriptions import erasure
from fatura.usecases.transaction import Work, load_account
from tests.support.captured_logs import captured_logs
from tests.support.erasure_steps import CUSTOMER, erase, erased_form, former_customer
from tests.support.expect import INSTANT, UNKNOWN_ID, problem
from tests.support.push_steps import register
from tests.support.receiver import Reply, open_receiver
from tests.support.sandbox_steps import pass_time, queue_fault, read, row_held, until_waiting
from tests.support.world import Answer, World, scrape


async def test_an_erased_customer_shows_no_personal_data(world: World):
    """[D-62]"""
    before = await former_customer(world)
    answer = await erase(world, before["id"])

    assert (answer.status, answer.json) == (
        200,
        {
            **erased_form(before["id"]),
            "hasDocument": False,
            "createdAt": before["createdAt"],
            "erasedAt": answer.json["erasedAt"],
        },
    )
    assert INSTANT.fullmatch(answer.json["erasedAt"])
    assert (await world.get(f"/v1/customers/{before['id']}")).json == answer.json
    assert (await world.get(f"/v1/customers?externalRef={CUSTOMER['externalRef']}")).json["data"] == []
    [subscription] = await world.all("/v1/subscriptions")
    assert subscription["customer"] == erased_form(before["id"])
    assert subscription["externalRef"] == f"erased-{subscription['id']}"
    [invoice] = await world.invoices()
    assert (invoice["customer"], invoice["status"]) == (erased_form(before["id"]), "paid")
    assert await world.broken() == []


async def test_a_second_erasure_answers_the_same(world: World):
    """[D-62, D-221]"""
    customer_id = (await former_customer(world))["id"]
    first = await erase(world, customer_id, key="k")
    repeated, second = await erase(world, customer_id, key="k"), await erase(world, customer_id)

    assert [each.status for each in (first, repeated, second)] == [200] * 3
    assert first.body == repeated.body == second.body
    assert [each.headers.get("Idempotent-Replayed") for each in (first, repeated, second)] == [
        None,
        "true",
        None,
    ]
    assert len(await world.events("customer.erased")) == 1
    entries = await world.audit("customer.erase")
    assert [entry["after"] == {} for entry in entries] == [False, True]


async def test_an_erasure_is_an_event_and_an_audit_entry_without_personal_data(world: World):
    """[D-62, D-63, D-228]"""
    customer_id = (await former_customer(world))["id"]
    answer = await erase(world, customer_id)
    [event], [entry] = await world.events("customer.erased"), await world.audit("customer.erase")

    assert event["data"] == {"customer": answer.json}
    assert entry["resource"] == {"type": "customer", "id": customer_id}
    assert entry["before"] == {
        "externalRef": "[redacted]",
        "name": "[redacted]",
        "email": "[redacted]",
        "hasDocument": True,
    }


async def test_events_keep_their_ids_numbers_types_and_shapes(world: World):
    """[D-62]"""
    customer_id = (await former_customer(world))["id"]
    before = await world.events()
    await erase(world, customer_id)
    after = (await world.events())[: len(before)]

    for old, new in zip(before, after, strict=True):
        assert {**old, "data": None} == {**new, "data": None}
        assert _shape(old["data"]) == _shape(new["data"])
        assert str(new["data"]).count("[erased]") >= 1
        assert "ana" not in str(new).lower()
    amounts = [each["data"]["invoice"]["totalCents"] for each in after if "invoice" in each["data"]]
    assert amounts
    assert set(amounts) == {9990}


def _shape(value: object) -> object:
    """Return the names of all members of a JSON value in their order, without the values."""
    if isinstance(value, dict):
        return [(name, _shape(each)) for name, each in value.items()]
    return [_shape(each) for each in value] if isinstance(value, list) else None


async def test_a_repeated_redelivery_shows_nothing_of_the_customer(world: World):
    """A receiver's response named the customer, and the API's first answer showed this response. [D-226, D-39, D-14]"""
    before = await former_customer(world)
    async with open_receiver() as receiver:
        receiver.answer = lambda _: Reply(500, b"no Ana Souza <ana.souza@example.com>")
        await register(world, receiver)
        [event] = await world.events("invoice.paid")
        path = f"/v1/events/{event['id']}/redeliver"
        assert (await world.post(path)).status == 202
        await world.run("push")
        first = await world.post(path, key="k")
        assert "Ana Souza" in first.json["data"][0]["responseBody"]
        await erase(world, before["id"])
        repeated = await world.post(path, key="k")

    assert (repeated.status, repeated.headers["Idempotent-Replayed"]) == (202, "true")
    assert repeated.json["data"][0]["responseBody"] == "[erased]"
    assert "ana" not in repeated.body.decode().lower()
    assert len(await world.audit("event.redeliver")) == 2


async def test_a_customer_in_use_is_not_erased(world: World):
    """[D-62 409, D-227]"""
    await world.set_up_gateway(behaviour="never_pay")
    subscription = await world.enroll(await world.plan(), customer=CUSTOMER)
    await world.run()
    [invoice] = await world.invoices()
    customer_id = subscription["customer"]["id"]

    both = await erase(world, customer_id)
    assert problem(both)[:2] == (409, "engine.customer_in_use")
    assert both.json["meta"] == {
        "subscriptionIds": [subscription["id"]],
        "invoiceIds": [invoice["id"]],
        "pendingInvoiceIds": [],
    }
    assert both.json["detail"] == (
        "The customer is in use: cancel the active subscriptions; cancel the open invoices, or wait until they are "
        "paid. Then erase the customer."
    )
    await world.made(f"/v1/subscriptions/{subscription['id']}/cancel")
    opened = await erase(world, customer_id)
    assert opened.json["meta"]["subscriptionIds"] == []
    assert opened.json["meta"]["invoiceIds"] == [invoice["id"]]
    assert (await world.get(f"/v1/customers/{customer_id}")).json["name"] == CUSTOMER["name"]
    await world.made(f"/v1/invoices/{invoice['id']}/cancel")
    assert (await erase(world, customer_id)).status == 200


async def test_a_pending_refund_is_a_use(world: World):
    """[D-227]"""
    customer_id = (await former_customer(world))["id"]
    [invoice] = await world.invoices()
    await queue_fault(world, "refund_charge", "timeout_after")
    await queue_fault(world, "get_charge", "server_error", times=3)
    asked = await world.post(f"/v1/invoices/{invoice['id']}/refunds", {"reason": "Ana moved away"})
    assert asked.status == 202

    refused = await erase(world, customer_id)
    assert problem(refused)[:2] == (409, "engine.customer_in_use")
    assert refused.json["meta"]["pendingInvoiceIds"] == [invoice["id"]]
    await world.advance(days=2)
    assert (await erase(world, customer_id)).status == 200
    assert (await read(world, invoice))["refunds"][0]["reason"] == "[erased]"


async def test_an_unsettled_price_call_is_a_use(world: World):
    """[D-227]"""
    subscription = await world.enroll(await world.plan(await world.variable_product()), customer=CUSTOMER)
    await world.run("generation", "pricing")
    [invoice] = await world.invoices()
    await world.made(f"/v1/subscriptions/{subscription['id']}/cancel")
    await world.made(f"/v1/invoices/{invoice['id']}/cancel")
    await world.sql("ALTER TABLE pricing_attempt DISABLE TRIGGER pricing_attempt_frozen")
    await world.sql(
        "UPDATE pricing_attempt SET outcome = NULL, response_status = NULL, latency_ms = NULL, response_body = NULL"
    )
    refused = await erase(world, subscription["customer"]["id"])

    assert refused.json["meta"]["pendingInvoiceIds"] == [invoice["id"]]


async def test_an_unknown_customer_and_one_of_another_account_are_not_found(world: World):
    """[D-62 404]"""
    other = await world.another()
    theirs = (await other.enroll(await other.plan()))["customer"]["id"]

    for unknown in (UNKNOWN_ID, theirs, "x"):
        assert problem(await erase(world, unknown))[:2] == (404, "engine.not_found")
    assert (await other.get(f"/v1/customers/{theirs}")).json["name"] == "Ana"


async def test_erasing_needs_the_scope_admin(world: World):
    """[D-64 scopes 403]"""
    customer_id = (await former_customer(world))["id"]
    key = (await world.made("/v1/integration/api-keys", {"name": "x", "scopes": ["read", "write"]}))["key"]
    refused = await world.post(
        f"/v1/customers/{customer_id}/erase", headers={"Authorization": f"Bearer {key}"}
    )

    assert problem(refused)[:2] == (403, "engine.forbidden")


async def test_an_erased_customer_cannot_be_changed_or_subscribed(world: World):
    """[D-227]"""
    customer_id = (await former_customer(world))["id"]
    await erase(world, customer_id)
    changed = await world.patch(f"/v1/customers/{customer_id}", {"name": "Ana"})
    body = {
        "planId": (await world.plan())["id"],
        "customer": {**CUSTOMER, "externalRef": f"erased-{customer_id}"},
    }
    subscribed = await world.post("/v1/subscriptions", body)

    for refused in (changed, subscribed):
        assert problem(refused)[:2] == (409, "engine.customer_erased")


async def test_no_customer_takes_the_external_ref_that_an_erasure_needs(world: World):
    """[D-226]"""
    customer_id, plan = (await former_customer(world))["id"], await world.plan()
    for taken in (f"erased-{customer_id}", "erased-"):
        body = {"planId": plan["id"], "customer": {**CUSTOMER, "externalRef": taken}}
        refused = await world.post("/v1/subscriptions", body)
        assert problem(refused)[:2] == (400, "engine.invalid_request")
        [field] = refused.json["meta"]["fields"]
        assert field["path"] == "customer.externalRef"
        assert "only erased customers have such an externalRef" in field["message"]

    assert len(await world.all("/v1/customers")) == 1
    assert (await erase(world, customer_id)).json["externalRef"] == f"erased-{customer_id}"


async def test_the_old_external_ref_makes_a_new_customer(world: World):
    """[D-62 externalRef]"""
    old = await former_customer(world)
    await erase(world, old["id"])
    new = (await world.enroll(await world.plan(), customer=CUSTOMER))["customer"]

    assert new["id"] != old["id"]
    assert new["externalRef"] == CUSTOMER["externalRef"]
    assert (await world.get(f"/v1/customers/{new['id']}")).json["hasDocument"]


async def test_a_subscription_during_the_erasure_gets_a_new_customer(world: World):
    """The request to subscribe waits for the erasure's first transaction. [D-62 externalRef]"""
    old, plan = await former_customer(world), await world.plan()
    async with row_held(world, "customer", customer_id=old["id"]):
        erasing = asyncio.create_task(erase(world, old["id"]))
        await until_waiting(world)
        subscribing = asyncio.create_task(world.enroll(plan, customer=CUSTOMER))
        await until_waiting(world, statements=2)
    answer, subscription = await erasing, await subscribing

    assert answer.status == 200
    assert subscription["customer"]["id"] != old["id"]
    assert await world.broken() == []


async def test_an_erasure_during_a_subscription_is_refused(world: World):
    """The erasure waits for the transaction that subscribes the customer. [D-62 409]"""
    old, plan = await former_customer(world), await world.plan()
    async with row_held(world, "account_counter", account_id=str(world.account_id)):
        subscribing = asyncio.create_task(world.enroll(plan, customer=CUSTOMER))
        await until_waiting(world)
        erasing = asyncio.create_task(erase(world, old["id"]))
        await until_waiting(world, statements=2)
    subscription, answer = await subscribing, await erasing

    assert subscription["customer"]["id"] == old["id"]
    assert problem(answer)[:2] == (409, "engine.customer_in_use")


async def test_a_change_during_the_erasure_is_refused(world: World):
    """The change waits for the erasure's first transaction. [D-227]"""
    old = await former_customer(world)
    async with row_held(world, "customer", customer_id=old["id"]):
        erasing = asyncio.create_task(erase(world, old["id"]))
        await until_waiting(world)
        changing = asyncio.create_task(world.patch(f"/v1/customers/{old['id']}", {"name": "Ana Lima"}))
        await until_waiting(world, statements=2)
    answer, changed = await erasing, await changing

    assert answer.json["name"] == "[erased]"
    assert problem(changed)[:2] == (409, "engine.customer_erased")


async def test_a_worker_that_has_read_the_old_data_brings_nothing_back(world: World):
    """A poll reads the customer before the erasure, and emits its event after the erasure. [D-226]"""
    old = await former_customer(world)
    [invoice] = await world.invoices()
    await world.made(f"/v1/sandbox/charges/{invoice['gatewayInvoiceId']}/refund", {"amountCents": 100})
    async with row_held(world, "account_counter", account_id=str(world.account_id)):
        erasing = asyncio.create_task(erase(world, old["id"]))
        await until_waiting(world)
        polling = asyncio.create_task(world.run("reconciliation"))
        await until_waiting(world, statements=2)
    answer, _ = await erasing, await polling

    assert answer.status == 200, answer.body
    assert len(await world.events("invoice.refunded")) == 1
    assert "ana" not in str(await world.events()).lower()


async def test_a_key_that_is_used_again_keeps_its_new_answer(world: World, monkeypatch: pytest.MonkeyPatch):
    """The erasure reads the old answer of an expired key. Then another request uses the key again. [D-226, D-14]"""
    customer_id = (await former_customer(world))["id"]
    body, read_answers = {"planId": (await world.plan())["id"], "customer": CUSTOMER}, erased_rows.answers
    subscription = (await world.post("/v1/subscriptions", body, key="k")).json
    await world.made(f"/v1/subscriptions/{subscription['id']}/cancel")
    await world.sql("UPDATE idempotency_key SET expires_at = now() - interval '1 second'")
    product = {"name": "Gym", "pricing": {"mode": "fixed", "monthlyPriceCents": 100}}
    made: list[Answer] = []

    async def answers(*args: Any, **kwargs: Any) -> Sequence[StoredAnswer]:
        found = await read_answers(*args, **kwargs)
        made.append(await world.post("/v1/products", product, key="k"))
        return found

    monkeypatch.setattr(erased_rows, "answers", answers)
    assert (await erase(world, customer_id)).status == 200
    repeated = await world.post("/v1/products", product, key="k")
    assert [(each.status, each.body) for each in made] == [(201, repeated.body)]


async def test_a_long_erasure_is_continued_by_a_worker(world: World, monkeypatch: pytest.MonkeyPatch):
    """[D-226]"""
    monkeypatch.setattr(erasure, "WAIT_SECONDS", 0)
    customer_id = (await former_customer(world))["id"]
    begun = await erase(world, customer_id, key="k")

    assert (begun.status, begun.json["erasedAt"]) == (202, None)
    assert {**erased_form(customer_id), "hasDocument": False}.items() <= begun.json.items()
    assert await world.events("customer.erased") == []
    await world.run("erasure")
    repeated = await erase(world, customer_id, key="k")
    assert (repeated.status, repeated.headers["Idempotent-Replayed"]) == (200, "true")
    assert repeated.json["erasedAt"] is not None


async def test_an_erasure_that_fails_blocks_no_other(world: World, monkeypatch: pytest.MonkeyPatch):
    """A metric shows the age of the failing erasure. The erasure continues after the cause of the failure is removed.
    [D-186, D-226]
    """
    monkeypatch.setattr(erasure, "WAIT_SECONDS", 0)
    failing = (await former_customer(world))["id"]
    assert (await erase(world, failing)).status == 202
    steps = dict(erasure._STEPS)

    async def fail_for_one(work: Work, running: Erasure) -> Erasure:
        if str(running.customer_id) == failing:
            raise ValueError("a row that no code expects")
        return await steps[running.stage](work, running)

    monkeypatch.setattr(erasure, "_STEPS", dict.fromkeys(steps, fail_for_one))
    with captured_logs() as logs:
        await world.run("erasure")
        other = (await former_customer(world))["id"]
        assert (await erase(world, other)).status == 202
        await world.run("erasure")
    erased = [
        (await world.get(f"/v1/customers/{each}")).json["erasedAt"] is not None for each in (failing, other)
    ]
    assert erased == [False, True]
    assert logs.getvalue().count("erasure.put_off") == 1

    await pass_time(world, minutes=9)
    assert 'fatura_oldest_work_seconds{lane="erasure"} 5' in await scrape(world.deps)  # 540 to 599 s
    monkeypatch.setattr(erasure, "_STEPS", steps)
    await world.run("erasure")
    assert (await world.get(f"/v1/customers/{failing}")).json["erasedAt"] is None
    await pass_time(world, minutes=1)
    await world.run("erasure")
    assert (await world.get(f"/v1/customers/{failing}")).json["erasedAt"] is not None
    assert await world.broken() == []


@pytest.mark.parametrize("batches", [1, 2, 3])
async def test_an_interrupted_erasure_continues_where_it_stopped(
    world: World, monkeypatch: pytest.MonkeyPatch, batches: int
):
    """[D-226]"""
    for name in ("SUBSCRIPTIONS", "INVOICES", "EVENTS", "KEYS"):
        monkeypatch.setattr(erasure, name, 1)
    customer_id = (await former_customer(world))["id"]
    monkeypatch.setattr(erasure, "WAIT_SECONDS", 0)
    await erase(world, customer_id)
    account = await load_account(world.deps, world.account_id)
    for _ in range(batches):
        assert await erasure.run(world.deps, account) == 1
    await world.run("erasure")

    assert (await world.get(f"/v1/customers/{customer_id}")).json["erasedAt"] is not None
    assert "ana" not in str(await world.events()).lower()
