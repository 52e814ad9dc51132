"""Accounts are isolated in lists, cursors, references and keys of clients.

tests/faults/probes/run.py tries every place of an id.
"""

import pytest

from tests.support.account_resources import Owned, everything_of, own_everything
from tests.support.world import Json, World, subscription_body


@pytest.fixture
async def owned(world: World) -> tuple[Owned, Owned]:
    """Two accounts with one of everything."""
    return await own_everything(world, world), await own_everything(world, await world.another())


async def test_lists_and_streams_show_only_one_account(world: World, owned: tuple[Owned, Owned]) -> None:
    """[spec 5.2]"""
    own, other = owned
    visible = str(await everything_of(world))

    foreign = [each for ids in other.ids.values() for each in ids]
    assert [each for each in foreign if each in visible] == []
    assert own.one("invoiceId") in visible


async def test_a_cursor_of_another_account_shows_no_other_events(
    world: World, owned: tuple[Owned, Owned]
) -> None:
    """A cursor is a position in the stream of the account that sends it. [spec 5.2, D-38]"""
    _, other = owned
    theirs = (await other.merchant.get("/v1/events?limit=3")).json["nextCursor"]

    found = (await world.get(f"/v1/events?cursor={theirs}&limit=1")).json["data"]

    assert found == (await world.events())[3:4]


async def test_two_accounts_may_use_the_same_references_and_keys(world: World) -> None:
    """[spec 5.2, D-14]"""
    other = await world.another()
    found: list[Json] = []
    for merchant in (world, other):
        plan = await merchant.plan()
        body = subscription_body(plan)
        body["customer"]["externalRef"] = "customer-1"
        answer = await merchant.post("/v1/subscriptions", body, key="one-key-for-all")
        assert (answer.status, answer.headers.get("Idempotent-Replayed")) == (201, None)
        found.append(answer.json)

    assert found[0]["customer"]["id"] != found[1]["customer"]["id"]
    assert found[0]["id"] != found[1]["id"]


async def test_a_key_with_another_account_part_is_refused(world: World) -> None:
    """[spec 5.2, spec 5.3]"""
    other = await world.another()
    mine, theirs = world.api_key.split("_"), other.api_key.split("_")
    forged = "_".join([*mine[:2], theirs[2], *mine[3:]])

    answer = await world.get("/v1/integration", headers={"Authorization": f"Bearer {forged}"})

    assert (answer.status, answer.type) == (401, "engine.unauthorized")
