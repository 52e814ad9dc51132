"""Old events and their deliveries are deleted, unless something still needs them (D-246, D-248)."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from fatura.usecases.retention import deletion
from fatura.usecases.transaction import load_account
from tests.support.push_steps import emit, redeliver, register, skip
from tests.support.receiver import Receiver, Reply, always
from tests.support.retention_steps import DELIVERY_DAYS, EVENT_DAYS, age, count
from tests.support.world import Json, World

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


async def _sequences(world: World) -> list[int]:
    return [event["sequence"] for event in await world.events()]


async def _complete_from(world: World) -> int:
    return (await world.get("/v1/events")).json["completeFrom"]


async def test_events_are_deleted_on_the_day_of_the_setting(world: World) -> None:
    """[D-246, D-248]"""
    await emit(world, 6)
    assert (await world.run("retention"), await _complete_from(world)) == (0, 1)
    await age(world, days=EVENT_DAYS, plus=-MINUTE)
    assert await world.run("retention") == 0
    assert len(await _sequences(world)) == 6

    await age(world, days=0, plus=2 * MINUTE, to=4)
    await world.run("retention")

    assert await _sequences(world) == [5, 6]
    assert await _complete_from(world) == 5
    assert await world.broken() == []


async def test_the_stream_says_from_which_number_on_it_is_complete(world: World) -> None:
    """[D-248]"""
    await emit(world, 6)
    first = (await world.get("/v1/events?limit=1")).json["data"][0]
    await age(world, days=EVENT_DAYS + 1, to=4)
    await world.run("retention")

    for cursor in (1, 3):
        refused = await world.get(f"/v1/events?cursor={cursor}")
        assert (refused.status, refused.type) == (410, "engine.events_deleted")
        assert refused.json["meta"] == {"completeFrom": 5}
    for cursor in (4, 5, 6):
        answer = (await world.get(f"/v1/events?cursor={cursor}")).json
        assert [event["sequence"] for event in answer["data"]] == list(range(cursor + 1, 7))
        assert answer["completeFrom"] == 5
    page = (await world.get("/v1/events?type=invoice.paid")).json
    assert (page["data"], page["nextCursor"], page["completeFrom"]) == ([], "6", 5)
    assert (await world.get(f"/v1/events/{first['id']}")).status == 404
    await emit(world, 1)
    assert (await _sequences(world))[-1] == 7


async def test_undelivered_events_are_kept(world: World, receiver: Receiver) -> None:
    """[D-246]"""
    await register(world, receiver)
    receiver.answer = always(500)
    await emit(world, 1)
    await world.run("push")
    await emit(world, 2)
    await age(world, days=EVENT_DAYS + 1)
    await world.run("retention")
    assert await _sequences(world) == [1, 2, 3]

    receiver.answer = always(200)
    await world.advance(days=1)
    await world.run("push")
    assert sorted(set(receiver.sequences)) == [1, 2, 3]
    await age(world, days=1)
    await world.run("retention")

    assert await _sequences(world) == []
    assert [await count(world, table) for table in ("event", "delivery", "delivery_attempt")] == [0, 0, 0]
    assert await world.broken() == []
    await emit(world, 1)
    await world.run("push")
    assert receiver.sequences[-1] == 4


async def test_a_disabled_webhook_keeps_no_events(world: World, receiver: Receiver) -> None:
    """When the webhook is enabled again, it continues with the first event that is left. [D-246]"""
    await register(world, receiver)
    receiver.answer = always(410)
    await emit(world, 1)
    await world.run("push")
    await emit(world, 3)
    gone = (await world.events())[-1]["sequence"]
    await age(world, days=EVENT_DAYS + 1)
    await world.run("retention")
    assert await _sequences(world) == []
    await emit(world, 2)

    receiver.answer = always(200)
    receiver.received.clear()
    await register(world, receiver)
    await world.run("push")

    assert receiver.sequences == [gone + 1, gone + 2]
    assert await world.broken() == []


async def test_a_deleted_delivery_blocks_no_later_one(world: World, receiver: Receiver) -> None:
    """Deliveries 2 and 4 belong to one invoice. Delivery 2 is closed, but is deleted before it unblocks delivery 4.

    Delivery 3 is still open when it is deleted. [D-246, D-39]
    """
    await register(world, receiver)
    await emit(world, 1)
    await world.run("push")
    receiver.answer = lambda received: Reply(410 if received.sequence == 3 else 200)
    await emit(world, 4, invoices=2)
    await world.run("push")
    assert sorted(receiver.sequences) == [1, 2, 3], "the webhook was disabled before 2 unblocked 4"
    await age(world, days=EVENT_DAYS + 1, to=3)
    await world.run("retention")
    assert await _sequences(world) == [4, 5, 6]
    assert await world.broken() == []

    receiver.answer = always(200)
    await register(world, receiver)
    await world.run("push")

    assert sorted(receiver.sequences) == [1, 2, 3, 4, 5, 6]
    assert await world.broken() == []
    await age(world, days=EVENT_DAYS + 1)
    await world.run("retention")
    assert await _sequences(world) == []


async def test_attempts_are_deleted_before_their_events(world: World, receiver: Receiver) -> None:
    """[D-246]"""
    await register(world, receiver)
    await emit(world, 3)
    await world.run("push")
    await age(world, days=DELIVERY_DAYS + 1, to=2)

    await world.run("retention")

    shown = [(await world.get(f"/v1/events/{event['id']}/deliveries")).json for event in await world.events()]
    assert [(each["status"], len(each["data"])) for each in shown] == [
        ("delivered", 0),
        ("delivered", 0),
        ("delivered", 1),
    ]
    assert await world.broken() == []
    again = (await world.events())[0]
    assert (await world.post(f"/v1/events/{again['id']}/redeliver")).status == 202
    await world.run("push")
    shown_again = (await world.get(f"/v1/events/{again['id']}/deliveries")).json
    assert (shown_again["status"], len(shown_again["data"])) == ("delivered", 1)
    assert await world.broken() == []


async def test_half_deleted_attempts_of_an_event_are_no_fault(
    world: World, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No setting limits the age of attempts, so they are deleted with their events. The first batch deletes three of
    the four attempts. [D-246]
    """
    monkeypatch.setattr(deletion, "ATTEMPTS", 3)
    kept = {kind: days for kind, days in world.deps.settings.retention.items() if kind != "deliveries"}
    deps = replace(world.deps, settings=replace(world.deps.settings, retention=kept))
    await register(world, receiver)
    await emit(world, 2)
    await world.run("push")
    await redeliver(world, 1)
    await world.run("push")
    await redeliver(world, 2)
    await world.run("push")
    await age(world, days=EVENT_DAYS + 1)

    assert await deletion.run(deps, await load_account(deps, world.account_id)) == 3
    assert (await count(world, "delivery_attempt"), await count(world, "event")) == (1, 2)
    assert await world.broken() == []
    while await deletion.run(deps, await load_account(deps, world.account_id)):
        pass
    assert (await count(world, "delivery_attempt"), await count(world, "event")) == (0, 0)
    assert await world.broken() == []


async def test_attempts_to_send_an_old_event_again_are_deleted_in_their_turn(
    world: World, receiver: Receiver
) -> None:
    """Each attempt is kept for the same time after it was made, however old its event is. [D-246]"""
    await register(world, receiver)
    await emit(world, 3)
    await world.run("push")
    await age(world, days=DELIVERY_DAYS + 1)
    await world.run("retention")
    await redeliver(world, 1)
    await world.run("push")
    await age(world, days=DELIVERY_DAYS, plus=-MINUTE)
    await world.run("retention")
    assert await count(world, "delivery_attempt") == 1
    assert await world.broken() == []

    await age(world, days=0, plus=2 * HOUR)
    await world.run("retention")

    assert await count(world, "delivery_attempt") == 0
    assert len(await _sequences(world)) == 3
    assert await world.broken() == []


async def test_a_test_clock_that_jumps_deletes_nothing(world: World) -> None:
    """The age of rows is counted in real time. [D-247, D-45]"""
    await world.enroll(await world.plan())
    await world.run()
    await skip(world, timedelta(days=6 * 365))
    events, entries = await _sequences(world), await count(world, "audit_entry")

    assert await world.run("retention") == 0

    assert (await _sequences(world), await count(world, "audit_entry")) == (events, entries)


async def test_redelivery_and_replay_beside_the_deletion(world: World, receiver: Receiver) -> None:
    """A redelivery succeeds or gets 404. A reader gets all events from its cursor on, or 410. [D-248, D-39]"""
    await register(world, receiver)
    await emit(world, 60)
    await world.run("push")
    events = await world.events()
    await age(world, days=EVENT_DAYS + 1, to=40)
    results: dict[str, list[int]] = {"redeliver": [], "replay": []}

    async def redeliver(event: Json) -> None:
        results["redeliver"].append((await world.post(f"/v1/events/{event['id']}/redeliver")).status)

    async def replay(cursor: int) -> None:
        answer = await world.get(f"/v1/events?cursor={cursor}")
        results["replay"].append(answer.status)
        if answer.status == 200:
            assert answer.json["data"][0]["sequence"] == cursor + 1

    await asyncio.gather(
        *(redeliver(event) for event in events[::4]),
        *(world.run("retention", "push") for _ in range(3)),
        *(replay(cursor) for cursor in range(1, 60, 3)),
    )

    assert set(results["redeliver"]) <= {202, 404}
    assert set(results["replay"]) <= {200, 410}
    await world.run("push")
    await age(world, days=1, to=40)
    await world.run("retention")
    assert await _sequences(world) == list(range(41, 61))
    assert await world.broken() == []


async def test_a_cursor_with_a_filter_does_not_fall_behind(world: World) -> None:
    """[D-248, D-38]"""
    await emit(world, 3)
    await emit(world, 2, type_="invoice.paid")
    await emit(world, 2)
    first = (await world.get("/v1/events?type=invoice.paid&limit=1")).json
    assert ([each["sequence"] for each in first["data"]], first["nextCursor"]) == ([4], "4")
    second = (await world.get("/v1/events?type=invoice.paid&limit=5&cursor=4")).json
    assert ([each["sequence"] for each in second["data"]], second["nextCursor"]) == ([5], "7")
    await age(world, days=EVENT_DAYS + 1, to=6)
    await world.run("retention")
    await emit(world, 1, type_="invoice.paid")
    third = (await world.get("/v1/events?type=invoice.paid&cursor=7")).json
    assert [each["sequence"] for each in third["data"]] == [8]
