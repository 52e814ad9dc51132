"""Each night, Fatura compares a connection's charges with the provider's list, in both directions (D-161)."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import Capabilities, Charge
from fatura.usecases.reconciliation import sweep as sweeping
from tests.support.captured_logs import captured_logs
from tests.support.sandbox_steps import (
    charges,
    connection_id,
    issued_invoice,
    now,
    pass_time,
    patch_connection,
    pay_silently,
    queue_fault,
    read,
    ready_invoice,
    refund_silently,
    stored_charges,
)
from tests.support.sweep_steps import double_silently, second_charge_events, stored_sweep, sweep
from tests.support.world import Json, World


@pytest.fixture
async def issued(world: World) -> Json:
    """Return an issued invoice whose next poll is a day away, and whose charge nobody pays."""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await issued_invoice(world)
    await world.run()
    return invoice


async def test_a_payment_that_nobody_reported_is_found(world: World, issued: Json) -> None:
    """[D-161, D-50]"""
    await pay_silently(world)
    await world.run("reconciliation")
    assert (await read(world, issued))["status"] == "issued"

    await sweep(world)

    shown = await read(world, issued)
    assert (shown["status"], shown["paidCents"]) == ("paid", 9990)
    assert await world.broken() == []


async def test_a_refund_that_nobody_reported_is_found(world: World, issued: Json) -> None:
    """The next poll of the paid charge would be a day away. [D-161, D-50]"""
    await pay_silently(world)
    await sweep(world)
    await refund_silently(world)

    await sweep(world)

    assert (await read(world, issued))["refundedCents"] == 9990
    assert len(await world.events("invoice.refunded")) == 1
    assert await world.broken() == []


async def test_a_charge_that_was_canceled_at_the_gateway_is_found(world: World, issued: Json) -> None:
    """[D-161, D-27]"""
    await world.sql("UPDATE sandbox_charge SET status = 'canceled'")
    await sweep(world)
    assert (await read(world, issued))["status"] == "canceled"


async def test_an_unpaid_second_charge_is_canceled_and_reported_once(world: World, issued: Json) -> None:
    """[D-161, D-125]"""
    second = await double_silently(world, issued)

    for _ in range(3):
        await sweep(world)

    states = {each["chargeId"]: each["status"] for each in await charges(world)}
    assert states == {issued["gatewayInvoiceId"]: "open", second: "canceled"}
    assert await second_charge_events(world) == [second]
    assert await world.broken() == []


async def test_a_second_charge_that_cannot_be_canceled_is_tried_every_night(
    world: World, issued: Json
) -> None:
    """[D-161]"""
    second = await double_silently(world, issued)
    await queue_fault(world, "cancel_charge", "rejected")
    await sweep(world)
    assert {each["status"] for each in await charges(world)} == {"open"}

    await sweep(world)

    assert sorted(each["status"] for each in await charges(world)) == ["canceled", "open"]
    assert await second_charge_events(world) == [second]


async def test_the_payment_of_a_second_charge_is_recorded_and_reported_once(
    world: World, issued: Json
) -> None:
    """[D-161, D-50]"""
    second = await double_silently(world, issued, status="paid")

    for _ in range(3):
        await sweep(world)

    shown = await read(world, issued)
    assert (shown["status"], shown["paidCents"]) == ("paid", 9990)
    assert [each["chargeId"] for each in shown["payments"]] == [None]
    assert await second_charge_events(world) == [second]
    assert len(await world.events("invoice.payment_unexpected", "invoice.paid")) == 2
    assert [each["status"] for each in await charges(world)] == ["paid", "canceled"]
    assert await world.broken() == []


async def test_a_charge_whose_answer_was_lost_is_not_a_second_charge(world: World) -> None:
    """The list shows the charge before the engine has stored the charge's id. [D-161, D-33]"""
    invoice = await ready_invoice(world)
    await queue_fault(world, "create_charge", "timeout_after")
    await world.run("issuance")
    assert [each["stage"] for each in await stored_charges(world)] == ["unknown"]

    await sweep(world)
    await world.run("issuance")

    shown = await read(world, invoice)
    assert (shown["status"], len(await charges(world))) == ("issued", 1)
    assert await second_charge_events(world) == []
    assert await world.broken() == []


async def test_a_charge_that_the_list_does_not_show_is_asked_for(world: World, issued: Json) -> None:
    """A charge that the list lacks is polled. It counts as missing after two polls an hour apart. [D-161, D-56]"""
    await pass_time(world, hours=3)
    await world.sql("DELETE FROM sandbox_charge")

    await sweep(world)

    (charge,) = await stored_charges(world)
    assert (charge["stage"], charge["unknown_since"] is None) == ("open", False)
    await pass_time(world, hours=1.1)
    assert len(await world.events("invoice.charge_missing")) == 1
    assert (await read(world, issued))["charges"][0]["status"] == "not_made"


async def test_a_charge_that_the_list_shows_is_not_asked_for(
    world: World, issued: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[D-161]"""
    await pass_time(world, hours=3)
    asked: list[str] = []

    async def get_charge(_self: SandboxGateway, charge_id: str) -> Charge:
        asked.append(charge_id)
        raise AssertionError

    monkeypatch.setattr(SandboxGateway, "get_charge", get_charge)
    await sweep(world)
    await sweep(world)
    assert asked == []
    (charge,) = await stored_charges(world)
    assert charge["listed_at"] is not None
    assert issued["status"] == "issued"


async def test_a_paid_charge_that_vanishes_is_logged(world: World, issued: Json) -> None:
    """The sweep logs a paid charge if the list has not shown this charge for more than six days. [D-161]"""
    await pay_silently(world)
    await pass_time(world, hours=3)
    await sweep(world)
    await world.sql("DELETE FROM sandbox_charge")
    for days, found in ((1, 0), (6, 1)):
        await world.sql("UPDATE charge SET listed_at = listed_at - $1::interval", timedelta(days=days))
        with captured_logs() as logs:
            await sweep(world)
        assert logs.getvalue().count("sweep.charge_not_listed") == found
    assert (await read(world, issued))["status"] == "paid"
    assert await world.broken() == []


async def test_the_connections_of_one_account_at_the_provider_do_not_mix(world: World, issued: Json) -> None:
    """The list of the second connection contains the charges of the first connection.

    Fatura must not treat these charges as second charges. [D-161]
    """
    other = (await world.connect(behaviour="never_pay"))["connectionId"]
    await world.sql("UPDATE sandbox_charge SET connection_id = $1", other)
    await pay_silently(world)

    await sweep(world)

    assert await world.sql("SELECT FROM unmatched_charge") == []
    assert [each["status"] for each in await charges(world)] == ["paid"]
    assert await second_charge_events(world) == []
    assert issued["status"] == "issued"


async def test_charges_of_another_system_are_left_alone(world: World, issued: Json) -> None:
    """If a charge names no invoice of this account, it may belong to another installation. [D-161]"""
    await double_silently(world, issued)
    await world.sql("UPDATE sandbox_charge SET invoice_id = gen_random_uuid() WHERE is_double")
    with captured_logs() as logs:
        await sweep(world)
    assert [each["status"] for each in await charges(world)] == ["open", "open"]
    assert await second_charge_events(world) == []
    (found,) = [json.loads(line) for line in logs.getvalue().splitlines() if "sweep.found" in line]
    assert found["without_invoice"] == 1


async def test_an_invalid_charge_does_not_stop_the_others(world: World, issued: Json) -> None:
    """[D-161, D-50]"""
    await issued_invoice(world)
    await pay_silently(world, issued["gatewayInvoiceId"])
    await world.sql(
        "UPDATE sandbox_charge SET amount_cents = -1 WHERE charge_id <> $1", issued["gatewayInvoiceId"]
    )
    await sweep(world)
    assert (await read(world, issued))["status"] == "paid"


async def test_an_interrupted_sweep_continues_where_it_was(
    world: World, issued: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run stops in the middle of the list, because its time limit is zero. No charge is left out. [D-161]"""
    for _ in range(4):
        await pass_time(world, minutes=10)
        await issued_invoice(world)
    await world.sql("UPDATE connection_sweep SET next_sweep_at = '2000-01-01'")
    await pay_silently(world)
    monkeypatch.setattr(sweeping, "RUN_SECONDS", 0)
    monkeypatch.setattr(sweeping, "PAGE", 1)
    since: list[datetime] = []
    listed = SandboxGateway.charges_since

    def charges_since(self: SandboxGateway, at: datetime) -> AsyncIterator[Charge]:
        since.append(at)
        return listed(self, at)

    monkeypatch.setattr(SandboxGateway, "charges_since", charges_since)
    await world.run("sweep")

    assert len(since) >= 5
    assert since == sorted(set(since))
    row = await stored_sweep(world)
    assert (row["started_at"], row["listed_to"], row["lease_until"]) == (None, None, None)
    await world.run("reconciliation")
    assert {each["status"] for each in await world.invoices()} == {"paid"}
    assert issued["status"] == "issued"


@pytest.mark.parametrize("limit", [("RUN_SECONDS", 0), ("LONGEST_PAUSE", timedelta())])
async def test_many_charges_of_one_instant_do_not_stop_a_sweep(
    world: World, issued: Json, monkeypatch: pytest.MonkeyPatch, limit: tuple[str, object]
) -> None:
    """A run reads all charges with the creation time of its first charge, even after its limits. [D-161]"""
    for _ in range(3):
        await issued_invoice(world)
    await world.sql("UPDATE sandbox_charge SET created_at = '2033-11-20T15:00:00Z'")
    await pay_silently(world)
    monkeypatch.setattr(sweeping, *limit)
    monkeypatch.setattr(sweeping, "PAGE", 1)
    await sweep(world)
    assert {each["status"] for each in await world.invoices()} == {"paid"}
    assert issued["status"] == "issued"


async def test_a_sweep_after_a_gap_covers_the_gap(world: World, issued: Json) -> None:
    """The sweep's window is counted back from the most recent complete sweep, not from now. [D-161]"""
    await world.sql("UPDATE sandbox_charge SET created_at = created_at - interval '200 days'")
    await pay_silently(world)
    await world.sql("UPDATE connection_sweep SET swept_to = $1", await now(world) - timedelta(days=60))
    await sweep(world)
    assert (await read(world, issued))["status"] == "issued"

    await world.sql("UPDATE connection_sweep SET swept_to = $1", await now(world) - timedelta(days=80))
    await sweep(world)
    assert (await read(world, issued))["status"] == "paid"


async def test_a_provider_that_does_not_answer_is_asked_again(world: World, issued: Json) -> None:
    """The failure counts as a failed call of the connection. [D-161, D-55 failing]"""
    await pay_silently(world)
    await queue_fault(world, "list_charges", "server_error")
    await sweep(world)
    row = await stored_sweep(world)
    assert row["next_sweep_at"] - await now(world) > timedelta(minutes=9)
    (health,) = await world.sql("SELECT failures FROM connection_health")
    assert (health["failures"], (await read(world, issued))["status"]) == (1, "issued")

    await sweep(world)
    assert (await read(world, issued))["status"] == "paid"


async def test_a_failing_connection_is_not_swept(world: World, issued: Json) -> None:
    """[D-161, D-55 failing]"""
    await pay_silently(world)
    await world.sql(
        """
        UPDATE connection_health SET failures = 3, failing_since = '2000-01-01', next_probe_at = '2999-01-01',
            error_code = 'timeout', error_detail = 'no answer'
        """
    )
    await sweep(world)
    row = await stored_sweep(world)
    assert (row["started_at"], row["lease_until"]) == (None, None)
    assert row["next_sweep_at"] - await now(world) > timedelta(minutes=49)
    assert (await read(world, issued))["status"] == "issued"


async def test_an_inactive_connection_is_swept(world: World, issued: Json) -> None:
    """Fatura creates no charges at an inactive connection, but still reads the charges there.

    [D-161, D-55 inactive]
    """
    await patch_connection(world, active=False)
    await pay_silently(world)
    await sweep(world)
    assert (await read(world, issued))["status"] == "paid"


async def test_an_account_that_is_being_restored_is_not_swept(world: World, issued: Json) -> None:
    """[D-161, D-123]"""
    await double_silently(world, issued)
    await world.sql("UPDATE account SET recovering_since = now()")
    await sweep(world)
    assert (await stored_sweep(world))["started_at"] is None
    assert [each["status"] for each in await charges(world)] == ["open", "open"]


async def test_a_sweep_takes_its_pages_from_the_budget_of_polls(
    world: World, issued: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[D-161, D-55 budget]"""
    await issued_invoice(world)
    await world.sql("UPDATE connection_health SET polls_per_minute = 60")
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    monkeypatch.setattr(sweeping, "PAGE", 1)
    await world.sql("UPDATE connection_sweep SET next_sweep_at = '2000-01-01'")
    await world.run("sweep")
    assert len([each for each in pauses if each > 0.5]) == 2
    assert issued["status"] == "issued"


async def test_a_spent_budget_puts_the_sweep_off(world: World, issued: Json) -> None:
    """[D-161, D-55 budget]"""
    spent = "UPDATE connection_health SET polls_per_minute = 60, polls_from = now() + interval '2 minutes'"
    await world.sql(spent)
    await pay_silently(world)
    await sweep(world)
    assert (await stored_sweep(world))["started_at"] is None
    assert (await read(world, issued))["status"] == "issued"


async def test_polls_that_use_up_the_budget_do_not_stop_the_sweep(world: World, issued: Json) -> None:
    """A run waits a short time for the budget. Each page of the list counts as one poll. [D-161, D-55 budget]"""
    spent = "UPDATE connection_health SET polls_per_minute = 60, polls_from = now() + interval '0.3 seconds'"
    await pay_silently(world)
    await world.sql("UPDATE connection_sweep SET next_sweep_at = '2000-01-01'")
    await world.sql(spent)
    free_from = "SELECT polls_from FROM connection_health"
    [before], _, [after] = await world.sql(free_from), await world.run("sweep"), await world.sql(free_from)
    assert after["polls_from"] - before["polls_from"] >= timedelta(seconds=1)
    assert (await stored_sweep(world))["next_sweep_at"] > await now(world)
    await world.sql("UPDATE connection_health SET polls_per_minute = NULL")
    await world.run("reconciliation")
    assert (await read(world, issued))["status"] == "paid"


async def test_a_provider_without_a_list_is_not_swept(
    world: World, issued: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[D-161]"""
    capabilities = SandboxGateway.capabilities

    def without_list(self: SandboxGateway) -> Capabilities:
        return replace(capabilities(self), lists_charges=False)

    monkeypatch.setattr(SandboxGateway, "capabilities", without_list)
    await pay_silently(world)
    await sweep(world)
    assert (await read(world, issued))["status"] == "issued"
    assert (await stored_sweep(world))["next_sweep_at"] > await now(world)


async def test_a_test_clock_does_not_stop_every_night(world: World) -> None:
    """An advance does not stop for each night's sweep. A due sweep runs at the next stop. [D-161, D-45]"""
    assert (await world.advance(days=365))["processed"].get("sweep") == 1
    row = await stored_sweep(world)
    assert timedelta(0) < row["next_sweep_at"] - await now(world) <= timedelta(days=1)
    assert await connection_id(world) == str(row["connection_id"])
