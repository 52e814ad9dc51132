"""Test that response times do not reveal whether an id exists in another account."""

import random
import time
from uuid import uuid4

from tests.faults.report import Report
from tests.support.account_resources import Owned
from tests.support.world import World, plan_body, subscription_body

PAIRS = 500
FAR_OFF = 0.15
"""Allowed difference of `_auc` from 0.5 on a busy machine. On an idle machine, the difference is below 0.05."""


async def compare_times(world: World, other: Owned, *, chance: random.Random, report: Report) -> None:
    """Measure response times for ids of another account and for unknown ids.

    Report how well the response times distinguish foreign from unknown ids, as `_auc` (0.5: not at all).
    """

    async def plan(sought: str) -> None:
        await world.post("/v1/plans", plan_body({"id": sought}))

    async def subscription(sought: str) -> None:
        await world.post("/v1/subscriptions", subscription_body({"id": sought}))

    async def product(sought: str) -> None:
        await world.get(f"/v1/products/{sought}")

    async def invoice(sought: str) -> None:
        await world.get(f"/v1/invoices/{sought}")

    asked = {"productId": (product, plan), "planId": (subscription,), "invoiceId": (invoice,)}
    for name, requests in asked.items():
        for request in requests:
            seconds: dict[bool, list[float]] = {True: [], False: []}
            for _ in range(PAIRS):
                for foreign in chance.sample((True, False), 2):
                    sought = chance.choice(other.ids[name]) if foreign else str(uuid4())
                    started = time.perf_counter()
                    await request(sought)
                    seconds[foreign].append(time.perf_counter() - started)
            guess = _auc(seconds[True], seconds[False])
            what = f"how well times distinguish a foreign {name} ({request.__name__}; 0.5 is not at all)"
            report.count(what, round(guess, 3), at_least=0.5 - FAR_OFF, at_most=0.5 + FAR_OFF)


def _auc(foreign: list[float], unknown: list[float]) -> float:
    """Return the probability that a foreign id takes longer than an unknown one (area under the ROC curve)."""
    ranked = sorted([(each, True) for each in foreign] + [(each, False) for each in unknown])
    ranks = sum(rank for rank, (_, is_one_of_these) in enumerate(ranked, 1) if is_one_of_these)
    return (ranks - len(foreign) * (len(foreign) + 1) / 2) / (len(foreign) * len(unknown))
