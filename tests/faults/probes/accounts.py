"""Fill an account with resources in many states."""

from tests.support.account_resources import Owned, own_everything
from tests.support.world import Merchant, World, item, subscription_body

MALFORMED = (
    "7",
    "null",
    "{01a1fa9d-5cc0-7928-8d93-50141b2fea5d}",
    "urn:uuid:01a1fa9d-5cc0-7928-8d93-50141b2fea5d",
    "01a1fa9d5cc079288d9350141b2fea5d",
    "01a1fa9d-5cc0-7928-8d93-50141b2fea5d ",
    "01a1fa9d-5cc0-7928-8d93-50141b2fea5\uff11",
    "+1a1fa9d-5cc0-7928-8d93-50141b2fea5d",
    "0x1fa9d0-5cc0-7928-8d93-50141b2fea5d",
    "01a1fa9d_5cc0_7928_8d93_50141b2fea5d",
    "\x00",
    "' OR 1=1--",
    "%2e%2e",
    "x" * 300,
)
"""Malformed ids, including texts that some UUID parsers accept."""


async def fill_account(world: World, merchant: Merchant) -> Owned:
    """Create a resource of every type, and further resources in rare states, such as a held invoice.

    Return the account with the ids of these resources.
    """
    own = await own_everything(world, merchant)
    held_product = await merchant.variable_product()
    held_plan = await merchant.plan(item(held_product))
    gateway = own.one("gatewayConnectionId")
    held = await merchant.enroll(held_plan, gatewayConnectionId=gateway)
    customized_plan = await merchant.plan()
    customized = await merchant.enroll(customized_plan, gatewayConnectionId=gateway)
    terms = (await merchant.get(f"/v1/subscriptions/{customized['id']}/terms")).json
    names = ("periodMonths", "defaultPaymentMethod", "maxInstallments", "items")
    await merchant.made(
        f"/v1/subscriptions/{customized['id']}/customize", {name: terms[name] for name in names}
    )
    await world.run()
    (held_invoice,) = await merchant.invoices(held)
    (issued,) = await merchant.invoices(customized)
    await merchant.made(f"/v1/sandbox/charges/{issued['gatewayInvoiceId']}/pay")
    await merchant.made(f"/v1/sandbox/charges/{issued['gatewayInvoiceId']}/refund")
    await world.run()
    with_document = subscription_body(customized_plan, externalRef="sub-1", gatewayConnectionId=gateway)
    with_document["customer"]["document"] = "529.982.247-25"
    known = await merchant.made("/v1/subscriptions", with_document)
    details = [(await merchant.get(f"/v1/invoices/{each['id']}")).json for each in (held_invoice, issued)]
    first = (await merchant.get(f"/v1/invoices/{own.one('invoiceId')}")).json
    own.ids["invoiceChargeId"] = [each["id"] for each in first["charges"]]
    for name, more in {
        "productId": [held_product["id"]],
        "planId": [held_plan["id"], customized_plan["id"]],
        "subscriptionId": [held["id"], customized["id"], known["id"]],
        "customerId": [held["customer"]["id"], customized["customer"]["id"], known["customer"]["id"]],
        "invoiceId": [held_invoice["id"], issued["id"]],
        "itemId": [each["items"][0]["id"] for each in details],
        "chargeId": [issued["gatewayInvoiceId"]],
        "apiKeyId": [(await merchant.get("/v1/integration/api-keys")).json["data"][-1]["id"]],
        "eventId": [each["id"] for each in (await merchant.events())[-3:]],
    }.items():
        own.ids[name] = own.ids[name] + more
    return own
