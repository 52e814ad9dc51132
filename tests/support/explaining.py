"""A database connection that records the plan of every query that returns rows."""

import json
from typing import Any

import asyncpg

from tests.support.world import Json

PLANS: list[Json] = []


class Explaining(asyncpg.Connection):
    async def fetch(self, query: str, *args: Any, **options: Any) -> Any:
        plan = await super().fetch(f"EXPLAIN (ANALYZE, FORMAT JSON) {query}", *args)
        PLANS.append(json.loads(plan[0][0])[0]["Plan"])
        return await super().fetch(query, *args, **options)

    async def fetchrow(self, query: str, *args: Any, **options: Any) -> Any:
        return next(iter(await self.fetch(query, *args, **options)), None)

    async def fetchval(self, query: str, *args: Any, **options: Any) -> Any:
        return (await self.fetch(query, *args, **options))[0][0]


def nodes(plan: Json) -> list[Json]:
    """Return a query plan's node and all nodes below it."""
    return [plan, *(each for below in plan.get("Plans", []) for each in nodes(below))]
