"""A backup has a merchant's request that waits for a cancellation. The request was applied after the backup (D-123)."""

from uuid import UUID

import pytest

from tests.scenarios.merchant_actions.test_request_histories import show
from tests.support.cancellation_steps import end_requests
from tests.support.reissue_steps import ask, unpaid_invoice
from tests.support.restore_steps import compare, create_unmatched_charge
from tests.support.sandbox_steps import cancel, charges, pass_time, queue_fault
from tests.support.world import Json, World


async def reissue_unsure(world: World) -> Json:
    """Ask for a reissue with the key `r`. The gateway does not answer the cancellation. Return the invoice."""
    await world.sql("UPDATE connection_sweep SET next_sweep_at = '2900-01-01'")
    invoice = await unpaid_invoice(world)
    await queue_fault(world, "cancel_charge", "timeout_before")
    assert (await ask(world, invoice, key="r")).status == 409
    return invoice


async def restore(world: World, invoice: Json) -> None:
    """Simulate the restore of a backup that was made before a poll applied the reissue."""
    await world.sql("UPDATE sandbox_charge SET status = 'canceled'")
    await create_unmatched_charge(world, UUID(invoice["id"]), invoice["totalCents"], attempt=2)
    await compare(world)
    await end_requests(world)
    await world.run("issuance", "reconciliation")


@pytest.mark.parametrize("is_canceled_later", [False, True])
async def test_a_repeated_key_makes_no_second_reissue(world: World, *, is_canceled_later: bool) -> None:
    """With `is_canceled_later`, the backup also has a request to cancel the invoice, made after the reissue.

    [D-123, D-171]
    """
    invoice = await reissue_unsure(world)
    if is_canceled_later:
        await queue_fault(world, "cancel_charge", "timeout_before")
        assert (await cancel(world, invoice)).status == 409
    await restore(world, invoice)
    reissued = ("issued", 0, [("canceled", 9990), ("open", 9990)])
    assert await show(world, invoice) == reissued
    answer = await ask(world, invoice, key="r")
    await pass_time(world, minutes=5)
    assert answer.status == 200, answer.body
    assert await show(world, invoice) == reissued
    assert [each["status"] for each in await charges(world)] == ["open", "canceled"]
    assert len(await world.events("invoice.reissued")) == 1
    assert await world.broken() == []


async def test_the_audit_log_names_who_asked_for_the_reissue(world: World) -> None:
    """[D-123, D-63]"""
    invoice = await reissue_unsure(world)
    await restore(world, invoice)
    [entry] = (await world.get("/v1/audit?action=invoice.reissue")).json["data"]
    assert (entry["actor"]["kind"], entry["resource"]["id"]) == ("api_key", invoice["id"])
