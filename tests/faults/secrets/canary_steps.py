"""Send secrets to the engine in valid and invalid requests, also while the database or other services fail."""

import asyncio
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import asyncpg

from tests.faults.stack import Client
from tests.support.databases import as_superuser
from tests.support.receiver import Receiver, always
from tests.support.world import plan_body, subscription_body

if TYPE_CHECKING:
    from tests.faults.secrets.canaries import Canaries

FAULTS = ("server_error", "timeout_after", "rate_limited", "rejected")


async def push(
    client: Client, canaries: "Canaries", receiver: Receiver, *, server_url: str, url: str
) -> None:
    await _wrong_keys(client, canaries)
    connection_id = await _gateways(client, canaries)
    await _keys_and_secrets(client, canaries)
    await _webhooks(client, canaries, receiver)
    await _billing(client, canaries, receiver)
    await _refused(client, canaries)
    for fault in FAULTS:
        body = {"connectionId": connection_id, "operation": "create_charge", "fault": fault}
        await client.ask("POST", "/v1/sandbox/faults", body)
    receiver.answer = always(500, b"no")
    await _advance(client)
    await _outage(client, canaries, server_url=server_url, url=url)
    receiver.answer = always(200, b'{"amount": 100}')
    await _advance(client)
    for path in (
        "products",
        "plans",
        "customers",
        "subscriptions",
        "invoices",
        "integration",
        "integration/webhook",
    ):
        await client.ask("GET", f"/v1/{path}")


async def _wrong_keys(client: Client, canaries: "Canaries") -> None:
    shapes = ("Bearer {}", "Basic {}", "{}", "Bearer rk_test_{}", "Bearer {} x", "Token {}")
    for shape in shapes:
        await client.ask("GET", "/v1/products", Authorization=shape.format(canaries.make("wrong api key")))
    mine = client.api_key
    forged = canaries.add("wrong api key", mine[:-10] + "0123456789")
    await client.ask("GET", "/v1/products", Authorization=f"Bearer {forged}")


async def _gateways(client: Client, canaries: "Canaries") -> str:
    first = (await client.ask("GET", "/v1/integration")).json()["gateways"][0]["connectionId"]
    path = f"/v1/integration/gateways/{first}"
    for _ in range(3):
        secret = canaries.make("gateway secret")
        assert (await client.ask("PATCH", path, {"settings": {"webhookSecret": secret}})).status_code == 200
    for _ in range(2):
        credentials = {"token": canaries.make("gateway credential")}
        await client.ask("PATCH", path, {"credentials": credentials})
        body = {"provider": "sandbox", "credentials": {"key": canaries.make("gateway credential")}}
        await client.ask("POST", "/v1/integration/gateways", body)
    return first


async def _keys_and_secrets(client: Client, canaries: "Canaries") -> None:
    for number in range(5):
        made = await client.ask("POST", "/v1/integration/api-keys", {"name": f"key {number}"})
        canaries.add("api key", made.json()["key"])
        rotated = await client.ask("POST", "/v1/integration/secret/rotate")
        canaries.add("integration secret", rotated.json()["secret"])


async def _webhooks(client: Client, canaries: "Canaries", receiver: Receiver) -> None:
    for _ in range(2):
        url = f"{receiver.url}?token={canaries.make('webhook token')}"
        assert (await client.ask("PUT", "/v1/integration/webhook", {"url": url})).status_code == 200


async def _billing(client: Client, canaries: "Canaries", receiver: Receiver) -> None:
    for base in (receiver.url, receiver.url, "http://127.0.0.1:1/price"):
        url = f"{base}?token={canaries.make('price token')}"
        pricing = {"mode": "endpoint", "url": url, "capCents": 1000}
        product = await client.ask("POST", "/v1/products", {"name": "Usage", "pricing": pricing})
        await client.ask("POST", f"/v1/products/{product.json()['id']}/pricing-test")
        key = canaries.make("idempotency key")
        plan = await client.ask("POST", "/v1/plans", plan_body(product.json()), Idempotency_Key=key)
        await client.ask("POST", "/v1/plans", plan_body(product.json(), name="x"), Idempotency_Key=key)
        await _enroll(client, canaries, plan.json())
    pricing = {"mode": "fixed", "monthlyPriceCents": 1000}
    product = await client.ask("POST", "/v1/products", {"name": "Gym", "pricing": pricing})
    plan = await client.ask("POST", "/v1/plans", plan_body(product.json()))
    for _ in range(4):
        await _enroll(client, canaries, plan.json())


async def _enroll(client: Client, canaries: "Canaries", plan: Any) -> None:
    body = subscription_body(plan)
    body["customer"]["document"] = canaries.make("document")
    body["customer"]["email"] = f"{canaries.make('e-mail')}@example.com"
    made = await client.ask("POST", "/v1/subscriptions", body)
    assert made.status_code == 201, made.text
    path = f"/v1/customers/{made.json()['customer']['id']}"
    await client.ask("PATCH", path, {"document": canaries.make("document")})


async def _refused(client: Client, canaries: "Canaries") -> None:
    """Send secrets in invalid bodies: in wrong fields, with wrong types, or too long."""
    secret = [canaries.make("refused body") for _ in range(6)]
    customer = {"externalRef": "x", "name": "x", "email": "no address", "document": secret[0]}
    await client.ask("POST", "/v1/subscriptions", {"planId": "x", "customer": customer})
    await client.ask(
        "POST", "/v1/subscriptions", {"planId": secret[1], "customer": {"document": secret[2] * 2}}
    )
    await client.ask("POST", "/v1/products", {"name": {"secret": secret[3]}, "pricing": [secret[3]]})
    await client.ask("PUT", "/v1/integration/webhook", {"url": f"http://user:{secret[4]}@10.0.0.1/"})
    await client.ask("POST", "/v1/integration/api-keys", {"name": secret[5] * 20})


async def _advance(client: Client) -> None:
    await client.ask("POST", "/v1/test-clock/advance", {"days": 1})
    while (await client.ask("GET", "/v1/test-clock")).json()["status"] != "ready":  # noqa: ASYNC110 - another process sets it
        await asyncio.sleep(0.2)


async def _outage(client: Client, canaries: "Canaries", *, server_url: str, url: str) -> None:
    """Refuse all database connections for a while, and continue to send requests."""
    name = urlsplit(url).path.strip("/")
    connection = await asyncpg.connect(as_superuser(server_url))
    try:
        await connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name
        )
        for _ in range(3):
            body = subscription_body({"id": "00000000-0000-0000-0000-000000000000"})
            body["customer"]["document"] = canaries.make("refused body")
            asked = await client.ask("POST", "/v1/subscriptions", body)
            assert asked.status_code == 503, asked.text
        await asyncio.sleep(1.5)  # time for the lanes to poll and fail
    finally:
        await connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
        await connection.close()
