"""Results of a worker that froze and lost its lease do not undo what others did since."""

from dataclasses import replace
from datetime import timedelta

from fatura.gateways.port import TransientError
from fatura.usecases.charging import issuance, outcomes
from fatura.usecases.charging.gateway_calls import CallKind, GatewayCall
from fatura.usecases.transaction import in_transaction, load_account
from tests.support.push_steps import skip
from tests.support.sandbox_steps import charges, end_leases, queue_fault
from tests.support.world import World


async def _reserved(world: World) -> GatewayCall:
    """Reserve the only due invoice as a worker does before it freezes."""
    account = await load_account(world.deps, world.account_id)
    _, (call,) = await in_transaction(world.deps, account, issuance._reserve_due, limit=1)
    return call


async def test_a_late_refusal_does_not_undo_a_later_charge(world: World) -> None:
    """The frozen worker's 429 arrives after a second worker has sent the request again. [D-33]"""
    await world.enroll(await world.plan())
    await world.run("generation")
    frozen = await _reserved(world)
    await end_leases(world)
    await queue_fault(world, "create_charge", "timeout_after")
    # After two look-ups without a charge, the second worker sends the request again.
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


async def test_a_worker_frozen_for_half_its_lease_sends_nothing(world: World) -> None:
    """[D-33]"""
    await world.enroll(await world.plan())
    await world.run("generation")
    account = await load_account(world.deps, world.account_id)
    call = await _reserved(world)
    late = replace(call, reserved_at_real=call.reserved_at_real - timedelta(minutes=2))

    await issuance.call_and_record(world.deps, account, [late])

    assert await charges(world) == []
    await world.advance(days=1)
    assert len(await charges(world)) == 1
    assert await world.broken() == []


async def test_a_late_charge_of_a_canceled_invoice_is_emitted(world: World) -> None:
    """[D-27, D-33]"""
    await world.enroll(await world.plan())
    await world.run("generation")
    frozen = await _reserved(world)
    await end_leases(world)
    await queue_fault(world, "create_charge", "rate_limited")
    # After two look-ups without a charge, the second worker sends the request, which is refused.
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
    """A look-up sent soon after the request does not prove that no charge exists, even if its answer is late. [D-33]"""
    await world.enroll(await world.plan())
    await world.run("generation")
    await _reserved(world)  # reserves the request of a worker that dies
    await end_leases(world)
    asked_early = await _reserved(world)
    assert asked_early.kind is CallKind.LOOK_UP
    await skip(world, timedelta(seconds=150))

    account = await load_account(world.deps, world.account_id)
    for _ in range(2):
        await in_transaction(world.deps, account, outcomes.record, asked_early, None)

    [attempt] = await world.sql(
        "SELECT state, empty_lookups FROM charge_attempt WHERE account_id = $1", world.account_id
    )
    assert (attempt["state"], attempt["empty_lookups"]) == ("sending", 0)
