"""`fatura listen` reads the events of a real API and posts them to a local receiver as webhooks."""

import asyncio
import json
import signal
import time
from pathlib import Path

import pytest
from standardwebhooks import Webhook
from typer.testing import CliRunner

from fatura.cli import app
from fatura.cli.client import ApiError, connect
from fatura.cli.listen.command import secret_of
from fatura.cli.listen.forwarding import Forwarding, Position, forward
from fatura.signature import HEADER, sign, standard_signature, verify
from tests.support.example_merchant import example_merchant
from tests.support.fatura_processes import environment, free_port, run, running
from tests.support.listening import SECRET, Api, listening
from tests.support.postgres_processes import until
from tests.support.push_steps import emit
from tests.support.receiver import OK, Receiver, Reply, always, open_receiver
from tests.support.retention_steps import EVENT_DAYS, age
from tests.support.world import World, eventually


async def elements(world: World) -> list[bytes]:
    """Return the bytes of each event in the stream, read with one request per event."""
    found: list[bytes] = []
    while True:
        body = (await world.get(f"/v1/events?cursor={len(found)}&limit=1")).body
        element = body.removeprefix(b'{"data":[').rpartition(b'],"nextCursor"')[0]
        if not element:
            return found
        found.append(element)


async def test_events_arrive_in_order_and_byte_for_byte(world: World, api: Api, receiver: Receiver) -> None:
    """[D-39 bytes, spec 5.6, spec 6.3, D-42 keys]"""
    plan = await world.plan()
    for name in ("Açaí", '"quoted" \\ \'', "Ana"):
        customer = {"externalRef": name, "name": name, "email": "ana@example.com"}
        await world.enroll(plan, customer=customer)
    await emit(world, 3)

    async with listening(api, world, receiver, after=0) as seen:
        await eventually(lambda: len(seen.attempts) == 6)

    assert [each.body for each in receiver.received] == await elements(world)
    for each in receiver.received:
        verify(each.body, each.headers[HEADER], secret=SECRET)
        Webhook(SECRET).verify(each.body, dict(each.headers))
    assert [attempt.status for _, attempt in seen.attempts] == [200] * 6
    assert seen.place.after == 6


async def test_headers_equal_those_of_a_webhook(world: World, api: Api, receiver: Receiver) -> None:
    """[D-39 headers, D-39 timestamp]"""
    await world.enroll(await world.plan())
    async with listening(api, world, receiver, after=0) as seen:
        await eventually(lambda: bool(seen.attempts))

    (got,) = receiver.received
    timestamp = int(got.headers["webhook-timestamp"])
    expected = {
        "Content-Type": "application/json",
        "X-Service-Signature": sign(got.body, [SECRET], timestamp=timestamp),
        "X-Service-Event-Id": got.json["id"],
        "X-Service-Event-Type": "subscription.created",
        "X-Service-Delivery-Attempt": "1",
        "webhook-id": got.json["id"],
        "webhook-signature": standard_signature(
            got.json["id"], got.body, secrets=[SECRET], timestamp=timestamp
        ),
    }
    assert {name: got.headers[name] for name in expected} == expected
    assert abs(timestamp - time.time()) < 10


@pytest.mark.parametrize("before", [0, 1, 2, 7, 250])
async def test_without_a_start_only_new_events_are_forwarded(
    world: World, api: Api, receiver: Receiver, before: int
) -> None:
    """[D-38, D-120]"""
    await emit(world, before)
    async with listening(api, world, receiver, after=None) as seen:
        await eventually(lambda: seen.place.after is not None)
        await emit(world, 2)
        await eventually(lambda: len(receiver.received) == 2)

    assert receiver.sequences == [before + 1, before + 2]


@pytest.mark.parametrize(("before", "deleted"), [(9, 4), (9, 9), (300, 201)])
async def test_deleted_events_are_skipped(
    world: World, api: Api, receiver: Receiver, before: int, deleted: int
) -> None:
    """[D-248, D-120]"""
    await emit(world, before)
    await age(world, days=EVENT_DAYS + 1, to=deleted)
    await world.run("retention")
    async with listening(api, world, receiver, after=None) as seen:
        await eventually(lambda: seen.place.after is not None)
        assert seen.place.after == before
    async with listening(api, world, receiver, after=0) as seen:
        await emit(world, 1)
        await eventually(lambda: len(receiver.received) == before - deleted + 1)

    assert receiver.sequences == list(range(deleted + 1, before + 2))
    async with connect(api.url, world.api_key) as client:
        forwarding = Forwarding(
            receiver.url, SECRET, skip_failures=False, report=seen.report, print_note=print
        )
        with pytest.raises(ApiError, match="were deleted"):
            await forward(client, Position(1), of=forwarding)


async def test_a_stream_of_several_pages_arrives_once(world: World, api: Api, receiver: Receiver) -> None:
    """[D-38]"""
    await emit(world, 450)
    async with listening(api, world, receiver, after=200) as seen:
        await eventually(lambda: len(receiver.received) == 250)
        await emit(world, 1)
        await eventually(lambda: seen.place.after == 451)

    assert receiver.sequences == list(range(201, 452))


async def test_a_refused_event_is_retried_before_the_next(world: World, api: Api, receiver: Receiver) -> None:
    """A redirect counts as a refusal. [D-39 outcomes]"""
    replies = iter([OK, Reply(500), Reply(307, headers={"Location": "/elsewhere"}), OK, OK])
    receiver.answer = lambda _: next(replies)
    await emit(world, 3)
    async with listening(api, world, receiver, after=0) as seen:
        await eventually(lambda: len(seen.attempts) >= 2)
        assert seen.place.after == 1
        await eventually(lambda: seen.place.after == 3)

    assert [(sequence, attempt.number, attempt.status) for sequence, attempt in seen.attempts] == [
        (1, 1, 200),
        (2, 1, 500),
        (2, 2, 307),
        (2, 3, 200),
        (3, 1, 200),
    ]
    assert [each.headers["X-Service-Delivery-Attempt"] for each in receiver.received] == list("11231")


async def test_refused_events_can_be_skipped(world: World, api: Api, receiver: Receiver) -> None:
    """[D-39]"""
    receiver.answer = always(503)
    await emit(world, 3)
    async with listening(api, world, receiver, after=0, skip_failures=True) as seen:
        await eventually(lambda: seen.place.after == 3)

    assert receiver.sequences == [1, 2, 3]
    assert not any(attempt.is_delivered for _, attempt in seen.attempts)


async def test_an_outage_of_the_api_loses_and_repeats_no_event(
    world: World, api: Api, receiver: Receiver
) -> None:
    """[D-38]"""
    await emit(world, 2)
    async with listening(api, world, receiver, after=0) as seen:
        await eventually(lambda: len(receiver.received) == 2)
        await api.stop()
        await emit(world, 2)
        await eventually(lambda: any("waiting for it" in text for text in seen.said))
        await asyncio.sleep(1.2)  # time for a second failed request, which must not print a second note
        await api.start()
        await eventually(lambda: len(receiver.received) == 4)

    assert receiver.sequences == [1, 2, 3, 4]
    assert len([text for text in seen.said if "waiting for it" in text]) == 1
    assert seen.said[-1] == "the API answers again"


async def test_a_refused_key_ends_the_command(world: World, api: Api, receiver: Receiver) -> None:
    """[spec 5.3]"""
    world.api_key += "x"
    forwarding = Forwarding(
        receiver.url, SECRET, skip_failures=False, report=lambda *_: None, print_note=lambda _: None
    )
    async with connect(api.url, world.api_key) as client:
        with pytest.raises(ApiError, match=r"engine\.unauthorized"):
            await forward(client, Position(None), of=forwarding)


async def test_a_server_that_is_not_the_api_is_reported(world: World, receiver: Receiver) -> None:
    receiver.answer = always(200, b"<html>hello</html>")
    forwarding = Forwarding(
        receiver.url, SECRET, skip_failures=False, report=lambda *_: None, print_note=lambda _: None
    )
    async with connect(receiver.url.removesuffix("/events"), world.api_key) as client:
        with pytest.raises(ApiError, match="not a page of events"):
            await forward(client, Position(0), of=forwarding)


@pytest.mark.faults
async def test_a_merchant_that_starts_late_gets_all_events(world: World, api: Api, tmp_path: Path) -> None:
    await emit(world, 2)
    port = free_port()
    env = environment(FATURA_API_KEY=world.api_key, FATURA_API_URL=api.url, FATURA_INTEGRATION_SECRET=SECRET)
    words = ("listen", "--forward-to", f"http://127.0.0.1:{port}/webhooks", "--all", "--json")
    with running(*words, env=env, output=tmp_path / "listen.log") as listen:
        await asyncio.to_thread(until, lambda: '"error": "' in listen.said(), seconds=20)
        with example_merchant(SECRET, port=port) as merchant:
            await asyncio.to_thread(until, lambda: merchant.summary()["verified"] == 2, seconds=20)
            assert merchant.summary() | {"events": {}} == {
                "priceCalls": {},
                "priceFailures": {},
                "received": 2,
                "verified": 2,
                "refused": 0,
                "duplicates": 0,
                "events": {},
            }
        assert await asyncio.to_thread(listen.stop, signal.SIGINT) == 0

    lines = [json.loads(line) for line in listen.said().splitlines() if line.startswith("{")]
    assert not lines[0]["delivered"]
    assert lines[0]["status"] is None
    assert [(line["sequence"], line["status"]) for line in lines if line["delivered"]] == [(1, 200), (2, 200)]
    assert "stopped; --from 3 continues from here" in listen.said()
    assert "Traceback" not in listen.said()


@pytest.mark.faults
async def test_the_secret_of_an_api_key_is_printed(world: World, api: Api, tmp_path: Path) -> None:
    """Every run with the same API key uses the same secret. An event's line shows the receiver's answer. [D-120]"""
    await emit(world, 1)
    async with open_receiver() as receiver:
        receiver.answer = always(201, b"taken,\n  thank you" + b"!" * 2000)
        words = ("listen", "--forward-to", receiver.url, "--api", api.url, "--from", "1")
        env = environment(FATURA_API_KEY=world.api_key)
        with running(*words, env=env, output=tmp_path / "listen.log") as listen:
            await eventually(lambda: " ms " in listen.said(), seconds=20)
            assert await asyncio.to_thread(listen.stop, signal.SIGTERM) == 0
    secret = listen.said().partition("signing with ")[2].split()[0]
    (got,) = receiver.received
    verify(got.body, got.headers[HEADER], secret=secret)
    assert secret == secret_of(world.api_key) != secret_of("rk_test_another")
    (line,) = [line for line in listen.said().splitlines() if " ms " in line]
    assert line.split()[1:4] == ["#1", "invoice.payment_unexpected", "201"]
    assert line.endswith(" ms  taken, thank you" + "!" * 104 + "...")


async def test_a_refusal_shows_what_the_receiver_says(world: World, api: Api, receiver: Receiver) -> None:
    """[D-120]"""
    receiver.answer = always(422, b'{"error": "unknown invoice"}')
    await emit(world, 1)
    async with listening(api, world, receiver, after=0, skip_failures=True) as seen:
        await eventually(lambda: bool(seen.attempts))
    ((_, attempt),) = seen.attempts
    assert (attempt.status, attempt.body) == (422, '{"error": "unknown invoice"}')


@pytest.mark.faults
async def test_a_refused_key_is_reported_in_one_line(world: World, api: Api) -> None:
    """[spec 5.3]"""
    words = ("listen", "--forward-to", "http://127.0.0.1:1/", "--api", api.url, "--api-key", "rk_test_x")
    ended = await asyncio.to_thread(run, *words, env=environment(FATURA_INTEGRATION_SECRET=SECRET))

    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (1, "", 1)
    assert ended.stderr.startswith("fatura: GET /v1/events")


GOOD = ["--forward-to", "http://127.0.0.1:9000/webhooks", "--api-key", "rk_test_x"]


@pytest.mark.parametrize(
    "words",
    [
        [],
        GOOD[:2],
        GOOD[2:],
        ["--forward-to", "127.0.0.1:9000", *GOOD[2:]],
        ["--forward-to", "ftp://127.0.0.1/", *GOOD[2:]],
        ["--forward-to", "http://127.0.0.1:99999/", *GOOD[2:]],
        [*GOOD, "--api", "http://127.0.0.1:8000/v1"],
        [*GOOD, "--secret", "whsec_"],
        [*GOOD, "--secret", "whsec_!"],
        [*GOOD, "--secret", "c2VjcmV0"],
        [*GOOD, "--all", "--from", "3"],
        [*GOOD, "--from", "0"],
    ],
    ids=" ".join,
)
def test_invalid_options_are_refused(words: list[str]) -> None:
    assert CliRunner().invoke(app, ["listen", *words], env={"FATURA_API_KEY": None}).exit_code == 2
