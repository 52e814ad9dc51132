"""Retries of deliveries, and the endpoints that the engine disables until a client registers them again (D-39)."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from fatura.domain.delivery import RETRY_DELAYS
from fatura.domain.endpoint_url import without_path
from tests.support.event_fields import fields, fields_of_sample
from tests.support.push_steps import (
    deliveries,
    emit,
    fail_for_ten_minutes,
    gaps,
    orders,
    register,
    skip,
    webhook,
)
from tests.support.receiver import OK, Answerer, Received, Receiver, Reply, always
from tests.support.world import World

MINUTE = timedelta(minutes=1)
SLACK = timedelta(seconds=5)
"""Real time that may pass during a step of the test clock."""


def failing(*sequences: int) -> Answerer:
    """Return an answerer that responds with 500 to these events and with 200 to all others."""
    return lambda each: Reply(500) if each.sequence in sequences else OK


async def test_a_failing_event_is_given_up_after_twelve_attempts(world: World, receiver: Receiver) -> None:
    """[D-39 schedule]"""
    await register(world, receiver)
    receiver.answer = failing(1)
    await emit(world, 2, invoices=2)

    await world.advance(days=5)

    log = await deliveries(world, 1)
    assert (log["status"], log["nextAttemptAt"]) == ("given_up", None)
    assert [each["attempt"] for each in log["data"]] == list(range(1, 13))
    for gap, delay in zip(gaps(log["data"]), RETRY_DELAYS, strict=True):
        assert delay <= gap <= delay * 11 // 10 + SLACK
    assert receiver.sequences.count(2) == 1
    assert (await webhook(world))["enabled"]
    assert await world.broken() == []


async def test_events_of_an_invoice_are_delivered_in_order(world: World, receiver: Receiver) -> None:
    """[D-39 order]"""
    await register(world, receiver)
    seen: dict[int, int] = {}

    def flaky(each: Received) -> Reply:
        seen[each.sequence] = seen.get(each.sequence, 0) + 1
        return Reply(500) if seen[each.sequence] <= each.sequence * 7 % 4 else OK

    receiver.answer = flaky
    await emit(world, 60, invoices=7)
    await world.advance(days=2)

    assert {(await deliveries(world, sequence))["status"] for sequence in range(1, 61)} == {"delivered"}
    for numbers in (await orders(world, receiver.received)).values():
        assert numbers == sorted(numbers)
    last_tries = [receiver.sequences[::-1].index(sequence) for sequence in range(1, 61)]
    assert max(seen.values()) == 4
    # The events belong to seven invoices in turn, so event n - 7 is the previous event of the same invoice.
    # The last attempt of event n - 7 must be earlier than the last attempt of event n.
    for sequence in range(8, 61):
        assert last_tries[sequence - 1] < last_tries[sequence - 8]
    assert await world.broken() == []


async def test_waiting_for_an_earlier_event_is_no_failure(world: World, receiver: Receiver) -> None:
    """[D-39 order]"""
    await register(world, receiver)
    receiver.answer = failing(1)
    await emit(world, 2, invoices=1)
    await emit(world, 1)

    await world.advance(days=5)

    assert (await deliveries(world, 1))["status"] == "given_up"
    waited = await deliveries(world, 2)
    assert (waited["status"], len(waited["data"])) == ("delivered", 1)
    assert await world.broken() == []


async def test_an_endpoint_that_takes_nothing_is_disabled_after_five_days(
    world: World, receiver: Receiver
) -> None:
    """Enabling the endpoint again resumes deliveries at the first undelivered event.
    [D-39 disabling, D-39 resuming, D-36 webhook.disabled]
    """
    await register(world, receiver)
    receiver.answer = always(503)
    await emit(world, 3, invoices=1)
    await world.run("push")
    await fail_for_ten_minutes(world)

    await world.advance(days=6)

    disabled = await webhook(world)
    assert not disabled["enabled"]
    log = (await deliveries(world, 1))["data"]
    failing_for = datetime.fromisoformat(disabled["disabledAt"]) - datetime.fromisoformat(log[0]["createdAt"])
    assert timedelta(days=5) <= failing_for < timedelta(days=5) + MINUTE
    (event,) = await world.events("webhook.disabled")
    assert event["data"]["webhook"] == {**disabled, "url": without_path(receiver.url)}
    error = event["data"]["error"]
    assert fields(event) == fields_of_sample(event["type"])
    assert (error["code"], error["responseStatus"], error["lastError"]) == (
        "failed_for_too_long",
        503,
        "answered 503",
    )
    tried = len(receiver.received)
    stopped = await deliveries(world, 1)
    assert (stopped["status"], stopped["nextAttemptAt"]) == ("pending", None)
    await world.advance(days=3)
    assert len(receiver.received) == tried

    receiver.forget()
    receiver.answer = always(200)
    assert (await register(world, receiver)) == {**disabled, "enabled": True, "disabledAt": None}
    await world.run("push")

    assert sorted(receiver.sequences) == [1, 2, 3, 4]
    assert [sequence for sequence in receiver.sequences if sequence < 4] == [1, 2, 3]
    assert await world.broken() == []


async def test_events_given_up_in_an_outage_are_reopened(world: World, receiver: Receiver) -> None:
    """When the endpoint is enabled again, Fatura sends the events that it gave up in the outage.
    [D-39 resuming]
    """
    await register(world, receiver)
    receiver.answer = failing(1)
    await emit(world, 1, invoices=1)
    await emit(world, 1)
    await world.run("push")
    while 2 not in receiver.sequences:
        await skip(world, MINUTE)
        await world.run("push")
    receiver.answer = always(500)
    await emit(world, 1, invoices=1)
    await world.run("push")
    await fail_for_ten_minutes(world)
    await world.advance(days=7)
    assert (await deliveries(world, 1))["status"] == "given_up"
    assert not (await webhook(world))["enabled"]
    receiver.forget()
    receiver.answer = always(200)
    await register(world, receiver)
    await world.run("push")

    assert [sequence for sequence in receiver.sequences if sequence in {1, 3}] == [1, 3]
    assert await world.broken() == []


async def test_a_410_disables_immediately(world: World, receiver: Receiver) -> None:
    """[D-39 gone, D-36 webhook.disabled]"""
    await register(world, receiver)
    await emit(world, 1)
    await world.run("push")
    receiver.answer = lambda each: Reply(410 if each.sequence == 2 else 200)
    await emit(world, 2)
    await world.run("push")

    assert not (await webhook(world))["enabled"]
    assert sorted(receiver.sequences) == [1, 2, 3]
    (event,) = await world.events("webhook.disabled")
    assert event["data"]["error"]["code"] == "gone"
    receiver.answer = always(200)
    await register(world, receiver)
    await world.run("push")
    assert (await deliveries(world, 2))["status"] == "delivered"
    assert await world.broken() == []


@pytest.mark.parametrize("status", [301, 302, 303, 304, 307, 308, 400, 404, 429, 500, 503])
async def test_any_other_status_is_a_failure(world: World, receiver: Receiver, status: int) -> None:
    """[D-39 outcomes]"""
    await register(world, receiver)
    receiver.answer = always(status, Location=receiver.url)
    await emit(world, 1)
    await world.run("push")

    log = await deliveries(world, 1)
    assert (log["status"], len(receiver.received)) == ("pending", 1)
    assert (log["data"][0]["outcome"], log["data"][0]["responseStatus"]) == ("http_error", status)


@pytest.mark.parametrize(("status", "body"), [(200, b"x" * 200_000), (204, b""), (299, b"{")])
async def test_any_2xx_is_delivered(world: World, receiver: Receiver, status: int, body: bytes) -> None:
    """[D-39 outcomes]"""
    await register(world, receiver)
    receiver.answer = always(status, body)
    await emit(world, 1)
    await world.run("push")

    log = await deliveries(world, 1)
    assert (log["status"], log["data"][0]["outcome"]) == ("delivered", "delivered")
    assert log["data"][0]["responseStatus"] == status


@pytest.mark.parametrize("kind", ["seconds", "date"])
async def test_retry_after_delays_event_and_endpoint(world: World, receiver: Receiver, kind: str) -> None:
    """[D-39 Retry-After]"""
    await register(world, receiver)
    date = format_datetime(datetime.now(UTC) + timedelta(hours=3), usegmt=True)
    receiver.answer = always(503, Retry_After="10800" if kind == "seconds" else date)
    await emit(world, 1)
    await world.run("push")
    await emit(world, 1)
    receiver.answer = always(200)
    shown = await deliveries(world, 1)

    await world.advance(days=1)

    put_off, waited = await deliveries(world, 1), await deliveries(world, 2)
    (gap,) = gaps(put_off["data"])
    assert timedelta(hours=3) - SLACK <= gap <= timedelta(hours=3) + SLACK
    attempted_at, planned_at = put_off["data"][1]["createdAt"], shown["nextAttemptAt"]
    assert abs(datetime.fromisoformat(attempted_at) - datetime.fromisoformat(planned_at)) < SLACK
    assert len(waited["data"]) == 1
    assert gaps([put_off["data"][0], waited["data"][0]])[0] >= timedelta(hours=3) - SLACK


async def test_events_delayed_by_an_outage_are_rescheduled(world: World, receiver: Receiver) -> None:
    """[D-39 resuming, D-117]"""
    await register(world, receiver)
    receiver.answer = always(500)
    await emit(world, 2)
    await world.advance(days=1)
    assert len((await deliveries(world, 1))["data"]) > 7
    receiver.forget()
    receiver.answer = always(200)
    await skip(world, timedelta(minutes=11))
    await emit(world, 1)
    await world.run("push")

    assert sorted(receiver.sequences) == [1, 2, 3]
    assert await world.broken() == []


async def test_registering_again_ends_a_retry_after(world: World, receiver: Receiver) -> None:
    """[D-39 resuming, D-39 Retry-After]"""
    await register(world, receiver)
    receiver.answer = always(429, Retry_After="70000")
    await emit(world, 1)
    await world.run("push")
    receiver.answer = always(200)
    assert await world.run("push") == 0

    await register(world, receiver)

    assert await world.run("push") == 1
    assert (await deliveries(world, 1))["status"] == "delivered"


async def test_registering_again_sends_immediately(world: World, receiver: Receiver) -> None:
    """[D-39 resuming]"""
    await register(world, receiver)
    receiver.answer = always(500)
    await emit(world, 1)
    await world.advance(days=1)
    await world.run("push")
    tried = len(receiver.received)
    await world.run("push")
    assert len(receiver.received) == tried
    receiver.answer = always(200)

    moved = await world.put("/v1/integration/webhook", {"url": f"{receiver.url}/new"})
    await world.run("push")

    assert moved.json["url"].endswith("/new")
    log = await deliveries(world, 1)
    assert (log["status"], log["data"][-1]["url"]) == ("delivered", f"{receiver.url}/new")
    assert await world.broken() == []
