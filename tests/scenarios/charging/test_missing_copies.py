"""A look-up by the reference shows some charges of an attempt, and misses others or shows them wrongly (D-181).

A charge is *invalid* while the gateway's answers about it are invalid, for example `paid` without a payment.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Literal
from uuid import UUID

import pytest

from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import Capabilities, Charge, ChargeRequest, PermanentError, TransientError
from tests.support.sandbox_steps import (
    charge_statuses,
    charges,
    end_leases,
    pass_time,
    pay_silently,
    queue_fault,
    read,
    ready_invoice,
    stored_charges,
)
from tests.support.sweep_steps import (
    NO_SWEEP,
    during_the_look_up,
    hide_first_charge,
    hide_payment,
    second_charge_events,
    show_payment,
    two_charges,
)
from tests.support.world import World


async def test_a_look_up_that_shows_charges_is_no_empty_one(world: World) -> None:
    """A look-up shows a canceled charge and an invalid charge. The next look-up is empty. No request is sent again.
    [D-33, D-181]
    """
    _, canceled, paid = await two_charges(world)
    await world.post(f"/v1/sandbox/charges/{canceled}/cancel")
    await hide_payment(world, paid)
    await world.sql(NO_SWEEP)
    await pass_time(world, minutes=3)
    await queue_fault(world, "list_charges", "unknown")
    await pass_time(world, minutes=20)

    assert set(await charge_statuses(world)) == {canceled, paid}


async def test_the_hour_begins_with_the_first_missing_charge(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first look-up is empty. Then the gateway does not answer for 80 minutes.

    The next look-up shows both charges, and one of them is invalid. The hour of waiting for this charge begins only
    with this look-up. [D-181]
    """
    invoice, _, paid = await two_charges(world)
    await hide_payment(world, paid)
    await world.sql(NO_SWEEP)
    find, phase = SandboxGateway.find_charges, ["empty"]

    async def find_charges(gateway: SandboxGateway, invoice_id: UUID, attempt: int) -> Sequence[Charge]:
        if phase[0] == "down":
            raise TransientError("down")
        return [] if phase[0] == "empty" else await find(gateway, invoice_id, attempt)

    monkeypatch.setattr(SandboxGateway, "find_charges", find_charges)
    await pass_time(world, seconds=85)
    assert [each["empty_lookups"] for each in await stored_charges(world)] == [1]
    phase[0] = "down"
    await pass_time(world, minutes=80)
    phase[0] = "up"
    await world.sql("UPDATE invoice SET next_attempt_at = created_at")
    await pass_time(world, minutes=20)

    assert (await read(world, invoice))["status"] == "ready"


@pytest.mark.parametrize("idempotency", ["natural_id", "key"])
async def test_no_request_is_repeated_while_a_charge_is_missing(
    world: World, monkeypatch: pytest.MonkeyPatch, idempotency: Literal["natural_id", "key"]
) -> None:
    """One of two charges stays invalid, and the gateway refuses repeated requests.

    After an hour, the invoice adopts the other charge, which the payer pays. [D-181]
    """
    capabilities = SandboxGateway.capabilities
    invoice, valid, hidden = await two_charges(world)
    await hide_payment(world, hidden)
    await world.sql(NO_SWEEP)

    async def refuse(_gateway: SandboxGateway, _request: ChargeRequest) -> Charge:
        raise PermanentError("taken", "The reference is taken.")

    def repeating(gateway: SandboxGateway) -> Capabilities:
        return replace(capabilities(gateway), idempotency=idempotency, idempotency_ttl=timedelta(hours=24))

    monkeypatch.setattr(SandboxGateway, "create_charge", refuse)
    monkeypatch.setattr(SandboxGateway, "capabilities", repeating)
    await pass_time(world, hours=6)
    await pay_silently(world, valid)
    await pass_time(world, days=2)

    found = await read(world, invoice)
    assert (found["status"], found["paidCents"], found["gatewayInvoiceId"]) == ("paid", 9990, valid)


async def test_a_request_that_a_wrong_clock_dated_waits_as_long_as_others(world: World) -> None:
    """A host whose clock was 40 days ahead sent the request. For 100 seconds, look-ups do not show the charge.

    The engine does not send the request again. [D-5, D-33]
    """
    await world.set_up_gateway(behaviour="never_pay")
    await ready_invoice(world)
    await queue_fault(world, "create_charge", "timeout_after")
    await world.run("issuance")
    await world.sql(
        "UPDATE charge SET sent_at = sent_at + interval '40 days', first_sent_at = now() + interval '40 days'"
    )
    await end_leases(world)
    await queue_fault(world, "list_charges", "unknown", times=2)
    await pass_time(world, seconds=100)

    assert len(await charges(world)) == 1


@pytest.mark.parametrize("cents", [9990, 4000])
async def test_payments_are_recorded_after_a_refused_second_request(
    world: World, monkeypatch: pytest.MonkeyPatch, cents: int
) -> None:
    """Look-ups missed the first charge, which was paid and then canceled. The gateway refuses the second request.

    A person retries issuance. [D-33]
    """
    invoice, first = await hide_first_charge(world, monkeypatch)
    await world.sql(NO_SWEEP)
    await show_payment(world, first, cents=cents)
    await world.sql("UPDATE sandbox_charge SET status = 'canceled'")
    await pass_time(world, minutes=4)
    await world.post(f"/v1/invoices/{invoice['id']}/retry-issuance")

    found = await read(world, invoice)
    asked = [each["amount_cents"] for each in await stored_charges(world) if each["stage"] == "open"]
    assert (found["paidCents"], sum(asked)) == (cents, 9990 - cents)


async def test_a_listed_charge_without_an_id_hides_no_other(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[D-50]"""
    invoice, valid, _ = await two_charges(world)
    await pay_silently(world, valid)
    find = SandboxGateway.find_charges

    async def find_charges(gateway: SandboxGateway, invoice_id: UUID, attempt: int) -> Sequence[Charge]:
        found = await find(gateway, invoice_id, attempt)
        return [*found, replace(found[0], charge_id="")]

    monkeypatch.setattr(SandboxGateway, "find_charges", find_charges)
    await pass_time(world, hours=1)

    found = await read(world, invoice)
    assert (found["status"], found["gatewayInvoiceId"]) == ("paid", valid)


@pytest.mark.parametrize(("status", "cents"), [("paid", 9990), ("open", 4000)])
async def test_both_charges_of_a_failed_attempt_are_reported(
    world: World, monkeypatch: pytest.MonkeyPatch, status: str, cents: int
) -> None:
    """The payer has paid both charges. During a look-up, another worker marks the attempt as failed. [D-181]"""
    _, one, two = await two_charges(world)
    for each in (one, two):
        await show_payment(world, each, cents=cents)
    await world.sql("UPDATE sandbox_charge SET status = $1", status)

    async def fail() -> None:
        await world.sql(
            "UPDATE charge SET stage = 'failed', closed_at = sent_at, error_code = 'refused', error_detail = 'x'"
        )

    during_the_look_up(monkeypatch, fail)
    await world.sql(NO_SWEEP)
    await pass_time(world, seconds=20)
    await pass_time(world, days=2)

    assert sorted(await second_charge_events(world)) == sorted([one, two])
