"""A scheduled call, a manual call and a manual value compete for one item. The first value is final."""

import asyncio
from itertools import permutations

import pytest

from tests.support.price_server import PriceServer, Reply
from tests.support.world import Json, World

ANSWER, RETRY, MANUAL = "answer", "retry", "manual"
CENTS = {ANSWER: 100, RETRY: 200, MANUAL: 300}
SOURCE = {ANSWER: "endpoint", RETRY: "endpoint", MANUAL: "manual"}
KINDS = {
    "ok": lambda cents: {"amount": cents},
    "skip": lambda _: {"skip": True},
    "fails": lambda _: Reply(status=500),
}


class Race:
    """An invoice with a scheduled and a manual call in progress. A person can also enter a manual value."""

    def __init__(self, world: World, prices: PriceServer) -> None:
        self.world, self.prices = world, prices
        self.running: dict[str, asyncio.Task[Json]] = {}
        self.path = ""
        self.item_id = ""

    async def start(self, answer: str = "ok", retry: str = "ok") -> None:
        """Create an invoice, and start its scheduled and its manual call. The endpoint withholds its responses."""
        world, prices = self.world, self.prices
        known = {invoice["id"] for invoice in await world.invoices()}
        prices.answers(KINDS[answer](CENTS[ANSWER]), KINDS[retry](CENTS[RETRY]))
        prices.calls, prices.withheld, prices.withholds = [], [], True
        pricing = {"mode": "endpoint", "url": prices.url(), "capCents": 1000}
        product = await world.made("/v1/products", {"name": "Usage", "pricing": pricing})
        subscription = await world.enroll(await world.plan(product))
        await world.run("generation")
        await world.post(f"/v1/subscriptions/{subscription['id']}/cancel")
        (fresh,) = [invoice for invoice in await world.invoices() if invoice["id"] not in known]
        self.path = f"/v1/invoices/{fresh['id']}"
        self.item_id = (await self.seen())["items"][0]["id"]
        self.running[ANSWER] = asyncio.create_task(world.run("pricing"))
        await prices.wait_for_calls(1)
        self.running[RETRY] = asyncio.create_task(world.post(f"{self.path}/retry-pricing"))
        await prices.wait_for_calls(2)

    async def let(self, runner: str) -> Json:
        """Let one of the three competitors finish, and return its result."""
        if runner == MANUAL:
            return await self.world.post(f"{self.path}/items/{self.item_id}/value", {"amount": CENTS[MANUAL]})
        self.prices.withheld[0 if runner == ANSWER else 1].set()
        return await self.running[runner]

    async def seen(self) -> Json:
        return (await self.world.get(self.path)).json


def closes(runner: str, kinds: dict[str, str]) -> bool:
    """Return whether this competitor prices or skips the item."""
    return kinds.get(runner, "ok") != "fails"


@pytest.mark.parametrize("order", list(permutations((ANSWER, RETRY, MANUAL))), ids="-".join)
@pytest.mark.parametrize(
    ("answer", "retry"), [("ok", "ok"), ("fails", "ok"), ("ok", "fails"), ("skip", "ok")]
)
async def test_the_first_value_wins_in_every_order(
    world: World, prices: PriceServer, order: tuple[str, ...], answer: str, retry: str
) -> None:
    """[D-32]"""
    kinds = {ANSWER: answer, RETRY: retry}
    race = Race(world, prices)
    await race.start(answer, retry)
    winner = next(runner for runner in order if closes(runner, kinds))
    skipped = kinds.get(winner) == "skip"
    manual_status = 0
    after_win: Json = None
    for runner in order:
        result = await race.let(runner)
        if runner == MANUAL:
            manual_status = result.status
        if runner == winner:
            after_win = await race.seen()
    assert manual_status == (200 if winner == MANUAL else 409)
    item = after_win["items"][0]
    assert (item["pricingSource"], item["pricingStatus"], item["amountCents"]) == (
        SOURCE[winner],
        "skipped" if skipped else "priced",
        None if skipped else CENTS[winner],
    )
    assert (after_win["status"], after_win["totalCents"]) == (
        "paid" if skipped else "ready",
        0 if skipped else CENTS[winner],
    )
    afterwards = await race.seen()
    assert afterwards | {"pricingAttempts": []} == after_win | {"pricingAttempts": []}
    outcomes = {"ok": "ok", "skip": "skip", "fails": "http_error"}
    assert [each["outcome"] for each in afterwards["pricingAttempts"]] == [outcomes[answer], outcomes[retry]]

    prices.withholds = False
    await world.advance(days=2)
    assert len(prices.calls) == 2
    assert len(await world.events("invoice.ready", "invoice.paid")) >= 1
    assert len(await world.events("invoice.ready")) == (0 if skipped else 1)
    assert (await race.seen())["totalCents"] == after_win["totalCents"]
    assert await world.broken() == []


@pytest.mark.faults
async def test_concurrent_values_leave_exactly_one(world: World, prices: PriceServer) -> None:
    """[D-32]"""
    for _ in range(8):
        race = Race(world, prices)
        await race.start()
        _, _, manual = await asyncio.gather(race.let(ANSWER), race.let(RETRY), race.let(MANUAL))
        invoice = await race.seen()
        assert invoice["status"] == "ready"
        assert invoice["totalCents"] == invoice["items"][0]["amountCents"]
        assert invoice["totalCents"] in CENTS.values()
        assert (manual.status == 200) is (invoice["items"][0]["pricingSource"] == "manual")
        (ready,) = [
            event
            for event in await world.events("invoice.ready")
            if event["data"]["invoice"]["id"] == invoice["id"]
        ]
        assert ready["data"]["invoice"]["totalCents"] == invoice["totalCents"]
    assert await world.broken() == []
