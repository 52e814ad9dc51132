"""How the gateway connection of a new subscription is chosen (spec 4.4, gateway rules 1 to 5; D-21)."""

import pytest

from tests.support.expect import UNKNOWN_ID, everything, problem
from tests.support.sandbox_steps import connection_id, patch_connection
from tests.support.world import Json, Merchant, World, subscription_body

NOT_FOUND = (422, "engine.gateway_connection_not_found", None)


async def refused(merchant: Merchant, plan: Json, **fields: Json) -> tuple[int, str, Json]:
    """Post a subscription, check that nothing changed, and return the problem in the response."""
    before = await everything(merchant)
    found = problem(await merchant.post("/v1/subscriptions", subscription_body(plan, **fields)))
    assert await everything(merchant) == before
    return found


async def test_a_single_issuing_connection_is_used_automatically(world: World):
    """[spec 4.4 rule 1]"""
    plan, only = await world.plan(), await connection_id(world)
    assert (await world.enroll(plan))["gatewayConnectionId"] == only
    assert (await world.enroll(plan, gatewayConnectionId=only))["gatewayConnectionId"] == only


async def test_one_of_several_issuing_connections_must_be_named(world: World):
    """[spec 4.4 rule 2, spec 7 422 gateway, spec 7 engine.gateway_choice_required]"""
    plan, first = await world.plan(), await connection_id(world)
    second = (await world.connect())["connectionId"]
    status, type_, meta = await refused(world, plan)
    assert (status, type_) == (422, "engine.gateway_choice_required")
    options = sorted(meta.pop("options"), key=lambda option: option["connectionId"])
    labels: Json = {first: "Sandbox", second: None}
    assert options == [
        {"connectionId": each, "provider": "sandbox", "label": labels[each]} for each in sorted(labels)
    ]
    assert meta == {}
    for named in (first, second):
        assert (await world.enroll(plan, gatewayConnectionId=named))["gatewayConnectionId"] == named


async def test_unknown_and_foreign_connections_are_refused(world: World):
    """[spec 4.4 rule 3, spec 7 engine.gateway_connection_not_found, spec 5.4]"""
    plan, other = await world.plan(), await world.another()
    for named in (UNKNOWN_ID, await connection_id(other)):
        assert await refused(world, plan, gatewayConnectionId=named) == NOT_FOUND


async def test_an_inactive_connection_is_refused_and_no_option(world: World):
    """[spec 4.4 rule 3, spec 4.4 rule 1]"""
    plan, first = await world.plan(), await connection_id(world)
    second = (await world.connect())["connectionId"]
    assert (await world.patch(f"/v1/integration/gateways/{second}", {"active": False})).status == 200
    assert await refused(world, plan, gatewayConnectionId=second) == NOT_FOUND
    assert (await world.enroll(plan))["gatewayConnectionId"] == first


async def test_a_connection_that_does_not_issue_is_refused_and_no_option(world: World):
    """[spec 4.4 rule 4, D-21]"""
    plan, first = await world.plan(), await connection_id(world)
    recovery = (await world.connect(issuesCharges=False))["connectionId"]
    assert (await world.enroll(plan))["gatewayConnectionId"] == first
    assert await refused(world, plan, gatewayConnectionId=recovery) == NOT_FOUND
    third = (await world.connect())["connectionId"]
    _, _, meta = await refused(world, plan)
    assert {option["connectionId"] for option in meta["options"]} == {first, third}


@pytest.mark.parametrize("change", [{"active": False}, {"settings": {"issuesCharges": False}}])
async def test_without_an_issuing_connection_a_subscription_is_refused(world: World, change):
    """[D-21, spec 4.4 POST /v1/subscriptions 422]"""
    plan = await world.plan()
    await patch_connection(world, **change)
    assert await refused(world, plan) == NOT_FOUND


async def test_the_pinned_connection_must_issue_the_method(world: World):
    """[spec 4.4 rule 5, D-21, spec 4.4 POST /v1/subscriptions 422, spec 7 engine.payment_method_unsupported]"""
    plan = await world.plan(defaultPaymentMethod="card")
    pix_only = (await world.connect(methods=["pix"], maxInstallments=3))["connectionId"]
    option = {
        "connectionId": pix_only,
        "provider": "sandbox",
        "label": None,
        "methods": ["pix"],
        "maxInstallments": 3,
    }
    found = await refused(world, plan, gatewayConnectionId=pix_only)
    assert found == (
        422,
        "engine.payment_method_unsupported",
        {"paymentMethod": "card", "options": [option]},
    )
    found = await refused(world, plan, gatewayConnectionId=pix_only, paymentMethod="boleto")
    assert found[2]["paymentMethod"] == "boleto"
    answer = await world.post("/v1/subscriptions", subscription_body(plan, gatewayConnectionId=pix_only))
    assert answer.json["detail"] == f"The gateway connection {pix_only} does not issue card; choose another."
    own = await world.enroll(plan, gatewayConnectionId=pix_only, paymentMethod="pix")
    assert own["paymentMethod"] == "pix"


async def test_the_pinned_connection_must_issue_the_installments(world: World):
    """[spec 4.4 rule 5, D-21, spec 4.4 POST /v1/subscriptions 422, spec 7 engine.installments_unsupported]"""
    plan = await world.plan(defaultPaymentMethod="card", maxInstallments=10)
    few = (await world.connect(maxInstallments=9))["connectionId"]
    meta = {"maxInstallments": 10, "gatewayMax": 9, "provider": "sandbox"}
    found = await refused(world, plan, gatewayConnectionId=few)
    assert found == (422, "engine.installments_unsupported", meta)
    assert (await world.enroll(plan, gatewayConnectionId=few, paymentMethod="pix"))["paymentMethod"] == "pix"
    await world.patch(f"/v1/integration/gateways/{few}", {"settings": {"maxInstallments": 10}})
    assert (await world.enroll(plan, gatewayConnectionId=few))["gatewayConnectionId"] == few


async def test_the_connection_is_pinned_at_creation(world: World):
    """[spec 2.4 gatewayConnectionId]"""
    plan, first = await world.plan(), await connection_id(world)
    subscription = await world.enroll(plan)
    second = (await world.connect())["connectionId"]
    later = await world.enroll(plan, gatewayConnectionId=second)
    await world.patch(f"/v1/integration/gateways/{first}", {"active": False})
    await world.run("generation")
    await world.patch(f"/v1/integration/gateways/{first}", {"active": True})
    await world.run()

    charges = (await world.get("/v1/sandbox/charges")).json["data"]
    invoices = {each["id"]: each["subscriptionId"] for each in await world.invoices()}
    billed_by = {invoices[charge["invoiceId"]]: charge["connectionId"] for charge in charges}
    assert billed_by == {subscription["id"]: first, later["id"]: second}
    read = (await world.get(f"/v1/subscriptions/{subscription['id']}")).json
    assert read["gatewayConnectionId"] == first
