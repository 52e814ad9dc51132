"""Steps of the scenarios with gateways' webhooks."""

import json
import time
from dataclasses import dataclass, field, replace

import httpx

from fatura.signature import sign
from tests.support.sandbox_steps import connection_id, issued_invoice, pay_silently
from tests.support.world import Answer, Json, World

SECRET = "a-secret-of-sandbox"


@dataclass(frozen=True, slots=True)
class Hook:
    """A webhook to send. By default it is signed with the connection's secret."""

    body: bytes
    account: str
    connection: str
    secret: str = SECRET
    headers: dict[str, str] = field(default_factory=dict[str, str])
    at: int = 0

    async def send(self, world: World, *, client: httpx.AsyncClient | None = None) -> Answer:
        """Send the webhook without an API key, as a gateway does."""
        signed = sign(self.body, [self.secret], timestamp=self.at or int(time.time()))
        response = await (client or world._client).post(
            f"/gateways/{self.account}/{self.connection}/webhook",
            content=self.body,
            headers={"X-Sandbox-Signature": signed, "X-Request-Id": "same", **self.headers},
        )
        return Answer(response.status_code, response.content, response.headers)


async def hook(world: World, invoice: Json | None, **changes: Json) -> Hook:
    """Return an authentic webhook that names the invoice's charge, or no charge if `invoice` is None."""
    body = json.dumps({"chargeId": invoice["gatewayInvoiceId"], "status": "paid"} if invoice else {}).encode()
    genuine = Hook(body, str(world.account_id), await connection_id(world))
    return replace(genuine, **changes)


async def paid_unnoticed(world: World, invoice: Json) -> None:
    """Pay the charge at the gateway without notifying the engine."""
    await pay_silently(world, invoice["gatewayInvoiceId"])


async def issued_with_webhooks(world: World) -> Json:
    """Return an issued invoice whose next poll is not due yet. Its connection accepts webhooks."""
    await world.set_up_gateway(webhookSecret=SECRET, behaviour="never_pay")
    invoice = await issued_invoice(world)
    assert await world.run("reconciliation") == 0
    return invoice


async def named_by_webhook(world: World, invoice: Json) -> None:
    """Let the gateway send a webhook about the invoice's charge. A repeated call sends a copy of the webhook."""
    assert (await (await hook(world, invoice)).send(world)).status == 200


async def budget_free(world: World) -> None:
    """Let the connection's budget of polls allow a poll now."""
    await world.sql("UPDATE connection_health SET polls_from = NULL")
