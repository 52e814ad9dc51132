"""Steps of the propagation scenarios: publish versions, propagate them, sum previews."""

from collections.abc import Sequence

from tests.support.world import Json, World, plan_body


async def propagate(world: World, plan: Json, **body: Json) -> Json:
    """Move a plan's subscriptions to the current version of the plan."""
    return await world.made(f"/v1/plans/{plan['id']}/propagate", body)


async def publish(world: World, plan: Json, *items: Json, **fields: Json) -> Json:
    """Publish a new version of a plan. `items` may be products, which become items without discounts."""
    answer = await world.put(f"/v1/plans/{plan['id']}", plan_body(*items, **fields))
    assert answer.status == 200, answer.body
    return answer.json


async def sum_of_previews(world: World, subscriptions: Sequence[Json]) -> int:
    """Return the sum of the subscriptions' next invoices. Variable items count as zero."""
    found = [await world.get(f"/v1/subscriptions/{each['id']}/preview") for each in subscriptions]
    return sum(answer.json["fixedTotalCents"] for answer in found)


async def tables(world: World) -> dict[str, list[str]]:
    """Return all rows of the account by table, except the tables `idempotency_key` and `api_key`."""
    listed = await world.sql(
        "SELECT table_name FROM information_schema.columns WHERE table_schema = 'public' AND column_name = 'account_id'"
    )
    names = {row["table_name"] for row in listed} - {"idempotency_key", "api_key"}
    assert len(names) > 15, names
    found: dict[str, list[str]] = {}
    for name in sorted(names):
        statement = f"SELECT t::text AS row FROM {name} t ORDER BY 1"  # noqa: S608 - the names of our own tables
        found[name] = [record["row"] for record in await world.sql(statement)]
    return found
