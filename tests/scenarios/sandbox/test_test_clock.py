"""The test clock sets a sandbox account's time. An advance stops whenever work is due, and runs the work."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from fatura.domain.account import Account
from fatura.domain.credentials import Mode
from fatura.usecases.database_clock import DatabaseClock
from fatura.usecases.deps import Deps
from fatura.usecases.sandbox import test_clock
from fatura.usecases.transaction import load_account
from tests.support.push_steps import skip
from tests.support.sandbox_steps import now, pass_time
from tests.support.world import LANE, Json, World, api_client, columns, run_until_idle


async def test_the_clock_shows_real_time_until_it_is_moved(world: World) -> None:
    """[D-45, D-1]"""
    await world.sql("UPDATE account SET clock_offset = '0' WHERE account_id = $1", world.account_id)
    clock = (await world.get("/v1/test-clock")).json
    assert (clock["status"], clock["processed"]) == ("ready", {})
    assert abs(datetime.fromisoformat(clock["now"]) - datetime.now(UTC)) < timedelta(seconds=10)

    answer = await world.advance("2035-01-01T00:00:00Z")

    assert answer["status"] == "ready"
    assert "2035-01-01T00:00:00.000Z" <= answer["now"] < "2035-01-01T00:00:10"
    later = await now(world)
    assert datetime(2035, 1, 1, tzinfo=UTC) <= later < datetime(2035, 1, 1, 0, 0, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    ("to", "reached"),
    [
        ("2035-03-01", "2035-03-01T03:00:00"),  # a date means the start of that day in Sao Paulo
        ("2035-03-01T00:00:00Z", "2035-03-01T00:00:00"),
        ("2035-03-01T23:59:59.5Z", "2035-03-01T23:59:59"),
    ],
)
async def test_a_clock_advances_to_an_instant_or_a_date(world: World, to: str, reached: str) -> None:
    """[D-45]"""
    assert (await world.advance(to))["now"].startswith(reached)


async def test_a_clock_advances_by_days(world: World) -> None:
    """A day is 24 hours. Advancing by 0 days runs all due work. [D-45]"""
    start = await now(world)
    await world.enroll(await world.plan())

    still = await world.advance(days=0)
    moved = await world.advance(days=2)

    assert still["processed"]["generation"] == 1
    passed = datetime.fromisoformat(moved["now"]) - start
    assert timedelta(days=2) <= passed < timedelta(days=2, seconds=20)


@pytest.mark.faults
async def test_an_advance_counts_completed_work_per_lane(world: World) -> None:
    """[D-45]"""
    await world.advance("2035-01-01")
    await world.enroll(await world.plan(), chargeDay=10)

    first = await world.advance("2035-03-15")
    second = await world.advance("2035-04-15")

    invoices = columns(await world.invoices(), "cycle", "dueDate", "status")
    assert [(cycle, due, status) for cycle, due, status in invoices] == [
        ("1", "2035-01-10", "paid"),
        ("2", "2035-02-10", "paid"),
        ("3", "2035-03-10", "paid"),
        ("4", "2035-04-10", "paid"),
    ]
    assert (first["processed"]["generation"], first["processed"]["issuance"]) == (3, 3)
    assert (second["processed"]["generation"], second["processed"]["issuance"]) == (1, 1)


async def test_work_runs_at_its_due_instant_and_in_order(world: World) -> None:
    """[D-45, D-2]"""
    await world.advance("2035-01-01T12:00:00Z")
    plan = await world.plan()
    for day in (20, 5, 12):
        await world.enroll(plan, chargeDay=day)

    await world.advance("2035-02-01")

    events = [
        (event["createdAt"][:16], event["type"], event["data"]["invoice"]["dueDate"])
        for event in await world.events("invoice.created", "invoice.paid")
    ]
    assert events == [
        ("2035-01-02T03:00", "invoice.created", "2035-01-05"),
        ("2035-01-05T03:00", "invoice.paid", "2035-01-05"),
        ("2035-01-09T03:00", "invoice.created", "2035-01-12"),
        ("2035-01-12T03:00", "invoice.paid", "2035-01-12"),
        ("2035-01-17T03:00", "invoice.created", "2035-01-20"),
        ("2035-01-20T03:00", "invoice.paid", "2035-01-20"),
    ]
    instants = [event["createdAt"] for event in await world.events()]
    assert instants == sorted(instants)


async def test_clocks_of_other_accounts_do_not_move(world: World) -> None:
    """[D-45, D-1]"""
    other = await world.another()
    subscription = await other.enroll(await other.plan(), chargeDay=(await now(other)).day % 28 + 1)
    before = await now(other)

    await pass_time(world, days=400)

    assert await now(other) - before < timedelta(minutes=1)
    assert len(await other.invoices(subscription)) <= 1


async def test_the_clock_cannot_go_back(world: World) -> None:
    """[D-45]"""
    await world.advance("2035-01-01")

    answer = await world.post("/v1/test-clock/advance", {"to": "2034-12-31"})

    assert (answer.status, answer.type) == (409, "engine.clock_conflict")
    assert answer.json["meta"]["now"].startswith("2035-01-01T03:00")
    assert (await world.get("/v1/test-clock")).json["status"] == "ready"


async def test_a_second_concurrent_advance_is_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """[D-45]"""
    monkeypatch.setattr(test_clock, "WAIT_SECONDS", 0)  # a request to advance is answered at once
    assert (await world.post("/v1/test-clock/advance", {"to": "2035-01-01"})).status == 202

    for body in ({"to": "2036-01-01"}, {"days": 1}, {"days": 0}, {"to": "2020-01-01"}):
        answer = await world.post("/v1/test-clock/advance", body)
        assert (answer.status, answer.type) == (409, "engine.clock_conflict")

    await run_until_idle(world.deps, [LANE["test_clock"]])
    assert (await world.get("/v1/test-clock")).json["now"].startswith("2035-01-01T03:00")


async def test_a_long_advance_answers_202_with_its_progress(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[D-45]"""
    monkeypatch.setattr(test_clock, "WAIT_SECONDS", 0)

    answer = await world.post("/v1/test-clock/advance", {"to": "2035-01-01"})

    assert (answer.status, answer.json["status"]) == (202, "advancing")
    assert answer.json["target"] == "2035-01-01T03:00:00.000Z"
    await run_until_idle(world.deps, [LANE["test_clock"]])
    assert (await world.get("/v1/test-clock")).json["status"] == "ready"


async def test_a_suspended_worker_does_not_end_a_later_advance(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[D-45]"""
    monkeypatch.setattr(test_clock, "WAIT_SECONDS", 0)
    account = await load_account(world.deps, world.account_id)
    await world.post("/v1/test-clock/advance", {"to": "2033-11-20T20:00:00.000Z"})

    async def sleep(_deps: Deps, _account: Account) -> int:
        await world.sql("UPDATE test_clock SET lease_until = now() WHERE account_id = $1", world.account_id)
        await test_clock.advance_to_target(world.deps, account, {})
        assert (await world.post("/v1/test-clock/advance", {"to": "2035-01-01"})).status == 202
        return 0

    await test_clock.advance_to_target(world.deps, account, {"sleep": sleep})

    clock = (await world.get("/v1/test-clock")).json
    assert (clock["status"], clock["target"]) == ("advancing", "2035-01-01T03:00:00.000Z")


async def test_a_slow_lane_does_not_end_the_lease_of_a_clock(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lane takes longer than the clock's lease, because gateway calls hang. No second worker advances the clock.
    [D-45, D-61 faults]
    """
    monkeypatch.setattr(test_clock, "LEASE", timedelta(seconds=1))
    monkeypatch.setattr(test_clock, "WAIT_SECONDS", 0)
    assert (await world.post("/v1/test-clock/advance", {"to": "2033-11-20T20:00:00.000Z"})).status == 202
    account = await load_account(world.deps, world.account_id)
    others: list[int] = []

    async def is_slow(deps: Deps, _account: Account) -> int:
        for _ in range(5):
            await asyncio.sleep(0.5)
            others.append(len(await LANE["test_clock"].due(deps)))
        return 0

    await test_clock.advance_to_target(world.deps, account, {"slow": is_slow})

    assert others[:5] == [0] * 5
    assert (await world.get("/v1/test-clock")).json["status"] == "ready"


async def test_a_worker_that_lost_the_lease_does_not_move_the_clock(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another worker has claimed the clock and runs a lane. [D-45]"""
    monkeypatch.setattr(test_clock, "WAIT_SECONDS", 0)
    assert (await world.post("/v1/test-clock/advance", {"to": "2033-11-20T20:00:00.000Z"})).status == 202
    account = await load_account(world.deps, world.account_id)
    claimed, may_end = asyncio.Event(), asyncio.Event()
    before = await now(world)

    async def waits(_deps: Deps, _account: Account) -> int:
        claimed.set()
        await may_end.wait()
        return 0

    async def loses_its_lease(_deps: Deps, _account: Account) -> int:
        await world.sql("UPDATE test_clock SET lease_until = now() WHERE account_id = $1", world.account_id)
        running.append(
            asyncio.create_task(test_clock.advance_to_target(world.deps, account, {"waits": waits}))
        )
        await claimed.wait()
        return 7

    running: list[asyncio.Task[int]] = []
    await test_clock.advance_to_target(world.deps, account, {"loses": loses_its_lease})

    clock = (await world.get("/v1/test-clock")).json
    assert (clock["status"], clock["processed"]) == ("advancing", {})
    assert datetime.fromisoformat(clock["now"]) - before < timedelta(minutes=1)
    assert await LANE["test_clock"].due(world.deps) == [], "the other worker keeps its lease"
    may_end.set()
    await asyncio.gather(*running)
    assert (await world.get("/v1/test-clock")).json["status"] == "ready"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [("GET", "", None), ("POST", "/advance", {"days": 1}), ("DELETE", "/advance", None)],
)
async def test_a_live_account_has_no_test_clock(world: World, method: str, path: str, body: Json) -> None:
    """[D-45, D-44]"""
    live = await world.another(Mode.LIVE)

    answer = await live.call(method, f"/v1/test-clock{path}", body)

    assert (answer.status, answer.type) == (409, "engine.clock_conflict")


MALFORMED: tuple[Json, ...] = (
    {},
    {"to": "2035-01-01", "days": 1},
    {"to": None, "days": None},
    {"days": -1},
    {"days": 1.0},
    {"days": True},
    {"days": "1"},
    {"days": 3661},
    {"to": "tomorrow"},
    {"to": "2035-13-01"},
    {"to": "2035-01-01T00:00:00"},
    {"to": "2035-01-01T00:00:00+00:00"},
    {"to": "9999-12-31"},
    {"to": 2035},
    {"to": "2035-01-01", "speed": 2},
)


async def test_a_malformed_advance_is_refused(world: World) -> None:
    """[D-45, D-11]"""
    for body in MALFORMED:
        answer = await world.post("/v1/test-clock/advance", body)
        assert (answer.status, answer.type) == (400, "engine.invalid_request"), body

    assert (await world.get("/v1/test-clock")).json["status"] == "ready"


@pytest.mark.parametrize(("off_seconds", "trusted"), [(-25, True), (25, True), (-35, False), (35, False)])
async def test_a_host_with_a_wrong_clock_generates_nothing(
    world: World, off_seconds: int, *, trusted: bool
) -> None:
    """A host's clock is wrong if it is more than 30 s off the database's clock. `/health/ready` reports this.
    [D-5, spec 4.1 GET /health/ready 200]
    """
    subscription = await world.enroll(await world.plan())
    await skip(world, timedelta(minutes=1))
    off = timedelta(seconds=off_seconds)
    deps = replace(world.deps, clock=DatabaseClock(lambda: datetime.now(UTC) + off))

    await run_until_idle(deps, [LANE["generation"]])

    async with api_client(deps) as client:
        ready = await client.get("/health/ready")
    assert ready.status_code == 200
    assert ready.json() == {"status": "ok", "checks": {"database": True, "clock": trusted, "workers": True}}
    assert len(await world.invoices(subscription)) == trusted
