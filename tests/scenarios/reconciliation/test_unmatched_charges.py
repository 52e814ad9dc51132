"""If a webhook names a charge that the engine has not stored, Fatura looks at the charge (D-162).

The number of waiting looks is limited.
"""

import json
import time
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import uuid4

import pytest

from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import Charge
from fatura.signature import sign
from fatura.usecases.payments import second_charges
from fatura.usecases.reconciliation.scheduled_looks import MAX_WAITING
from tests.support.captured_logs import captured_logs
from tests.support.sandbox_steps import (
    charges,
    connection_id,
    fail_for,
    issued_invoice,
    now,
    pass_time,
    patch_connection,
    pay_silently,
    queue_fault,
    read,
)
from tests.support.sweep_steps import (
    DOUBLE_ID,
    double_silently,
    second_charge_events,
    share_provider_account,
    sweep,
)
from tests.support.world import Json, World

SECRET = "a-secret-of-sandbox"


@dataclass(slots=True)
class Asked:
    """Records the ids of the charges that the engine read from the gateway."""

    ids: list[str] = field(default_factory=list[str])


@pytest.fixture
async def issued(world: World) -> Json:
    await world.set_up_gateway(webhookSecret=SECRET, behaviour="never_pay")
    invoice = await issued_invoice(world)
    await world.run()
    return invoice


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    found, get_charge = Asked(), SandboxGateway.get_charge

    async def counted(self: SandboxGateway, charge_id: str) -> Charge:
        found.ids.append(charge_id)
        return await get_charge(self, charge_id)

    monkeypatch.setattr(SandboxGateway, "get_charge", counted)
    return found


async def notify(world: World, charge_id: str, *, secret: str = SECRET) -> int:
    """Send a webhook that names a charge, and return the status of the answer."""
    body = json.dumps({"chargeId": charge_id}).encode()
    response = await world._client.post(
        f"/gateways/{world.account_id}/{await connection_id(world)}/webhook",
        content=body,
        headers={"X-Sandbox-Signature": sign(body, [secret], timestamp=int(time.time()))},
    )
    return response.status_code


async def looked_at(world: World) -> None:
    """Make all scheduled looks due, and run the lane `reconciliation`."""
    await world.sql("UPDATE unmatched_charge SET next_look_at = '2000-01-01' WHERE next_look_at IS NOT NULL")
    await world.run("reconciliation")


async def waiting(world: World) -> list[Json]:
    return [dict(row) for row in await world.sql("SELECT * FROM unmatched_charge ORDER BY gateway_charge_id")]


async def test_an_unpaid_second_charge_is_canceled_and_reported(world: World, issued: Json) -> None:
    """[D-162, D-125]"""
    second = await double_silently(world, issued)
    assert await notify(world, second) == 200

    await pass_time(world, minutes=2)

    states = {each["chargeId"]: each["status"] for each in await charges(world)}
    assert states == {issued["gatewayInvoiceId"]: "open", second: "canceled"}
    assert await second_charge_events(world) == [second]
    assert await world.broken() == []


async def test_the_payment_of_a_second_charge_is_recorded(world: World, issued: Json) -> None:
    """[D-162, D-50]"""
    second = await double_silently(world, issued, status="paid")
    await notify(world, second)
    await pass_time(world, minutes=2)

    shown = await read(world, issued)
    assert (shown["status"], [each["chargeId"] for each in shown["payments"]]) == ("paid", [None])
    assert await second_charge_events(world) == [second]
    assert await world.broken() == []


async def test_a_later_webhook_about_a_second_charge_brings_its_payment(world: World, issued: Json) -> None:
    """[D-162, D-50]"""
    second = await double_silently(world, issued)
    await queue_fault(world, "cancel_charge", "rejected")
    await notify(world, second)
    await looked_at(world)
    await pay_silently(world, second)
    for _ in range(2):
        await notify(world, second)
        await looked_at(world)
    assert (await read(world, issued))["paidCents"] == 9990
    assert await second_charge_events(world) == [second] * 2, "once open, once paid"


async def test_a_webhook_before_the_answer_is_recorded_costs_no_call(
    world: World, issued: Json, asked: Asked
) -> None:
    """The webhook for the engine's own new charge arrives before the engine has recorded the charge's id. [D-162]"""
    await world.sql(
        """
        INSERT INTO unmatched_charge (account_id, connection_id, gateway_charge_id, found_at, next_look_at)
        SELECT account_id, connection_id, gateway_invoice_id, created_at, created_at FROM charge
        """
    )
    await world.run("reconciliation")
    assert await waiting(world) == []
    assert asked.ids == [issued["gatewayInvoiceId"]], "its poll alone"
    assert await second_charge_events(world) == []


async def test_a_strangers_charge_is_looked_at_and_forgotten(
    world: World, issued: Json, asked: Asked
) -> None:
    """[D-162]"""
    await double_silently(world, issued)
    await world.sql("UPDATE sandbox_charge SET invoice_id = gen_random_uuid() WHERE is_double")
    await notify(world, DOUBLE_ID)
    await looked_at(world)

    assert asked.ids == [DOUBLE_ID]
    assert await waiting(world) == []
    assert [each["status"] for each in await charges(world)] == ["open", "open"]
    assert await second_charge_events(world) == []


async def test_strangers_webhooks_are_limited(world: World, issued: Json, asked: Asked) -> None:
    """At most MAX_WAITING unknown charges wait for a look. It follows about a minute after the webhook.

    A repeated webhook adds no look. [D-162]
    """
    ids = [f"sbx_{uuid4().hex}" for _ in range(MAX_WAITING + 5)]
    with captured_logs() as logs:
        for each in (*ids, *ids):
            assert await notify(world, each) == 200
    assert len(await waiting(world)) == MAX_WAITING
    assert "gateway.webhook_charges_dropped" in logs.getvalue()
    soonest = min(each["next_look_at"] for each in await waiting(world))
    assert soonest - await now(world) > timedelta(seconds=50)

    await looked_at(world)
    assert len(asked.ids) == MAX_WAITING
    assert issued["status"] == "issued"


async def test_a_forged_webhook_schedules_nothing(world: World, issued: Json) -> None:
    """[D-162, D-35 webhook]"""
    second = await double_silently(world, issued)
    assert await notify(world, second, secret="another-secret-altogether") == 404
    assert await waiting(world) == []


@pytest.mark.parametrize("fault", ["server_error", "rate_limited"])
async def test_a_gateway_that_does_not_answer_is_asked_again(world: World, issued: Json, fault: str) -> None:
    """[D-162]"""
    second = await double_silently(world, issued)
    await notify(world, second)
    await queue_fault(world, "get_charge", fault)
    await looked_at(world)
    assert await second_charge_events(world) == []

    await pass_time(world, minutes=11)
    assert await second_charge_events(world) == [second]


async def test_a_look_that_fails_does_not_stop_the_others(
    world: World, issued: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[D-162]"""
    second = await double_silently(world, issued)
    get_charge = SandboxGateway.get_charge

    async def broken(self: SandboxGateway, charge_id: str) -> Charge:
        if charge_id != second:
            raise ZeroDivisionError
        return await get_charge(self, charge_id)

    monkeypatch.setattr(SandboxGateway, "get_charge", broken)
    for each in (f"sbx_{uuid4().hex}", second):
        await notify(world, each)
    await looked_at(world)
    assert await second_charge_events(world) == [second]


async def test_an_account_that_is_being_restored_cancels_nothing(world: World, issued: Json) -> None:
    """The restore may still match the charge to an invoice. [D-162, D-123]"""
    second = await double_silently(world, issued)
    await notify(world, second)
    await world.sql("UPDATE account SET recovering_since = now()")
    await looked_at(world)
    assert [each["status"] for each in await charges(world)] == ["open", "open"]
    await world.sql("UPDATE account SET recovering_since = NULL")
    await looked_at(world)
    assert await second_charge_events(world) == [second]


async def test_an_inactive_connection_is_asked(world: World, issued: Json) -> None:
    """[D-162, D-55 inactive]"""
    second = await double_silently(world, issued)
    await patch_connection(world, active=False)
    await notify(world, second)
    await looked_at(world)
    assert await second_charge_events(world) == [second]


async def test_a_spent_budget_delays_the_looks(world: World, issued: Json, asked: Asked) -> None:
    """[D-162, D-55 budget]"""
    second = await double_silently(world, issued)
    await notify(world, second)
    await world.sql(
        "UPDATE connection_health SET polls_per_minute = 60, polls_from = now() + interval '1 minute'"
    )
    await looked_at(world)
    assert asked.ids == []
    assert len(await waiting(world)) == 1


async def test_only_the_connection_of_the_invoice_records_a_second_charge(
    world: World, issued: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both connections belong to one account at the provider, and each gets a webhook. [D-162, D-50]"""
    other = await share_provider_account(world, monkeypatch)
    second = await double_silently(world, issued, status="paid")
    await notify(world, second)
    await world.sql(
        "INSERT INTO unmatched_charge (account_id, connection_id, gateway_charge_id, found_at, next_look_at) "
        "SELECT account_id, $1::text::uuid, gateway_charge_id, found_at, next_look_at FROM unmatched_charge",
        other,
    )
    await looked_at(world)

    shown = await read(world, issued)
    assert (shown["status"], shown["paidCents"]) == ("paid", 9990)
    (kept,) = await waiting(world)
    assert str(kept["connection_id"]) != other


@pytest.mark.parametrize("is_killed", [False, True])
async def test_the_cancellation_of_a_second_charge_is_repeated(
    world: World, issued: Json, monkeypatch: pytest.MonkeyPatch, *, is_killed: bool
) -> None:
    """The first cancellation fails, or the worker dies before the cancellation. [D-162, D-125]"""
    await world.sql("UPDATE connection_sweep SET next_sweep_at = '2900-01-01'")
    second = await double_silently(world, issued)
    await notify(world, second)
    if is_killed:

        async def dies(*_: object) -> None:
            raise RuntimeError("the worker dies")

        with monkeypatch.context() as patched:
            patched.setattr(second_charges, "cancel", dies)
            await pass_time(world, minutes=2)
    else:
        await queue_fault(world, "cancel_charge", "rate_limited")
        await pass_time(world, minutes=2)
    assert {each["status"] for each in await charges(world)} == {"open"}

    await pass_time(world, minutes=11)

    states = {each["chargeId"]: each["status"] for each in await charges(world)}
    assert states == {issued["gatewayInvoiceId"]: "open", second: "canceled"}
    assert await second_charge_events(world) == [second]


@pytest.mark.faults
async def test_a_second_charge_that_cannot_be_canceled_is_looked_at_ever_more_rarely(
    world: World, issued: Json, asked: Asked
) -> None:
    """A webhook still causes a look within two minutes. The looks end after 400 days. [D-162, D-125]"""
    await world.sql("UPDATE connection_sweep SET next_sweep_at = '2900-01-01'")
    await fail_for(world, "cancel_charge", "rejected", seconds=3600)
    second = await double_silently(world, issued)
    await notify(world, second)
    await pass_time(world, days=1)
    assert asked.ids.count(second) == 9, "the pauses double"
    await pass_time(world, days=3)
    assert asked.ids.count(second) == 12, "one look a day"

    await world.delete(f"/v1/sandbox/faults?connectionId={await connection_id(world)}")
    await pay_silently(world, second)
    await notify(world, second)
    await pass_time(world, minutes=2)
    assert (await read(world, issued))["paidCents"] == 9990

    await fail_for(world, "cancel_charge", "rejected", seconds=3600)
    await world.sql("UPDATE sandbox_charge SET status = 'open', entries = '[]' WHERE charge_id = $1", second)
    await world.sql("UPDATE unmatched_charge SET state = 'open', found_at = found_at - interval '400 days'")
    await looked_at(world)
    [kept] = await waiting(world)
    assert kept["next_look_at"] - await now(world) < timedelta(days=2), "the payment's first look"
    await world.sql("UPDATE unmatched_charge SET paid_at = NULL")
    await looked_at(world)
    assert [each["next_look_at"] for each in await waiting(world)] == [None]
    assert await second_charge_events(world) == [second] * 2, "once open, once paid"


async def test_connections_with_one_account_at_the_provider_record_a_payment_once(
    world: World, issued: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both connections list the second charge, which is half paid. [D-161, D-162, D-50]"""
    await share_provider_account(world, monkeypatch)
    second = await double_silently(world, issued, status="paid")
    await world.sql(
        "UPDATE sandbox_charge SET entries = jsonb_set(entries, '{0,amount_cents}', '5000') WHERE is_double"
    )
    for _ in range(2):
        await sweep(world)

    shown = await read(world, issued)
    assert (shown["status"], shown["paidCents"]) == ("issued", 5000)
    assert await second_charge_events(world) == [second]
    assert await world.broken() == []
