"""Connections that create no charges: the provider `recovery`, and sandbox connections that stop issuing (D-264)."""

from uuid import UUID, uuid4

import pytest

from fatura.domain.credentials import Mode
from fatura.gateways import port
from fatura.gateways.adapters.recovery import RecoveryGateway
from tests.contract.provider import NOW, charge_request
from tests.support.sandbox_steps import (
    charges,
    move,
    pass_time,
    patch_connection,
    queue_fault,
    read,
    ready_invoice,
)
from tests.support.world import Json, Merchant, World, subscription_body

GATEWAYS = "/v1/integration/gateways"
PIX_KEY = {"pixKey": "pix@example.com", "merchantName": "Sol", "merchantCity": "Recife"}


async def connected(merchant: Merchant, provider: str, **settings: Json) -> str:
    body = {"provider": provider, "credentials": {}, "settings": settings}
    return (await merchant.made(GATEWAYS, body))["connectionId"]


async def test_a_recovery_connection_is_no_option_and_forces_no_choice(world: World) -> None:
    """[D-264, spec 4.4 rule 4, D-21]"""
    live = await world.another(Mode.LIVE)
    recovery, bank = await connected(live, "recovery"), await connected(live, "pix_key", **PIX_KEY)
    plan = await live.plan()

    assert (await live.enroll(plan))["gatewayConnectionId"] == bank
    body = subscription_body(plan, gatewayConnectionId=recovery)
    assert (await live.post("/v1/subscriptions", body)).type == "engine.gateway_connection_not_found"
    moved = await live.post(f"{GATEWAYS}/{bank}/move", {"toConnectionId": recovery})
    assert (moved.status, moved.type) == (422, "engine.gateway_connection_not_found")
    shown = {each["connectionId"]: each for each in (await live.get("/v1/integration")).json["gateways"]}
    assert [shown[recovery][name] for name in ("issuesCharges", "methods", "maxInstallments", "refunds")] == [
        False,
        [],
        1,
        False,
    ]


async def test_an_account_with_only_a_recovery_connection_bills_nobody(world: World) -> None:
    """A plan needs a connection that issues its method. [D-264, D-21, spec 4.4 rule 4]"""
    live = await world.another(Mode.LIVE)
    await connected(live, "recovery")
    product = await live.product()
    body = {
        "name": "Plan",
        "periodMonths": 1,
        "defaultPaymentMethod": "pix",
        "items": [{"productId": product["id"], "discounts": []}],
    }
    refused = await live.post("/v1/plans", body)
    assert (refused.status, refused.type) == (422, "engine.payment_method_unsupported")
    assert refused.json["meta"]["options"] == []


async def test_a_recovery_connection_has_nothing_to_set_and_takes_no_webhook(world: World) -> None:
    """[D-264, D-43, D-35 webhook refused]"""
    live = await world.another(Mode.LIVE)
    for given in ({"settings": {"methods": ["pix"]}}, {"credentials": {"token": "x"}}):
        body = {"provider": "recovery", "credentials": {}, **given}
        assert (await live.post(GATEWAYS, body)).type == "engine.invalid_request"
    recovery = await connected(live, "recovery")
    assert (await live.post(f"{GATEWAYS}/{recovery}/check")).json["error"] is None
    assert (await live.post(f"/gateways/{live.account_id}/{recovery}/webhook", {})).status == 404


async def test_a_sandbox_account_has_no_recovery_connection(world: World) -> None:
    """[D-264, D-44]"""
    refused = await world.post(GATEWAYS, {"provider": "recovery", "credentials": {}})
    assert (refused.status, refused.type) == (400, "engine.invalid_request")


async def test_ready_invoices_wait_without_a_charge_until_the_connection_issues(world: World) -> None:
    """The wait is no permanent refusal, so nobody has to retry the issuance. [D-264, D-34, D-46]"""
    invoice = await ready_invoice(world)
    await patch_connection(world, settings={"issuesCharges": False})

    await pass_time(world, days=2)

    assert (await read(world, invoice))["status"] == "ready"
    assert (await charges(world), await world.events("invoice.issue_failed")) == ([], [])
    [delayed] = await world.events("invoice.issue_delayed")
    assert delayed["data"]["error"]["code"] == "not_issuing"
    await patch_connection(world, settings={"issuesCharges": True})
    await world.run()
    assert (await read(world, invoice))["status"] == "issued"
    assert len(await charges(world)) == 1
    assert await world.broken() == []


async def test_a_charge_in_doubt_is_found_after_the_connection_stopped_issuing(world: World) -> None:
    """[D-264, D-33]"""
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await ready_invoice(world)
    await queue_fault(world, "create_charge", "timeout_after")
    await world.run("issuance")
    await patch_connection(world, settings={"issuesCharges": False})
    [charge] = await charges(world)
    await move(world, charge, "pay")

    await pass_time(world, hours=1)

    assert (await read(world, invoice))["status"] == "paid"
    assert len(await charges(world)) == 1
    assert await world.broken() == []


async def test_the_adapter_has_no_charges() -> None:
    """`fatura restored` and the sweep read an empty list that is complete. [D-264, D-123, D-161]"""
    gateway = RecoveryGateway(port.ConnectionConfig(UUID(int=0), UUID(int=1), {}, {}, NOW))
    assert gateway.capabilities().lists_charges
    assert [each async for each in gateway.charges_since(NOW)] == []
    assert await gateway.find_charges(uuid4(), 1) == []
    request = charge_request()
    with pytest.raises(port.PermanentError):
        await gateway.create_charge(request)
    with pytest.raises(port.PermanentError):
        await gateway.refund_charge(port.RefundRequest(uuid4(), "x", 1, "BRL", None))
    for call in (gateway.get_charge, gateway.cancel_charge):
        with pytest.raises(port.NotFoundError):
            await call("x")
    with pytest.raises(port.PermanentError):
        await gateway.mirror_product(port.ProductMirror(uuid4(), "Gold", None))
