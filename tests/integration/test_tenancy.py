"""Accounts know nothing of each other: neither by lists and cursors, nor by references and keys of clients.

Every place where an id goes is probed by tests/faults/probes/run.py.
"""

import pytest

from tests.support.account_resources import Owned, everything_of, own_everything
from tests.support.world import Json, World, subscription_body


@pytest.fixture
async def owned(world: World) -> tuple[Owned, Owned]:
    """Two accounts with one of everything."""
    return await own_everything(world, world), await own_everything(world, await world.another())


async def test_lists_and_streams_show_the_own_account_only(world: World, owned: tuple[Owned, Owned]) -> None:
    """No id of the other account stands anywhere in what an account can read. [spec 5.2]"""
    own, other = owned
    visible = str(await everything_of(world))

    foreign = [each for ids in other.ids.values() for each in ids]
    assert [each for each in foreign if each in visible] == []
    assert own.one("invoiceId") in visible


async def test_a_cursor_of_another_account_shows_the_own_events(
    world: World, owned: tuple[Owned, Owned]
) -> None:
    """A cursor is a place in the own stream, whoever it came from. [spec 5.2, D-38]"""
    _, other = owned
    theirs = (await other.merchant.get("/v1/events?limit=3")).json["nextCursor"]

    found = (await world.get(f"/v1/events?cursor={theirs}&limit=1")).json["data"]

    assert found == (await world.events())[3:4]


async def test_references_of_clients_are_their_own(world: World) -> None:
    """One customer reference in two accounts is two customers, one Idempotency-Key two requests. [spec 5.2, D-14]"""
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


async def test_a_key_of_one_account_opens_no_other(world: World) -> None:
    """A key whose account part is swapped for another's is no key. [spec 5.2, spec 5.3]"""
    other = await world.another()
    mine, theirs = world.api_key.split("_"), other.api_key.split("_")
    forged = "_".join([*mine[:2], theirs[2], *mine[3:]])

    answer = await world.get("/v1/integration", headers={"Authorization": f"Bearer {forged}"})

    assert (answer.status, answer.type) == (401, "engine.unauthorized")
