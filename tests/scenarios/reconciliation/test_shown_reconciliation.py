"""The integration shows how far each connection has been reconciled (D-269)."""

from datetime import datetime, timedelta
from uuid import uuid4

from tests.support.sandbox_steps import connection_id, queue_fault, ready_invoice
from tests.support.webhook_steps import Hook, issued_with_webhooks
from tests.support.world import Json, World

NOTHING = {"pollDueSince": None, "pollsAllowedAt": None, "unknownCharges": 0, "unmatchedCharges": 0}


async def shown(world: World) -> Json:
    [gateway] = (await world.get("/v1/integration")).json["gateways"]
    return gateway["reconciliation"]


async def test_a_new_connection_has_nothing_to_reconcile(world: World) -> None:
    """[D-269]"""
    made = await world.connect()
    [_, gateway] = (await world.get("/v1/integration")).json["gateways"]
    found = gateway["reconciliation"]
    assert found.pop("comparedTo") == made["createdAt"]
    pause = datetime.fromisoformat(found.pop("nextComparisonAt")) - datetime.fromisoformat(made["createdAt"])
    assert timedelta(0) < pause <= timedelta(days=1)
    assert found == NOTHING
    assert "reconciliation" not in (await world.get("/v1/integration/gateways")).json["data"][1]


async def test_doubts_and_late_polls_are_shown(world: World) -> None:
    """A lost answer, a charge that only a webhook names, and a poll without a budget. [D-269, D-33, D-55 budget]"""
    await issued_with_webhooks(world)
    await ready_invoice(world)
    await queue_fault(world, "create_charge", "timeout_before")
    await world.run("issuance")
    body = f'{{"chargeId": "sbx_{uuid4().hex}"}}'.encode()
    assert (await Hook(body, str(world.account_id), await connection_id(world)).send(world)).status == 200
    due = "2033-01-01T00:00:00.000Z"
    await world.sql(
        "UPDATE invoice SET next_attempt_at = $1 WHERE status = 'issued'", datetime.fromisoformat(due)
    )
    await world.sql("UPDATE connection_health SET polls_from = '2034-01-01T00:00:00Z'")

    found = await shown(world)

    assert (found["unknownCharges"], found["unmatchedCharges"]) == (1, 1)
    assert (found["pollDueSince"], found["pollsAllowedAt"]) == (due, "2034-01-01T00:00:00.000Z")


async def test_the_comparison_of_a_night_is_shown(world: World) -> None:
    """[D-269, D-161]"""
    before = await shown(world)
    await world.advance(
        f"{datetime.fromisoformat(before['nextComparisonAt']) + timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}"
    )
    after = await shown(world)
    assert (
        before["comparedTo"] < before["nextComparisonAt"] <= after["comparedTo"] < after["nextComparisonAt"]
    )


async def test_another_account_is_not_counted(world: World) -> None:
    """[D-269, spec 5.2]"""
    other = await world.another()
    await ready_invoice(world)
    await queue_fault(world, "create_charge", "timeout_before")
    await world.run("issuance")
    assert (await shown(world))["unknownCharges"] == 1
    [gateway] = (await other.get("/v1/integration")).json["gateways"]
    assert gateway["reconciliation"]["unknownCharges"] == 0
