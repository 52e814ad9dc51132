"""A host whose clock was ahead has stored a merchant's request. The engine keeps the request (D-5, D-171)."""

import pytest

from tests.scenarios.merchant_actions.test_refused_later_requests import (
    check_continued,
    lose_answer,
    refuse,
    send,
    stored_kinds,
)
from tests.support.cancellation_steps import around_the_cancellation, end_requests
from tests.support.reissue_steps import unpaid_invoice
from tests.support.sandbox_steps import charges, move, pass_time, queue_fault
from tests.support.world import World

_SET_AHEAD = """
    UPDATE merchant_request SET in_progress_until = in_progress_until + interval '10 minutes'
    WHERE number = (SELECT max(number) FROM merchant_request)
"""


@pytest.mark.parametrize("action", ["payment", "reissue"])
async def test_a_request_with_a_wrong_time_is_kept(world: World, action: str) -> None:
    """A poll finds the charge open. The gateway cancels it only afterwards. [D-5, D-171]"""
    invoice = await unpaid_invoice(world)
    await queue_fault(world, "cancel_charge", "timeout_before")
    assert (await send(world, invoice, action, key="a")).status == 409
    await world.sql(_SET_AHEAD)

    await pass_time(world, minutes=2)

    assert await stored_kinds(world) == [action]
    [stored] = await world.sql(
        "SELECT in_progress_until <= now() + interval '40 seconds' AS is_near FROM merchant_request"
    )
    assert stored["is_near"]
    [charge] = await charges(world)
    await move(world, charge, "cancel")
    await end_requests(world)
    await check_continued(world, invoice, action)


@pytest.mark.parametrize("later", ["payment", "reissue"])
@pytest.mark.parametrize("action", ["payment", "reissue"])
async def test_a_poll_before_the_refusal_applies_no_request_with_a_wrong_time(
    world: World, action: str, later: str
) -> None:
    """A poll finds the charge canceled before the engine knows that the later request is refused. [D-5, D-171]"""
    invoice = await lose_answer(world, action)

    async def poll() -> None:
        await world.sql(_SET_AHEAD)
        await world.sql("UPDATE invoice SET next_attempt_at = created_at")
        assert await world.run("reconciliation") > 0

    with around_the_cancellation(after=poll):
        await refuse(world, invoice, later, key="b")

    await check_continued(world, invoice, action)
