"""Call every route, and check each response and each accepted request against `/docs-json` (spec 4.6)."""

import time

import pytest

from fatura.domain.credentials import Mode
from fatura.signature import sign
from tests.support.audit_steps import ROUTES, Recorder
from tests.support.contract import Contract
from tests.support.expect import UNKNOWN_ID
from tests.support.sandbox_steps import connection_id
from tests.support.world import Merchant, World, item, plan_body, subscription_body


@pytest.fixture
async def judged(world: World) -> Contract:
    """Return a contract that checks every response of the API, and records each response's operation and status."""
    contract = Contract((await world.get("/docs-json")).json)
    world._client.event_hooks = {"response": [contract.judge]}
    return contract


VARIABLE = {"mode": "endpoint", "url": "https://merchant.example/price", "capCents": 1000}


async def catalog(world: World) -> None:
    """Call the routes of products and plans."""
    product, usage = await world.product(externalRef="p"), await world.variable_product(pricing=VARIABLE)
    path = f"/v1/products/{product['id']}"
    await world.patch(path, {"description": "x"})
    await world.patch(f"/v1/products/{usage['id']}", {"capCents": 5})
    for action in ("archive", "unarchive"):
        for _ in range(2):
            await world.post(f"{path}/{action}", key=action)
    await world.get(path)
    await world.get("/v1/products?page=1&pageSize=1")
    plan = await world.plan(item(product, (20, 1, 3), (1, 4, None)), usage, commitmentCycles=2)
    await world.get(f"/v1/plans/{plan['id']}")
    await world.put(f"/v1/plans/{plan['id']}", plan_body(product))
    await world.enroll(plan, paymentMethod="card")
    await world.put(f"/v1/plans/{plan['id']}", plan_body(usage))
    await world.set_up_gateway(methods=["pix"])
    for body in ({"dryRun": True}, {"fromVersion": 2}):
        await world.post(f"/v1/plans/{plan['id']}/propagate", body)
    await world.get(f"/v1/plans/{plan['id']}/propagation")
    await world.set_up_gateway(methods=["card", "pix"])
    await world.get("/v1/products?externalRef=p&archived=false")
    await world.get("/v1/plans")
    await world.post(f"/v1/plans/{plan['id']}/archive")


async def billing(world: World) -> None:
    """Call the routes of subscriptions, customers, events and the test clock. Also read invoices."""
    product = await world.product()
    plan = await world.plan(product, defaultPaymentMethod="card", maxInstallments=3)
    subscription = await world.enroll(plan, chargeDay=5)
    usual, free = await world.enroll(plan), await world.enroll(await world.plan(await world.product(0)))
    path = f"/v1/subscriptions/{subscription['id']}"
    for read in (path, f"{path}/terms", f"{path}/terms/history", f"{path}/preview"):
        await world.get(read)
    for read in ("/v1/subscriptions", "/v1/test-clock"):
        await world.get(read)
    terms = {name: value for name, value in plan_body(product).items() if name != "name"}
    await world.post(f"{path}/customize", terms)
    await world.advance(days=4)
    await world.delete("/v1/test-clock/advance")
    await world.post(f"{path}/cancel")
    await world.post(f"/v1/customers/{subscription['customer']['id']}/erase")
    (invoice,), (paid,) = await world.invoices(usual), await world.invoices(free)
    await world.get("/v1/invoices?status=paid")
    await world.get("/v1/customers?page=1")
    customer = f"/v1/customers/{usual['customer']['id']}"
    await world.get(customer)
    await world.patch(customer, {"name": "Ana Lima", "email": "lima@example.com", "document": "52998224725"})
    await world.patch(customer, {"document": None})
    for each in (invoice, paid):
        await world.get(f"/v1/invoices/{each['id']}")
        await world.get(f"/v1/invoices/{each['id']}/payments")
        for charge in (await world.get(f"/v1/invoices/{each['id']}")).json["charges"]:
            await world.get(f"/v1/invoices/{each['id']}/charges/{charge['id']}/calls")
    await world.get("/v1/events?limit=2&cursor=1&type=invoice.paid")
    await world.events()


async def charges(world: World) -> None:
    """Call every route that changes an invoice, and the routes of gateway webhooks, sandbox charges and products."""
    await world.set_up_gateway(behaviour="never_pay", productCatalog=True)
    plan = await world.plan()
    for moves in (("pay", "dispute", "dispute-close", "double", "refund"), ("refuse", "cancel", "forget")):
        subscription = await world.enroll(plan)
        await world.advance(days=1)
        invoice = (await world.invoices(subscription))[0]
        charge = (await world.get(f"/v1/sandbox/charges?invoiceId={invoice['id']}")).json["data"][0]
        for move in moves:
            body = {"won": True} if move == "dispute-close" else None
            assert (await world.post(f"/v1/sandbox/charges/{charge['chargeId']}/{move}", body)).status == 200
    await world.enroll(plan)
    await world.run("generation")
    path = f"/v1/invoices/{(await world.invoices())[-1]['id']}"
    for action, status in (
        ("retry-issuance", 200),
        ("pay-link/rotate", 200),
        ("payments", 200),
        ("refunds", 200),
        ("reissue", 200),
        ("cancel", 200),
        ("retry-issuance", 409),
        ("reissue", 409),
        ("payments", 409),
        ("refunds", 422),
        ("cancel", 409),
    ):
        bodies = {"reissue": {}, "payments": {"method": "cash", "amountCents": 1}, "refunds": {}}
        body = bodies.get(action)
        assert (await world.post(f"{path}/{action}", body)).status == status
    await webhook(world)
    await prices(world)
    await world.get("/v1/sandbox/charges")
    await world.get("/v1/sandbox/products")


async def prices(world: World) -> None:
    """Make price calls to an endpoint that refuses connections, so that the invoice's item stays pending.

    Then enter a manual value for the item.
    """
    product = await world.variable_product(pricing=VARIABLE)
    await world.sql("UPDATE product SET endpoint_url = 'http://127.0.0.1:1/' WHERE cap_cents IS NOT NULL")
    assert (await world.post(f"/v1/products/{product['id']}/pricing-test")).status == 200
    subscription = await world.enroll(await world.plan(product))
    await world.run("generation")
    [invoice] = await world.invoices(subscription)
    path = f"/v1/invoices/{invoice['id']}"
    assert (await world.post(f"{path}/retry-pricing")).status == 200
    item_id = (await world.get(path)).json["items"][0]["id"]
    for status in (200, 409):
        body = {"amount": 100, "description": "correction"}
        assert (await world.post(f"{path}/items/{item_id}/value", body)).status == status


async def webhook(world: World) -> None:
    secret = "sixteen-or-more!"
    await world.set_up_gateway(webhookSecret=secret)
    connection_id = (await world.get("/v1/integration")).json["gateways"][0]["connectionId"]
    for key, status in ((secret, 200), ("another", 404)):
        signed = sign(b"{}", [key], timestamp=int(time.time()))
        path = f"/gateways/{world.account_id}/{connection_id}/webhook"
        answer = await world.post(path, {}, headers={"X-Sandbox-Signature": signed})
        assert answer.status == status


async def push(world: World) -> None:
    """Call every route of the webhook and of single events, and rotate the integration secret."""
    event = (await world.events())[0]
    path = f"/v1/events/{event['id']}"
    await world.post(f"{path}/redeliver")
    for url in ("https://merchant.example/", "https://merchant.example/again"):
        await world.put("/v1/integration/webhook", {"url": url})
    await world.get("/v1/integration/webhook")
    # The delivery must fail without a DNS look-up, so the test stores an address that refuses connections.
    await world.sql("UPDATE webhook SET url = 'http://127.0.0.1:1/'")
    await world.post(f"{path}/redeliver")
    await world.run("push")
    for read in (path, f"{path}/deliveries"):
        await world.get(read)
    await world.post("/v1/integration/secret/rotate")
    for _ in range(2):
        await world.delete("/v1/integration/webhook")


async def integration(world: World) -> None:
    """Call every route of API keys, gateways, the audit log, sandbox faults and health. Also call `push`."""
    key = await world.made("/v1/integration/api-keys", {"name": "x"})
    await world.get("/v1/integration/api-keys")
    await world.delete(f"/v1/integration/api-keys/{key['id']}")
    connection = await world.connect(methods=["pix"], behaviour="refuse")
    path = f"/v1/integration/gateways/{connection['connectionId']}"
    own = f"/v1/integration/gateways/{await connection_id(world)}/move"
    for dry_run in (True, False):
        await world.post(own, {"toConnectionId": connection["connectionId"], "dryRun": dry_run})
    await world.get(own)
    await world.patch(
        path, {"label": "Two", "settings": {"maxInstallments": 2}, "credentials": {}, "active": False}
    )
    await push(world)
    await world.put("/v1/integration/pay-page", {"name": "Academia Sol", "color": "#0b6bcb"})
    await world.get("/v1/integration/pay-page")
    await world.get("/v1/integration/gateways")
    await world.get("/v1/integration/providers")
    await world.post(f"{path}/check")
    await world.get("/v1/integration")
    await world.get("/v1/audit?actor=api_key&action=webhook.register&from=2026-01-01&limit=1")
    fault = {"connectionId": connection["connectionId"], "operation": "get_charge", "fault": "rate_limited"}
    for length in ({"times": 2}, {"seconds": 2}):
        await world.post("/v1/sandbox/faults", fault | length)
    await world.delete(f"/v1/sandbox/faults?connectionId={connection['connectionId']}")
    await world.get("/health")
    await world.get("/health/ready")


async def statement(live: Merchant) -> None:
    """Import a bank statement into a connection with a Pix key, which only a live account has."""
    settings = {"pixKey": "pix@example.com", "merchantName": "Academia Sol", "merchantCity": "Sao Paulo"}
    made = await live.made(
        "/v1/integration/gateways", {"provider": "pix_key", "credentials": {}, "settings": settings}
    )
    for dry_run in (True, False):
        await live.made(
            f"/v1/integration/gateways/{made['connectionId']}/statement",
            {
                "format": "csv",
                "statement": "date,amount,id\n2026-01-02,1.00,1\n2026-01-02,-1.00,2\n",
                "dryRun": dry_run,
            },
        )


async def test_every_route_answers_as_documented(world: World, judged: Contract):
    """Each successful request that changes something also adds one audit entry, which names the changed resource.
    [spec 4.6 GET /docs-json 200, D-63, D-221, D-13]
    """
    recorder, earlier = Recorder(), len(await world.audit())
    world._client.event_hooks["response"].append(recorder.note)
    for walk in (catalog, billing, charges, integration):
        await walk(world)

    await recorder.check(world, earlier=earlier)
    live = await world.another(Mode.LIVE)
    of_live, earlier = Recorder(), len(await live.audit())
    world._client.event_hooks["response"][-1] = of_live.note
    await statement(live)
    await of_live.check(live, earlier=earlier)

    wanted = {(method, path) for method, path, _ in judged.operations()}
    done = {(method, path) for method, path, status in judged.seen if status.startswith("2")}
    assert wanted - done == set()
    audited = {each.route.audit for each in (*recorder.sent, *of_live.sent) if each.owes_entry}
    assert audited == {route.audit for route in ROUTES.values()} - {None}


async def test_every_refusal_is_documented(world: World, judged: Contract):
    """[spec 4.6 GET /docs-json 200]"""
    for method, path, operation in list(judged.operations()):
        url = path.replace("{chargeId}", "x")
        for name in (
            "productId",
            "planId",
            "customerId",
            "subscriptionId",
            "invoiceId",
            "apiKeyId",
            "connectionId",
        ):
            url = url.replace(f"{{{name}}}", UNKNOWN_ID)
        if operation["security"]:
            await world.call(method, url, headers={"Authorization": "Bearer x"})
            if method != "GET":
                await world.call(method, url, content=b"{")
                await world.call(method, url, content=b" " * 300_000)
            if "{" in path and method in {"GET", "POST", "DELETE"} and "requestBody" not in operation:
                assert (await world.call(method, url)).status == 404
        if any(each.get("name") == "page" for each in operation.get("parameters", [])):
            assert (await world.get(f"{url}?page=0")).status == 400

    product = await world.product()
    await world.patch(f"/v1/products/{product['id']}", {"capCents": 1})
    plan = await world.plan()
    await world.post("/v1/plans", plan_body(product, maxInstallments=2))
    await world.put(f"/v1/plans/{plan['id']}", plan_body({"productId": UNKNOWN_ID}))
    await world.post("/v1/subscriptions", subscription_body(plan, gatewayConnectionId=UNKNOWN_ID))
    await world.post("/v1/products", {}, key=None)
    await world.post(f"/v1/plans/{plan['id']}/archive")
    await world.post("/v1/subscriptions", subscription_body(plan))
    await world.put(f"/v1/plans/{plan['id']}", plan_body(product))
    live = await world.another(Mode.LIVE)
    await live.get("/v1/test-clock")
    await live.post("/v1/test-clock/advance", {"days": 1})
    await live.delete("/v1/test-clock/advance")
    assert {status for _, _, status in judged.seen} >= {"400", "401", "404", "409", "413", "422"}
