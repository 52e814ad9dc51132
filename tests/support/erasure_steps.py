"""Steps of the erasure scenarios: create customers whose subscriptions have ended, and erase them."""

from tests.support.sandbox_steps import read
from tests.support.world import Answer, Json, Merchant, World

CUSTOMER = {
    "externalRef": "cpf-52998224725",
    "name": "Ana Souza",
    "email": "ana.souza@example.com",
    "document": "529.982.247-25",
}


async def erase(merchant: Merchant, customer_id: str, *, key: str = "fresh") -> Answer:
    return await merchant.post(f"/v1/customers/{customer_id}/erase", key=key)


async def former_customer(world: World, **fields: Json) -> Json:
    """Return a customer who paid an invoice, and whose subscription is canceled."""
    subscription = await world.enroll(
        await world.plan(), customer={**CUSTOMER, **fields}, externalRef="ana-gym"
    )
    await world.set_up_gateway(behaviour="never_pay")
    await world.run()
    [invoice] = await world.invoices(subscription)
    charge_id = (await read(world, invoice))["gatewayInvoiceId"]
    await world.made(f"/v1/sandbox/charges/{charge_id}/pay")
    await world.run()
    await world.made(f"/v1/subscriptions/{subscription['id']}/cancel")
    return (await world.get(f"/v1/customers/{subscription['customer']['id']}")).json


def erased_form(customer_id: str) -> Json:
    """Return the erased customer, as subscriptions and invoices show it."""
    return {"id": customer_id, "externalRef": f"erased-{customer_id}", "name": "[erased]", "email": None}
