"""Polls share the budget of a connection with looks. Neither kind of call stops the other (D-162, D-55)."""

from uuid import uuid4

import pytest

from fatura.usecases import due_reconciliation
from fatura.usecases.transaction import load_account
from tests.support.sandbox_steps import connection_id, read
from tests.support.webhook_steps import Hook, issued_with_webhooks, paid_unnoticed
from tests.support.world import World


@pytest.mark.parametrize("polls_per_minute", [60, 300])
@pytest.mark.parametrize("seconds", [1, 3])
async def test_looks_do_not_stop_polls(world: World, seconds: int, polls_per_minute: int) -> None:
    """A worker runs the lane every `seconds` seconds. Looks at unknown charges are always due. [D-55 budget]"""
    issued = await issued_with_webhooks(world)
    connection = await connection_id(world)
    await paid_unnoticed(world, issued)
    await world.sql("UPDATE connection_health SET polls_per_minute = $1", polls_per_minute)
    await world.sql("UPDATE invoice SET next_attempt_at = created_at")
    account = await load_account(world.deps, world.account_id)
    for _ in range(4):
        for _ in range(polls_per_minute // 60):
            body = f'{{"chargeId": "sbx_{uuid4().hex}"}}'.encode()
            assert (await Hook(body, str(world.account_id), connection).send(world)).status == 200
        await world.sql("UPDATE unmatched_charge SET next_look_at = found_at WHERE unknown_since IS NULL")
        await due_reconciliation.run(world.deps, account, limit=64)
        await pass_real_time(world, seconds=seconds)
    assert (await read(world, issued))["status"] == "paid"


async def pass_real_time(world: World, *, seconds: int) -> None:
    await world.sql(
        """
        UPDATE connection_health SET polls_from = polls_from - make_interval(secs => $1),
            looks_from = looks_from - make_interval(secs => $1)
        """,
        seconds,
    )


async def test_polls_do_not_stop_looks(world: World) -> None:
    """The budget is one call per second, and a poll is always due. [D-55 budget]"""
    issued = await issued_with_webhooks(world)
    connection = await connection_id(world)
    await world.sql("UPDATE connection_health SET polls_per_minute = 60")
    account = await load_account(world.deps, world.account_id)
    for _ in range(2):
        body = f'{{"chargeId": "sbx_{uuid4().hex}"}}'.encode()
        assert (await Hook(body, str(world.account_id), connection).send(world)).status == 200
    for _ in range(4):
        await world.sql("UPDATE unmatched_charge SET next_look_at = found_at WHERE unknown_since IS NULL")
        await world.sql("UPDATE invoice SET next_attempt_at = created_at")
        await due_reconciliation.run(world.deps, account, limit=64)
        await pass_real_time(world, seconds=3)
    assert await world.sql("SELECT FROM unmatched_charge WHERE unknown_since IS NULL") == []
    assert (await read(world, issued))["status"] == "issued"


@pytest.mark.parametrize(("polls", "looks"), [("1 minute", "40 days"), ("40 days", "1 minute")])
async def test_a_time_from_a_wrong_clock_frees_no_budget_for_looks(
    world: World, polls: str, looks: str
) -> None:
    """A host whose clock was far ahead stored one of the two times. The other time is right. [D-5, D-55 budget]"""
    await issued_with_webhooks(world)
    connection = await connection_id(world)
    body = f'{{"chargeId": "sbx_{uuid4().hex}"}}'.encode()
    assert (await Hook(body, str(world.account_id), connection).send(world)).status == 200
    await world.sql("UPDATE unmatched_charge SET next_look_at = found_at")
    spent = "UPDATE connection_health SET polls_per_minute = 60, polls_from = now() + $1::text::interval, "
    await world.sql(spent + "looks_from = now() + $2::text::interval", polls, looks)
    account = await load_account(world.deps, world.account_id)

    await due_reconciliation.run(world.deps, account, limit=64)

    assert await world.sql("SELECT FROM unmatched_charge WHERE unknown_since IS NOT NULL") == []
    await world.sql(
        "UPDATE connection_health SET polls_from = now(), looks_from = now() + interval '40 days'"
    )
    await due_reconciliation.run(world.deps, account, limit=64)
    assert len(await world.sql("SELECT FROM unmatched_charge WHERE unknown_since IS NOT NULL")) == 1
