"""`fatura events tail` prints the events of a real API, and `fatura events resend` delivers them again."""

import asyncio
import json
import signal
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fatura.cli import app
from tests.support.fatura_processes import environment, run, running
from tests.support.listening import Api
from tests.support.push_steps import emit, event_at, register
from tests.support.receiver import Receiver
from tests.support.world import World, eventually


def variables(world: World, api: Api) -> dict[str, str]:
    return environment(FATURA_API_KEY=world.api_key, FATURA_API_URL=api.url)


@pytest.mark.faults
async def test_tail_prints_the_stream_from_a_number(world: World, api: Api) -> None:
    """[D-38, D-120]"""
    await world.enroll(await world.plan())
    await emit(world, 250)
    words = ("events", "tail", "--from", "2", "--no-follow", "--json")
    ended = await asyncio.to_thread(run, *words, env=variables(world, api))

    assert (ended.returncode, ended.stderr) == (0, "")
    assert [json.loads(line) for line in ended.stdout.splitlines()] == (await world.events())[1:]

    words = ("events", "tail", "--from", "1", "--type", "subscription.created", "--no-follow")
    ended = await asyncio.to_thread(run, *words, env=variables(world, api))
    (line,) = ended.stdout.splitlines()
    (event,) = await world.events("subscription.created")
    subscription = event["data"]["subscription"]
    assert line.split() == [
        "#1",
        event["createdAt"],
        "subscription.created",
        "subscription",
        subscription["id"],
        "active",
    ]


@pytest.mark.faults
async def test_tail_waits_for_new_events(world: World, api: Api, tmp_path: Path) -> None:
    """[D-38, D-120]"""
    await emit(world, 3)
    with running("events", "tail", env=variables(world, api), output=tmp_path / "tail.log") as tail:
        await eventually(lambda: "after number 3" in tail.said(), seconds=20)
        await emit(world, 2)
        await eventually(lambda: "#5" in tail.said(), seconds=20)
        assert await asyncio.to_thread(tail.stop, signal.SIGINT) == 0
    assert "#3" not in tail.said()
    assert "stopped; --from 6 continues from here" in tail.said()


@pytest.mark.faults
async def test_resend_delivers_events_again(world: World, api: Api, receiver: Receiver) -> None:
    """[D-39 redeliver, D-120]"""
    await register(world, receiver)
    await emit(world, 5)
    await world.run("push")
    receiver.forget()
    third = await event_at(world, 3)

    for words, numbers in (
        (("2", third["id"]), [2, 3]),
        (("--from", "4"), [4, 5]),
        (("--from", "1", "--to", "2", "--type", "invoice.payment_unexpected"), [1, 2]),
        (("--from", "1", "--type", "invoice.paid"), []),
    ):
        ended = await asyncio.to_thread(run, "events", "resend", *words, "--json", env=variables(world, api))
        assert ended.returncode == 0, ended.stderr
        assert [json.loads(line)["sequence"] for line in ended.stdout.splitlines()] == numbers
        assert f"{len(numbers)} event" in ended.stderr
        await world.run("push")
        assert sorted(receiver.sequences) == numbers
        receiver.forget()


@pytest.mark.faults
@pytest.mark.parametrize("named", ["99", "0", "x", "019a2f6e-1c3b-7d52-9f0a-6b1c2d3e4f50"])
async def test_resend_of_an_unknown_event_exits_with_1(
    world: World, api: Api, receiver: Receiver, named: str
) -> None:
    """[D-120]"""
    await register(world, receiver)
    await emit(world, 1)
    ended = await asyncio.to_thread(run, "events", "resend", named, env=variables(world, api))
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "fatura: " in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.faults
async def test_resend_without_a_webhook_says_what_to_do(world: World, api: Api) -> None:
    """[D-39 redeliver]"""
    await emit(world, 1)
    ended = await asyncio.to_thread(run, "events", "resend", "1", env=variables(world, api))
    assert ended.returncode == 1
    assert "PUT /v1/integration/webhook" in ended.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["tail", "--type", "invoice.payed"],
        ["tail", "--from", "0"],
        ["resend"],
        ["resend", "1", "--from", "2"],
        ["resend", "1", "--to", "2"],
        ["resend", "--from", "3", "--to", "2"],
    ],
    ids=" ".join,
)
def test_invalid_options_are_refused(words: list[str]) -> None:
    assert CliRunner().invoke(app, ["events", *words], env={"FATURA_API_KEY": "rk_test_x"}).exit_code == 2


def test_event_types_are_completed() -> None:
    shell = {
        "_FATURA_COMPLETE": "complete_bash",
        "COMP_WORDS": "fatura trigger invoice.part",
        "COMP_CWORD": "2",
    }
    completed = CliRunner().invoke(app, [], env=shell, prog_name="fatura")
    assert completed.output.split() == ["invoice.partially_paid"]
