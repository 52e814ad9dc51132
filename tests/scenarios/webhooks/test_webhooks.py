"""Webhooks: registration, the bytes and headers of a delivery, the delivery log, and redelivery."""

import asyncio
from datetime import timedelta

import pytest

from tests.support.push_steps import deliveries, emit, event_at, redeliver, register, skip, webhook
from tests.support.receiver import Receiver, always
from tests.support.world import Json, World

UNKNOWN_ID = "01a1fa9d-5cc0-7928-8d93-50141b2fea5d"


async def test_a_webhook_is_registered_read_and_removed(world: World, receiver: Receiver) -> None:
    """[D-39 webhook, spec 4.6 webhook and rotation]"""
    missing = await world.get("/v1/integration/webhook")
    assert (missing.status, missing.type) == (404, "engine.not_found")
    assert "PUT /v1/integration/webhook" in missing.json["detail"]

    registered = await register(world, receiver)

    created_at = registered.pop("createdAt")
    assert registered == {"url": receiver.url, "enabled": True, "disabledAt": None}
    assert created_at.startswith("2033-11-20T15:0")
    assert await webhook(world) == {**registered, "createdAt": created_at}
    assert (await world.delete("/v1/integration/webhook")).status == 204
    assert (await world.delete("/v1/integration/webhook")).status == 404
    assert (await world.get("/v1/integration/webhook")).status == 404


async def test_only_administrators_see_the_path_of_the_url(world: World, receiver: Receiver) -> None:
    """Others see neither the path nor the query. The event `webhook.disabled` never shows them. [D-64 webhook]"""
    whole = f"{receiver.url}/secret?token=secret"
    cut = f"{receiver.url.removesuffix('/events')}/..."
    assert (await world.put("/v1/integration/webhook", {"url": whole})).json["url"] == whole
    receiver.answer = always(410)
    await emit(world, 1)
    await world.run("push")
    assert (await world.put("/v1/integration/webhook", {"url": whole})).status == 200
    event_id = (await event_at(world, 1))["id"]

    for scopes, url in ((["read", "write"], cut), (["read", "write", "admin"], whole)):
        key = await world.made("/v1/integration/api-keys", {"name": "x", "scopes": scopes})
        headers = {"Authorization": f"Bearer {key['key']}"}
        shown = await world.get("/v1/integration/webhook", headers=headers)
        attempts = await world.get(f"/v1/events/{event_id}/deliveries", headers=headers)
        again = await world.post(f"/v1/events/{event_id}/redeliver", headers=headers)
        assert (shown.json["url"], attempts.json["data"][0]["url"]) == (url, url)
        assert again.json["data"][0]["url"] == url
    (event,) = await world.events("webhook.disabled")
    assert event["data"]["webhook"]["url"] == cut


async def test_a_webhook_can_be_registered_and_removed_concurrently(world: World, receiver: Receiver) -> None:
    """[D-39 webhook, D-116]"""
    await emit(world, 1)
    calls = [
        world.delete("/v1/integration/webhook") if place % 2 else register(world, receiver)
        for place in range(10)
    ]
    await asyncio.gather(*calls)

    await register(world, receiver)
    await emit(world, 1)
    await world.run("push")
    assert receiver.sequences == [2]
    assert await world.broken() == []


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"url": None},
        {"url": "http://merchant.example/events"},
        {"url": "https://10.0.0.1/events"},
        {"url": "https://user@merchant.example/"},
        {"url": "https://merchant.example/", "secret": "x"},
    ],
)
async def test_a_url_that_may_not_be_called_is_refused(world: World, body: Json) -> None:
    """[D-39 webhook]"""
    answer = await world.put("/v1/integration/webhook", body)

    assert (answer.status, answer.type) == (400, "engine.invalid_request")
    assert (await world.get("/v1/integration/webhook")).status == 404


async def test_a_delivery_has_the_same_bytes_as_the_stream(world: World, receiver: Receiver) -> None:
    """[D-39 bytes, spec 6.1, spec 6.2]"""
    await register(world, receiver)
    await world.enroll(await world.plan(await world.product(name='Ação "1" €')))
    await world.run()

    replayed = (await world.get("/v1/events")).body
    assert len(receiver.received) == 3
    assert sorted(receiver.sequences) == [1, 2, 3]
    for each in receiver.received:
        assert each.body in replayed
        assert (await world.get(f"/v1/events/{each.json['id']}")).body == each.body
    assert (await world.get(f"/v1/events/{UNKNOWN_ID}")).status == 404
    assert await world.broken() == []


async def test_headers_name_the_event_and_the_attempt_and_have_both_signatures(
    world: World, receiver: Receiver
) -> None:
    """[D-39 headers, spec 6.6]"""
    await register(world, receiver)
    receiver.answer = always(500)
    await emit(world, 1)
    await world.run("push")
    receiver.answer = always(200)
    await skip(world, timedelta(seconds=10))
    await world.run("push")

    event = await event_at(world, 1)
    first, second = receiver.received
    for each, attempt in ((first, "1"), (second, "2")):
        assert each.headers["Content-Type"] == "application/json"
        assert each.headers["X-Service-Event-Id"] == each.headers["webhook-id"] == event["id"]
        assert each.headers["X-Service-Event-Type"] == event["type"]
        assert each.headers["X-Service-Delivery-Attempt"] == attempt
        assert each.headers["X-Service-Signature"].startswith(f"t={each.headers['webhook-timestamp']},v1=")
        assert each.headers["webhook-signature"].startswith("v1,")


async def test_only_events_after_the_registration_are_delivered(world: World, receiver: Receiver) -> None:
    """Events from before the registration are sent only on request. Clients can read them in the event stream.
    [D-39 webhook]
    """
    await emit(world, 3)
    await register(world, receiver)
    await emit(world, 2)
    await world.run("push")
    assert receiver.sequences == [4, 5]

    receiver.answer = always(500)
    await emit(world, 1)
    await world.run("push")
    await world.delete("/v1/integration/webhook")
    await emit(world, 1)
    receiver.forget()
    receiver.answer = always(200)
    await register(world, receiver)
    await emit(world, 1)
    await world.advance(days=2)

    assert receiver.sequences == [8]
    states = [(await deliveries(world, sequence))["status"] for sequence in range(1, 9)]
    assert states == [*["not_sent"] * 3, "delivered", "delivered", "given_up", "not_sent", "delivered"]
    assert await world.broken() == []


async def test_each_attempt_is_logged_with_its_outcome(world: World, receiver: Receiver) -> None:
    """[D-39 log, D-118]"""
    await register(world, receiver)
    receiver.answer = always(500, b"\xffno\0pe" + b"x" * 5000)
    await emit(world, 1)
    before = await deliveries(world, 1)
    await world.run("push")
    failed = await deliveries(world, 1)
    receiver.answer = always(201, b"thanks")
    await world.advance(days=1)
    delivered = await deliveries(world, 1)

    assert before == {"status": "pending", "nextAttemptAt": None, "data": []}
    assert (failed["status"], len(failed["data"])) == ("pending", 1)
    assert failed["nextAttemptAt"] > failed["data"][0]["createdAt"]
    attempt = failed["data"][0]
    assert attempt.pop("latencyMs") >= 0
    assert attempt.pop("createdAt").startswith("2033-11-20T15:0")
    assert attempt == {
        "attempt": 1,
        "url": receiver.url,
        "outcome": "http_error",
        "responseStatus": 500,
        "error": "answered 500",
        "responseBody": "\ufffdno\ufffdpe" + "x" * 994,
    }
    assert (delivered["status"], delivered["nextAttemptAt"]) == ("delivered", None)
    assert [(each["attempt"], each["outcome"], each["responseBody"]) for each in delivered["data"]][1:] == [
        (2, "delivered", None)
    ]
    assert (await world.get(f"/v1/events/{UNKNOWN_ID}/deliveries")).status == 404


async def test_a_refused_connection_is_logged_without_a_status(world: World, receiver: Receiver) -> None:
    """[D-39 log]"""
    answer = await world.put("/v1/integration/webhook", {"url": "http://127.0.0.1:1/"})
    assert answer.status == 200
    await emit(world, 1)
    await world.run("push")

    (attempt,) = (await deliveries(world, 1))["data"]
    assert (attempt["outcome"], attempt["responseStatus"], attempt["responseBody"]) == (
        "http_error",
        None,
        None,
    )
    assert attempt["error"]
    assert receiver.received == []


@pytest.mark.parametrize("state", ["delivered", "given_up", "not_sent", "pending"])
async def test_an_event_is_redelivered(world: World, receiver: Receiver, state: str) -> None:
    """[D-39 redeliver]"""
    if state == "not_sent":
        await emit(world, 1, invoices=1)
    await register(world, receiver)
    if state != "not_sent":
        await emit(world, 1, invoices=1)
    if state == "given_up":
        await world.sql(
            "INSERT INTO delivery (account_id, sequence, given_up_at) VALUES ($1, 1, now())", world.account_id
        )
        await world.sql("UPDATE webhook SET fanned_out_to = 1 WHERE account_id = $1", world.account_id)
    receiver.answer = always(500 if state == "pending" else 200)
    await world.run("push")
    assert (await deliveries(world, 1))["status"] == state
    receiver.forget()
    receiver.answer = always(200)

    answer = await redeliver(world, 1)
    await world.run("push")

    assert answer["status"] == "pending"
    assert receiver.sequences == [1]
    assert (await deliveries(world, 1))["status"] == "delivered"
    assert await world.broken() == []


async def test_redelivery_without_an_enabled_webhook_is_refused(world: World, receiver: Receiver) -> None:
    """[D-39 redeliver]"""
    await emit(world, 1)
    path = f"/v1/events/{(await event_at(world, 1))['id']}/redeliver"

    without = await world.post(path)
    await register(world, receiver)
    receiver.answer = always(410)
    await emit(world, 1)
    await world.run("push")
    disabled = await world.post(path)

    for answer in (without, disabled):
        assert (answer.status, answer.type) == (409, "engine.webhook_disabled")
        assert "PUT /v1/integration/webhook" in answer.json["detail"]
    assert (await world.post(f"/v1/events/{UNKNOWN_ID}/redeliver")).status == 404
    assert len(receiver.received) == 1


async def test_a_redelivery_blocks_no_other_event(world: World, receiver: Receiver) -> None:
    """[D-39 redeliver]"""
    await register(world, receiver)
    await emit(world, 1, invoices=1)
    await world.run("push")
    receiver.answer = lambda each: always(500 if each.sequence == 1 else 200)(each)
    await redeliver(world, 1)
    await emit(world, 1, invoices=1)
    await skip(world, timedelta(seconds=10))
    await world.run("push")

    assert (await deliveries(world, 2))["status"] == "delivered"
    assert (await deliveries(world, 1))["status"] == "pending"


async def test_a_delivered_event_stays_delivered_if_its_redelivery_fails(
    world: World, receiver: Receiver
) -> None:
    """All twelve attempts of the redelivery fail, while the endpoint accepts another event. [D-39 redeliver]"""
    await register(world, receiver)
    await emit(world, 1)
    await world.run("push")
    receiver.answer = lambda each: always(500 if each.sequence == 1 else 200)(each)
    await redeliver(world, 1)
    await world.run("push")
    await emit(world, 1)

    await world.advance(days=5)

    log = await deliveries(world, 1)
    assert (log["status"], len(log["data"]), log["nextAttemptAt"]) == ("delivered", 13, None)
    assert await world.broken() == []


async def test_removing_the_webhook_keeps_what_was_delivered(world: World, receiver: Receiver) -> None:
    """[D-39 redeliver, D-116]"""
    await register(world, receiver)
    await emit(world, 1)
    await world.run("push")
    receiver.answer = always(500)
    await redeliver(world, 1)
    await emit(world, 1)
    await world.run("push")
    assert (await world.delete("/v1/integration/webhook")).status == 204
    assert [(await deliveries(world, number))["status"] for number in (1, 2)] == ["delivered", "given_up"]
    assert await world.broken() == []


async def test_redelivering_a_pending_event_restarts_its_whole_schedule(
    world: World, receiver: Receiver
) -> None:
    """The redelivery forgets the failed attempt and clears `hastened`.

    After an outage, Fatura retries an event early, but only once. `hastened` records this early retry.
    [D-39 redeliver, D-117]
    """
    await register(world, receiver)
    receiver.answer = always(500)
    await emit(world, 1)
    await world.run("push")
    await world.sql("UPDATE delivery SET hastened = true")
    await redeliver(world, 1)
    [row] = await world.sql("SELECT failures, first_failed_at, failed_at, hastened FROM delivery")
    assert tuple(row) == (0, None, None, False)


async def test_redelivery_uses_up_no_attempts(world: World, receiver: Receiver) -> None:
    """A redelivery uses none of the event's twelve attempts. The invoice's next event still waits for this event.
    [D-39 redeliver, D-39 order]
    """
    await register(world, receiver)
    receiver.answer = lambda each: always(500 if each.sequence == 1 else 200)(each)
    await emit(world, 2, invoices=1)
    for _ in range(13):
        await emit(world, 1)
        await world.run("push")
        await redeliver(world, 1)
    await world.run("push")

    log = await deliveries(world, 1)
    assert (log["status"], len(log["data"])) == ("pending", 14)
    assert 2 not in receiver.sequences
    # The engine gives event 1 up only if the endpoint has accepted another event since event 1 first failed.
    await emit(world, 1)
    await world.advance(days=4)
    assert (await deliveries(world, 1))["status"] == "given_up"
    assert (await deliveries(world, 2))["status"] == "delivered"
    assert await world.broken() == []
