"""While a connection is failing, Fatura sends it only probes (D-55). The API, events and the log show its health."""

import json
from datetime import datetime, timedelta
from typing import Any

import pytest

from fatura.domain.connection import Connection
from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import AuthFailedError, Charge, GatewayError, TransientError, UnknownOutcomeError
from fatura.views.integration import ConnectionView
from tests.support.captured_logs import captured_logs
from tests.support.event_fields import fields, fields_of_sample
from tests.support.expect import invalid
from tests.support.sandbox_steps import (
    connection_id,
    issued_invoice,
    now,
    pass_time,
    patch_connection,
    queue_fault,
    read,
    ready_invoice,
    skip_days,
)
from tests.support.unreadable import make_unusable, mend_connection
from tests.support.world import Json, World

MANY = 1000
"""More faults than any test uses up."""


RATE_LIMITED = {
    "code": "failed",
    "detail": "create_charge: the gateway cannot be reached, or accepts no calls now (HTTP 429)",
}


async def health(world: World) -> Json:
    return (await world.get("/v1/integration")).json["gateways"][0]["health"]


async def states(world: World) -> list[str]:
    return [each["health"]["state"] for each in (await world.get("/v1/integration")).json["gateways"]]


async def calls_made(world: World) -> int:
    """Return how many calls have ended with a queued fault."""
    (row,) = await world.sql("SELECT sum($1 - times_left)::int AS used FROM sandbox_fault", MANY)
    return row["used"]


async def repair(world: World) -> None:
    """End all queued faults."""
    await world.sql("UPDATE sandbox_fault SET times_left = 0")


async def generated(world: World, count: int) -> None:
    """Create `count` invoices that wait for their charges."""
    plan = await world.plan()
    for _ in range(count):
        await world.enroll(plan)
    await world.run("generation")


@pytest.mark.faults
async def test_a_failing_connection_gets_only_probes(world: World) -> None:
    """[D-55 failing]"""
    await generated(world, 10)
    await queue_fault(world, "create_charge", "rate_limited", times=MANY)
    assert await health(world) == {"state": "ok", "since": None, "error": None}

    await world.run("issuance", "gateway_probe")
    first_calls = await calls_made(world)
    shown = await health(world)
    await pass_time(world, hours=8)

    assert 3 <= first_calls <= 4, "no more calls after the failures"
    assert (shown["state"], shown["error"]) == ("failing", RATE_LIMITED)
    probes = await calls_made(world) - first_calls
    assert 8 * 4 <= probes <= 8 * 5 + 6, "one probe in 12 to 15 minutes, and a few more at first"
    assert {each["status"] for each in await world.invoices()} == {"ready"}
    assert await world.broken() == []


async def test_jitter_shortens_the_pause_before_a_probe(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[D-55 failing]"""
    monkeypatch.setattr("random.randint", lambda _low, high: high)
    await generated(world, 5)
    await queue_fault(world, "create_charge", "rate_limited", times=MANY)

    await world.run("issuance")

    [row] = await world.sql("SELECT next_probe_at - failing_since AS pause FROM connection_health")
    assert timedelta(seconds=24) <= row["pause"] < timedelta(seconds=30), "a fifth shorter than 30 s"


@pytest.mark.faults
async def test_a_successful_probe_lets_all_work_continue(world: World) -> None:
    """[D-55 failing]"""
    await generated(world, 100)
    await queue_fault(world, "create_charge", "rate_limited", times=MANY)
    await world.run("issuance", "gateway_probe")
    await repair(world)

    await pass_time(world, minutes=2)

    assert {each["status"] for each in await world.invoices()} == {"issued"}
    assert await health(world) == {"state": "ok", "since": None, "error": None}
    assert await world.events("connection.failing", "connection.recovered") == [], "it failed for a moment"


@pytest.mark.faults
async def test_an_hour_of_failures_is_reported_once(world: World) -> None:
    """[D-55 events]"""
    invoice = await ready_invoice(world)
    await queue_fault(world, "create_charge", "rate_limited", times=MANY)
    since = await now(world)
    await pass_time(world, days=1)
    await repair(world)
    await pass_time(world, hours=1)

    failing, recovered = await world.events("connection.failing", "connection.recovered")
    for event in (failing, recovered):
        assert fields(event) == fields_of_sample(event["type"])
    waited = datetime.fromisoformat(failing["createdAt"]) - since
    assert timedelta(hours=1) <= waited < timedelta(hours=1, minutes=5)
    assert failing["data"]["connection"]["connectionId"] == await connection_id(world)
    assert failing["data"]["connection"]["health"]["state"] == "failing"
    assert failing["data"]["error"] == RATE_LIMITED
    assert recovered["data"]["connection"]["health"] == {"state": "ok", "since": None, "error": None}
    assert (await read(world, invoice))["status"] == "issued"


SPELLINGS = ("SOUZA/ANA", "529.982.247-25", "ana.souza at example")


@pytest.mark.faults
@pytest.mark.parametrize("kind", [TransientError, UnknownOutcomeError, AuthFailedError])
async def test_the_texts_of_a_failing_gateway_stay_with_the_charges(
    world: World, monkeypatch: pytest.MonkeyPatch, kind: type[GatewayError]
) -> None:
    """In the gateway's error text, the payer's data is spelled differently from the data that Fatura stores.
    [D-229, D-231, D-55 health]
    """

    async def fail(_gateway: SandboxGateway, *_request: object) -> Charge:
        raise kind(f"cannot serve {' '.join(SPELLINGS)}", http_status=502)

    await generated(world, 1)
    for call in ("create_charge", "find_charges", "get_charge"):
        monkeypatch.setattr(SandboxGateway, call, fail)
    with captured_logs() as logs:
        await pass_time(world, days=1)

    [failing] = await world.events("connection.failing")
    assert failing["data"]["error"]["detail"].endswith("(HTTP 502)")
    stored = await world.sql("SELECT h.error_detail FROM connection_health h")
    for text in (json.dumps(failing), json.dumps(await health(world)), str(stored), logs.getvalue()):
        assert not [each for each in SPELLINGS if each in text], text


async def test_every_waiting_invoice_is_reported_as_delayed(world: World) -> None:
    """Fatura also reports the invoices that no probe has tried to issue. [D-34, D-55 failing]"""
    await generated(world, 12)
    await queue_fault(world, "create_charge", "rate_limited", times=MANY)
    since = await now(world)

    await pass_time(world, hours=3)

    delayed = await world.events("invoice.issue_delayed")
    assert len({each["data"]["invoice"]["id"] for each in delayed}) == len(delayed) == 12
    waited = [datetime.fromisoformat(each["createdAt"]) - since for each in delayed]
    assert timedelta(hours=1) <= min(waited) and max(waited) < timedelta(hours=2, minutes=15)  # noqa: PT018 - one range


@pytest.mark.faults
async def test_polls_that_fail_make_the_connection_failing(world: World) -> None:
    """After the recovery, every charge is polled. The log has one line for each change of health.

    [D-55 failing, D-35 polling]
    """
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await issued_invoice(world)
    await pass_time(world, days=3)  # the charge is due today, so it is polled every hour
    await queue_fault(world, "get_charge", "server_error", times=MANY)

    with captured_logs() as logged:
        await pass_time(world, days=1)
        assert (await health(world))["state"] == "failing"
        await repair(world)
        await pass_time(world, hours=2)

    lines = [json.loads(line) for line in logged.getvalue().splitlines()]
    assert [each["event"] for each in lines if each["event"].startswith("gateway.")] == [
        "gateway.connection_failing",
        "gateway.connection_recovered",
    ]
    assert (await read(world, invoice))["status"] == "overdue"
    assert [each["type"] for each in await world.events("connection.failing", "connection.recovered")] == [
        "connection.failing",
        "connection.recovered",
    ]


@pytest.mark.faults
async def test_polls_that_fail_while_charges_are_created_are_reported_once(world: World) -> None:
    """For more than three days, every poll fails, but charges are created. [D-55 reads, D-55 health]"""
    await world.set_up_gateway(behaviour="never_pay")
    plan = await world.plan()
    await issued_invoice(world)
    await pass_time(world, days=3)  # the charge is due today, so it is polled every hour
    await queue_fault(world, "get_charge", "server_error", times=MANY)
    since = await now(world)

    for _ in range(5):
        await world.enroll(plan)
        await pass_time(world, hours=1)
    for _ in range(3):
        await world.enroll(plan)
        await skip_days(world, 1)
    [failing] = await world.events("connection.failing", "connection.recovered")
    shown = await health(world)

    assert [each["status"] for each in await world.invoices()].count("ready") == 0
    waited = datetime.fromisoformat(failing["createdAt"]) - since
    assert timedelta(hours=1) <= waited < timedelta(hours=4)
    assert failing["data"]["error"]["detail"].startswith("get_charge: ")
    assert failing["data"]["connection"]["health"] == shown
    assert (shown["state"], shown["error"]) == ("failing", failing["data"]["error"])
    assert timedelta(0) <= datetime.fromisoformat(shown["since"]) - since <= timedelta(hours=1)
    await repair(world)
    await pass_time(world, hours=2)
    assert await health(world) == {"state": "ok", "since": None, "error": None}
    types = [each["type"] for each in await world.events("connection.failing", "connection.recovered")]
    assert types == ["connection.failing", "connection.recovered"]
    assert await world.broken() == []


async def test_another_connection_of_the_account_keeps_working(world: World) -> None:
    """[D-55 failing]"""
    plan = await world.plan()
    failing, sound = await connection_id(world), (await world.connect())["connectionId"]
    for _ in range(5):
        await world.enroll(plan, gatewayConnectionId=failing)
        await world.enroll(plan, gatewayConnectionId=sound)
    await world.run("generation")
    await queue_fault(world, "create_charge", "rate_limited", times=MANY)

    await world.run("issuance", "gateway_probe")

    statuses = [each["status"] for each in await world.invoices()]
    assert (statuses.count("issued"), statuses.count("ready")) == (5, 5)
    states = [each["health"]["state"] for each in (await world.get("/v1/integration")).json["gateways"]]
    assert states == ["failing", "ok"]


async def test_new_credentials_recover_a_connection_at_once(world: World) -> None:
    """[D-55 recovery]"""
    await generated(world, 10)
    await queue_fault(world, "create_charge", "rate_limited", times=MANY)
    await pass_time(world, hours=3)
    await repair(world)

    patched = await patch_connection(world, credentials={})
    await world.run("issuance")

    assert patched["health"]["state"] == "ok"
    assert {each["status"] for each in await world.invoices()} == {"issued"}
    assert (
        len(await world.events("connection.failing")) == len(await world.events("connection.recovered")) == 1
    )


async def test_other_changes_probe_a_failing_connection_now(world: World) -> None:
    """[D-55 recovery]"""
    await generated(world, 10)
    await queue_fault(world, "create_charge", "rate_limited", times=MANY)
    await pass_time(world, hours=3)
    await repair(world)

    patched = await patch_connection(world, settings={"maxInstallments": 6})
    await world.run("gateway_probe", "issuance")

    assert patched["health"]["state"] == "failing", "only a call shows that it works"
    assert {each["status"] for each in await world.invoices()} == {"issued"}


async def test_a_check_of_credentials_without_an_answer_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[D-61]"""
    monkeypatch.setattr("fatura.gateways.port.CALL_TIMEOUT_SECONDS", 0.1)
    await queue_fault(world, "all", "hang", times=1)
    refused = await world.patch(
        f"/v1/integration/gateways/{await connection_id(world)}", {"settings": {"maxInstallments": 6}}
    )
    assert invalid(refused) == {
        "credentials": "could not be checked at the gateway, try again: the gateway did not answer"
    }


async def test_an_inactive_connection_is_paused(world: World) -> None:
    """[D-55 health]"""
    paused = await patch_connection(world, active=False)
    assert (paused["health"]["state"], paused["health"]["error"]) == ("paused", None)
    assert paused["health"]["since"] is not None

    active = await patch_connection(world, active=True)
    assert active["health"] == {"state": "ok", "since": None, "error": None}


async def test_a_person_may_retry_at_a_failing_connection(world: World) -> None:
    """[D-34 retry, D-55 recovery]"""
    await generated(world, 5)
    await queue_fault(world, "create_charge", "rate_limited", times=MANY)
    await world.run("issuance", "gateway_probe")
    await repair(world)
    invoice = (await world.invoices())[-1]

    retried = await world.made(f"/v1/invoices/{invoice['id']}/retry-issuance")

    assert retried["status"] == "issued"
    assert (await health(world))["state"] == "ok"


async def test_a_connection_without_work_is_probed_by_its_credentials(world: World) -> None:
    """[D-55 failing]"""
    invoice = await ready_invoice(world)
    await queue_fault(world, "create_charge", "rate_limited", times=MANY)
    await pass_time(world, minutes=20)
    assert (await health(world))["state"] == "failing"
    await world.made(f"/v1/invoices/{invoice['id']}/cancel")

    await pass_time(world, minutes=20)

    assert (await health(world))["state"] == "ok"


async def test_a_connection_that_cannot_be_opened_delays_no_probe_of_others(world: World) -> None:
    """Fatura probes the broken connection again after the pause that follows a failed call. [D-55 failing, D-186]"""
    failing = await connection_id(world)
    await world.connect()
    await world.sql(
        """
        UPDATE connection_health h SET failures = 3, failing_since = g.created_at, next_probe_at = g.created_at,
            error_code = 'failed', error_detail = 'rate_limited'
        FROM gateway_connection g WHERE g.connection_id = h.connection_id
        """
    )
    await make_unusable(world, failing)

    with captured_logs() as logs:
        await world.run("gateway_probe")

    assert logs.getvalue().count("gateway.probe_put_off") == 1
    assert await states(world) == ["failing", "ok"]
    await mend_connection(world, failing)
    await pass_time(world, minutes=15)
    assert await states(world) == ["ok", "ok"]
    assert await world.broken() == []


async def test_a_failing_event_of_one_connection_delays_no_probe_of_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One connection cannot be opened, and its event `connection.failing` cannot be built. [D-55 failing, D-186]"""
    failing = await connection_id(world)
    await world.connect()
    await world.sql(
        """
        UPDATE connection_health h SET failures = 3, failing_since = g.created_at - interval '2 hours',
            next_probe_at = g.created_at, error_code = 'failed', error_detail = 'rate_limited'
        FROM gateway_connection g WHERE g.connection_id = h.connection_id
        """
    )
    await make_unusable(world, failing)
    build = ConnectionView.of

    def refuse_failing(connection: Connection, *args: Any, **options: Any) -> ConnectionView:
        assert str(connection.connection_id) != failing, "the event cannot be built"
        return build(connection, *args, **options)

    with captured_logs() as logs, monkeypatch.context() as patched:
        patched.setattr(ConnectionView, "of", refuse_failing)
        await world.run("gateway_probe")

    assert logs.getvalue().count("gateway.probe_not_put_off") == 1
    assert await states(world) == ["failing", "ok"]
    await mend_connection(world, failing)
    await world.sql("UPDATE connection_health SET lease_until = NULL")  # the lease has expired
    await pass_time(world, minutes=15)
    assert await states(world) == ["ok", "ok"]
    assert await world.broken() == []
