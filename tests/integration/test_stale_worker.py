"""Results of a worker that froze and lost its lease do not undo what others did since."""

from dataclasses import replace
from datetime import timedelta

from fatura.gateways.port import TransientError
from fatura.usecases.charging import issuance, outcomes
from fatura.usecases.charging.gateway_calls import CallKind, GatewayCall
from fatura.usecases.transaction import in_transaction, load_account
from tests.support.world import World


async def _reserved(world: World) -> GatewayCall:
    """Reserve the only due invoice as a worker does before it freezes."""
    account = await load_account(world.deps, world.account_id)
    _, (call,) = await in_transaction(world.deps, account, issuance._reserve_due, limit=1)
    return call


async def _end_leases(world: World) -> None:
    """Expire the lease of 60 s, which runs in real time."""
    await world.sql(
        "UPDATE invoice SET lease_until = now() - interval '1 second' WHERE account_id = $1", world.account_id
    )


async def test_a_late_refusal_does_not_undo_a_later_charge(world: World) -> None:
    """The first worker's 429 arrives after a second worker sent the request again. [D-33]"""
    await world.enroll(await world.plan())
    await world.run("generation")
    frozen = await _reserved(world)
    await _end_leases(world)
    connection_id = (await world.get("/v1/integration")).json["gateways"][0]["connectionId"]
    fault = {"connectionId": connection_id, "operation": "create_charge", "fault": "timeout_after"}
    assert (await world.post("/v1/sandbox/faults", fault)).status == 201
    for seconds in (
        90,
        70,
    ):  # two look-ups find nothing, and the second worker sends; its own look-up is not due
        await _pass(world, seconds=seconds)
        await world.run("issuance")
    assert len((await world.get("/v1/sandbox/charges")).json["data"]) == 1
    account = await load_account(world.deps, world.account_id)
    await in_transaction(world.deps, account, outcomes.record, frozen, TransientError("429"))
    await world.advance(days=1)

    assert len((await world.get("/v1/sandbox/charges")).json["data"]) == 1
    assert [invoice["status"] for invoice in await world.invoices()] == ["issued"]
    assert await world.broken() == []


async def _pass(world: World, *, seconds: int) -> None:
    """Let time pass on the account's clock without a worker."""
    await world.sql(
        "UPDATE account SET clock_offset = clock_offset + $2 WHERE account_id = $1",
        world.account_id,
        timedelta(seconds=seconds),
    )


async def test_a_worker_frozen_for_half_its_lease_sends_nothing(world: World) -> None:
    """[D-33]"""
    await world.enroll(await world.plan())
    await world.run("generation")
    account = await load_account(world.deps, world.account_id)
    call = await _reserved(world)
    late = replace(call, reserved_at_real=call.reserved_at_real - timedelta(minutes=2))

    await issuance.call_and_record(world.deps, account, [late])

    assert (await world.get("/v1/sandbox/charges")).json["data"] == []
    await world.advance(days=1)
    assert len((await world.get("/v1/sandbox/charges")).json["data"]) == 1
    assert await world.broken() == []


async def test_a_late_charge_of_a_canceled_invoice_is_emitted(world: World) -> None:
    """[D-27, D-33]"""
    await world.enroll(await world.plan())
    await world.run("generation")
    frozen = await _reserved(world)
    await _end_leases(world)
    connection_id = (await world.get("/v1/integration")).json["gateways"][0]["connectionId"]
    fault = {"connectionId": connection_id, "operation": "create_charge", "fault": "rate_limited"}
    assert (await world.post("/v1/sandbox/faults", fault)).status == 201
    for seconds in (90, 70):  # two look-ups find nothing, and the second worker's own send is limited
        await _pass(world, seconds=seconds)
        await world.run("issuance")
    [invoice] = await world.invoices()
    assert (await world.post(f"/v1/invoices/{invoice['id']}/cancel")).status == 200

    await issuance.call_and_record(world.deps, await load_account(world.deps, world.account_id), [frozen])

    [charge] = (await world.get("/v1/sandbox/charges")).json["data"]
    [event] = await world.events("invoice.issue_failed")
    assert event["data"]["error"]["code"] == "second_charge"
    assert event["data"]["error"]["gatewayInvoiceId"] == charge["chargeId"]
    assert [each["status"] for each in await world.invoices()] == ["canceled"]
    [charge] = (await world.get("/v1/sandbox/charges")).json["data"]
    assert charge["status"] == "canceled"
    assert await world.broken() == []


async def test_a_look_up_counts_from_its_request(world: World) -> None:
    """A look-up that began early does not prove that the charge is absent, however late its answer arrives. [D-33]"""
    await world.enroll(await world.plan())
    await world.run("generation")
    await _reserved(world)  # and dies
    await _end_leases(world)
    asked_early = await _reserved(world)
    assert asked_early.kind is CallKind.LOOK_UP
    await _pass(world, seconds=150)

    account = await load_account(world.deps, world.account_id)
    for _ in range(2):
        await in_transaction(world.deps, account, outcomes.record, asked_early, None)

    [attempt] = await world.sql(
        "SELECT state, empty_lookups FROM charge_attempt WHERE account_id = $1", world.account_id
    )
    assert (attempt["state"], attempt["empty_lookups"]) == ("sending", 0)
