"""While many clients write, readers of events and of the audit log get each entry once, in order and without gaps."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from fatura.domain.audit import Origin
from fatura.domain.audit_actions import PRODUCT_CREATE
from fatura.usecases.transaction import load_account, open_work
from fatura.views.events import SubscriptionDataView
from fatura.views.samples.story import SUBSCRIPTION
from fatura.workers.lanes import ENGINE
from tests.support.operator import OPERATOR
from tests.support.world import Json, Merchant, World, plan_body, run_until_idle, subscription_body

WRITERS = 16
FOLLOWERS = 6
ROUNDS = 8
MAX_LIMIT = 200


@dataclass(slots=True)
class Follower:
    """A client that polls the event stream or the audit log with its cursor, and stores the entries."""

    merchant: Merchant
    path: str = "/v1/events"
    seen: list[Json] = field(default_factory=list)
    cursor: str = "0"

    async def follow(self, written: asyncio.Event) -> None:
        """Poll the stream. Return at the first empty page whose poll began after all writers had ended."""
        while True:
            is_last_poll = written.is_set()
            limit = random.randint(1, MAX_LIMIT)  # noqa: S311 - page sizes, not secrets
            page = (await self.merchant.get(f"{self.path}?cursor={self.cursor}&limit={limit}")).json
            assert len(page["data"]) <= limit
            self.seen += page["data"]
            self.cursor = page["nextCursor"]
            if is_last_poll and not page["data"]:
                return
            await asyncio.sleep(0.005)


async def write(merchant: Merchant, plan: Json, terms: Json) -> None:
    """Create, customize and cancel subscriptions. Each accepted request emits one event."""
    for _ in range(ROUNDS):
        subscription = await merchant.enroll(plan)
        assert (
            await merchant.post("/v1/subscriptions", {**subscription_body(plan), "chargeDay": 29})
        ).status == 400
        path = f"/v1/subscriptions/{subscription['id']}"
        await merchant.made(f"{path}/customize", terms)
        await merchant.made(f"{path}/cancel")
        assert (await merchant.post(f"{path}/cancel")).status == 409


async def bill(world: World, subscriptions: Sequence[Json]) -> None:
    """Run the billing lanes, which emit many events in one transaction."""
    for _ in subscriptions:
        await run_until_idle(world.deps, ENGINE)
        await asyncio.sleep(0.01)


@pytest.mark.faults
async def test_readers_beside_sixteen_writers_get_every_event_once(world: World) -> None:
    """[D-38, D-37, D-63, D-224]"""
    plan = await world.plan()
    terms = plan_body(await world.product(100))
    del terms["name"]
    standing = [await world.enroll(plan) for _ in range(20)]
    written = asyncio.Event()
    followers = [Follower(world) for _ in range(FOLLOWERS)]
    auditors = [Follower(world, "/v1/audit") for _ in range(FOLLOWERS)]
    following = [asyncio.create_task(each.follow(written)) for each in (*followers, *auditors)]

    await asyncio.gather(*(write(world, plan, terms) for _ in range(WRITERS)), bill(world, standing))
    await world.run()
    written.set()
    await asyncio.gather(*following)

    expected = await world.events()
    assert len(expected) >= 20 + WRITERS * ROUNDS * 3
    assert [event["sequence"] for event in expected] == list(range(1, len(expected) + 1))
    for follower in followers:
        assert follower.seen == expected
    assert len({event["id"] for event in expected}) == len(expected)
    log = await world.audit()
    assert len(log) == len({entry["id"] for entry in log}) >= 20 + WRITERS * ROUNDS * 3
    for auditor in auditors:
        assert auditor.seen == log
    assert await world.broken() == []


async def test_an_open_transaction_delays_no_reader_and_loses_no_event(world: World) -> None:
    """A transaction numbers its events and audit entries in its last statement.

    A slow transaction's events thus come after all events that a reader has already seen. [D-38, D-224]
    """
    plan = await world.plan()
    slow_may_commit = asyncio.Event()
    account = await load_account(world.deps, world.account_id)

    async def slow() -> None:
        async with open_work(world.deps, account) as work:
            work.emit("subscription.created", SubscriptionDataView.of(SUBSCRIPTION))
            work.audit_for(Origin(OPERATOR), PRODUCT_CREATE, resource_id="slow", after={})
            await slow_may_commit.wait()

    running = asyncio.create_task(slow())
    await asyncio.sleep(0.05)
    await world.enroll(plan)
    seen = (await world.get("/v1/events")).json
    audited = (await world.get("/v1/audit")).json
    assert audited["data"][-1]["action"] == "subscription.create"
    assert [event["sequence"] for event in seen["data"]] == [1]

    slow_may_commit.set()
    await running

    late = (await world.get(f"/v1/audit?cursor={audited['nextCursor']}")).json["data"]
    assert [entry["resource"]["id"] for entry in late] == ["slow"]
    rest = (await world.get(f"/v1/events?cursor={seen['nextCursor']}")).json["data"]
    assert [(event["sequence"], event["data"]["subscription"]["id"]) for event in rest] == [
        (2, str(SUBSCRIPTION.subscription_id))
    ]
