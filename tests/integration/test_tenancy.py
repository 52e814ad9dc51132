"""Lists and the event stream show only the account's own data. tests/faults/probes sends ids of other accounts."""

import pytest

from tests.support.account_resources import Owned, everything_of, own_everything
from tests.support.world import World


@pytest.fixture
async def owned(world: World) -> tuple[Owned, Owned]:
    """Two accounts, each with resources of every type."""
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
