"""A worker freezes and loses its lease. Its late result does not undo what other workers did during the freeze."""

from dataclasses import replace
from datetime import timedelta

import pytest

from fatura.gateways.port import TransientError
from fatura.usecases.charging import issuance, outcomes
from fatura.usecases.charging.gateway_calls import CallKind, GatewayCall
from fatura.usecases.transaction import in_transaction, load_account
from tests.support.push_steps import skip
from tests.support.sandbox_steps import charges, end_leases, queue_fault, ready_invoice
from tests.support.unreadable import make_unreadable
from tests.support.world import World


async def _reserved(world: World) -> GatewayCall:
    """Reserve the gateway call for the only due invoice, as a worker does before it freezes."""
    account = await load_account(world.deps, world.account_id)
    _, (call,) = await in_transaction(world.deps, account, issuance._reserve_due, limit=1)
    return call


async def test_a_late_refusal_does_not_undo_a_later_charge(world: World) -> None:
    """A second worker creates the charge. Then the frozen worker records the 429 of its own call. [D-33]"""
    await world.enroll(await world.plan())
    await world.run("generation")
    frozen = await _reserved(world)
    await end_leases(world)
    await queue_fault(world, "create_charge", "timeout_after")
    # A second worker looks the charge up twice. As no charge exists, the second worker sends its own request.
    for seconds in (90, 70):
        await skip(world, timedelta(seconds=seconds))
        await world.run("issuance")
    assert len(await charges(world)) == 1
    account = await load_account(world.deps, world.account_id)
    await in_transaction(world.deps, account, outcomes.record, frozen, TransientError("429"))
    await world.advance(days=1)

    assert len(await charges(world)) == 1
    assert [invoice["status"] for invoice in await world.invoices()] == ["issued"]
    assert await world.broken() == []


@pytest.mark.parametrize("moved", ["real", "monotonic"])
@pytest.mark.parametrize(("more", "sent"), [(timedelta(seconds=-9), 1), (timedelta(seconds=1), 0)])
async def test_a_worker_frozen_for_half_its_lease_sends_nothing(
    world: World, moved: str, more: timedelta, sent: int
) -> None:
    """A worker checks its lease by the real-time clock and by the monotonic clock.

    One of the two clocks can stop while a machine is suspended. [D-33]
    """
    await world.enroll(await world.plan())
    await world.run("generation")
    account = await load_account(world.deps, world.account_id)
    call = await _reserved(world)
    frozen = issuance.LEASE / 2 + more
    if moved == "real":
        late = replace(call, reserved_at_real=call.reserved_at_real - frozen)
    else:
        late = replace(call, send_before=call.send_before - frozen.total_seconds())

    await issuance.call_and_record(world.deps, account, [late])

    assert len(await charges(world)) == sent
    await world.advance(days=1)
    assert len(await charges(world)) == 1
    assert await world.broken() == []


async def test_invoices_reserved_one_by_one_share_the_time_to_send(world: World) -> None:
    """The three invoices are leased at the same moment, so their calls have the same deadline. [D-33, D-186]"""
    _, failing, _ = [await ready_invoice(world) for _ in range(3)]
    await make_unreadable(world, failing)
    account = await load_account(world.deps, world.account_id)

    count, calls = await in_transaction(world.deps, account, issuance._reserve_due, limit=3)

    assert (count, len(calls)) == (3, 2)
    assert len({(each.send_before, each.reserved_at_real) for each in calls}) == 1


async def test_a_late_charge_of_a_canceled_invoice_is_emitted(world: World) -> None:
    """[D-27, D-33]"""
    await world.enroll(await world.plan())
    await world.run("generation")
    frozen = await _reserved(world)
    await end_leases(world)
    await queue_fault(world, "create_charge", "rate_limited")
    # A second worker looks the charge up twice and sends a request, which the gateway answers with 429.
    for seconds in (90, 70):
        await skip(world, timedelta(seconds=seconds))
        await world.run("issuance")
    [invoice] = await world.invoices()
    assert (await world.post(f"/v1/invoices/{invoice['id']}/cancel")).status == 200

    await issuance.call_and_record(world.deps, await load_account(world.deps, world.account_id), [frozen])

    [charge] = await charges(world)
    [event] = await world.events("invoice.issue_failed")
    assert event["data"]["error"]["code"] == "second_charge"
    assert event["data"]["error"]["gatewayInvoiceId"] == charge["chargeId"]
    assert [each["status"] for each in await world.invoices()] == ["canceled"]
    [charge] = await charges(world)
    assert charge["status"] == "canceled"
    assert await world.broken() == []


async def test_a_look_up_counts_from_its_request(world: World) -> None:
    """An empty look-up counts only if it starts at least 80 seconds after the request for the charge.

    The time of the look-up's answer does not matter. [D-33]
    """
    await world.enroll(await world.plan())
    await world.run("generation")
    await _reserved(world)  # the worker dies before it sends this request
    await end_leases(world)
    asked_early = await _reserved(world)
    assert asked_early.kind is CallKind.LOOK_UP
    await skip(world, timedelta(seconds=150))

    account = await load_account(world.deps, world.account_id)
    for _ in range(2):
        await in_transaction(world.deps, account, outcomes.record, asked_early, None)

    [attempt] = await world.sql(
        "SELECT stage, empty_lookups FROM charge WHERE account_id = $1", world.account_id
    )
    assert (attempt["stage"], attempt["empty_lookups"]) == ("unknown", 0)
