"""`fatura trigger` causes real events in a sandbox account."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import pytest
from typer.testing import CliRunner

from fatura.cli import app
from fatura.cli.client import ApiError, connect
from fatura.cli.trigger.command import cause_event
from fatura.cli.trigger.recipes import RECIPES
from fatura.domain.credentials import Mode
from fatura.domain.events import CATALOGUE
from tests.support.event_fields import fields, fields_of_sample
from tests.support.fatura_processes import environment, run
from tests.support.listening import Api
from tests.support.world import World


@asynccontextmanager
async def working(world: World) -> AsyncGenerator[None]:
    """Run all lanes again and again during the block, as a worker does."""

    async def work() -> None:
        while True:
            await world.run()
            await asyncio.sleep(0.02)

    task = asyncio.create_task(work())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest.mark.parametrize("event", RECIPES)
async def test_each_event_is_caused_by_real_acts(world: World, api: Api, event: str) -> None:
    """[D-120, D-36, D-37, D-46]"""
    async with working(world), connect(api.url, world.api_key) as client:
        await world.enroll(await world.plan())
        caused = await cause_event(client, event, connection=None)

    assert caused in await world.events(event)
    if (
        event != "invoice.issue_failed"
    ):  # the sample is about a refused charge, the event about a second charge
        assert fields(caused) == fields_of_sample(event)
    assert await world.broken() == []


@pytest.mark.faults
async def test_the_command_prints_the_event(world: World, api: Api) -> None:
    """A second run uses the same plan. [D-120]"""
    env = environment(FATURA_API_KEY=world.api_key, FATURA_API_URL=api.url)
    async with working(world):
        ended = await asyncio.to_thread(run, "trigger", "invoice.paid", "--json", env=env)
        again = await asyncio.to_thread(run, "trigger", "subscription.created", env=env)

    assert (ended.returncode, again.returncode) == (0, 0), ended.stderr + again.stderr
    assert [json.loads(ended.stdout)] == await world.events("invoice.paid")
    assert "POST /v1/plans\n" in ended.stderr
    assert "POST /v1/plans" not in again.stderr
    assert again.stdout.split()[1] == "subscription.created"


async def test_a_live_account_is_refused(world: World, api: Api) -> None:
    """[D-120, D-44]"""
    live = await world.another(Mode.LIVE)
    async with connect(api.url, live.api_key) as client:
        with pytest.raises(ApiError, match="sandbox accounts only"):
            await cause_event(client, "invoice.paid", connection=None)
    assert await live.events() == []


async def test_an_unknown_connection_is_refused(world: World, api: Api) -> None:
    async with connect(api.url, world.api_key) as client:
        with pytest.raises(ApiError, match="no such active gateway connection"):
            await cause_event(client, "invoice.paid", connection="x")
    assert await world.events() == []


def test_the_list_shows_every_event_type() -> None:
    listed = CliRunner().invoke(app, ["trigger", "--list"])
    assert listed.exit_code == 0
    assert [line.split()[0] for line in listed.output.splitlines()] == list(CATALOGUE)


def test_the_error_for_an_unreachable_api_names_the_option() -> None:
    """[D-253]"""
    refused = CliRunner().invoke(
        app, ["trigger", "invoice.paid", "--api-key", "rk_test_x", "--api", "http://127.0.0.1:9"]
    )
    assert refused.exit_code == 1
    assert "(choose the API with --api or FATURA_API_URL)" in refused.output


@pytest.mark.parametrize("event", ["webhook.disabled", "invoice.payed"])
def test_other_events_are_refused(event: str) -> None:
    refused = CliRunner().invoke(app, ["trigger", event, "--api-key", "rk_test_x"])
    assert refused.exit_code == 2
    assert "--list" in refused.output
