"""Functions that create fixtures. A fixture is the account that two concurrent operations change."""

from typing import Any

from fatura.usecases.transaction import load_account
from tests.faults.orders.operations import HOOK_SECRET
from tests.faults.orders.setup import FixtureBuilder
from tests.support.sandbox_steps import SILENTLY
from tests.support.world import LANE, plan_body, subscription_body


async def due(builder: FixtureBuilder) -> dict[str, Any]:
    """A subscription that is due for generation, and a more expensive product that no plan uses."""
    merchant = builder.merchant
    product, dearer = await merchant.product(1000), await merchant.product(2000)
    plan = await merchant.plan(product)
    body = subscription_body(plan)
    body["customer"]["externalRef"] = "ana"
    subscription = await merchant.made("/v1/subscriptions", body)
    return {
        "product": product["id"],
        "dearer": dearer["id"],
        "plan": plan["id"],
        "subscription": subscription["id"],
        "customer": subscription["customer"]["id"],
    }


async def moved_on(builder: FixtureBuilder) -> dict[str, Any]:
    """A subscription that is due for generation. It has version 1 of a plan whose current version is 2."""
    facts = await due(builder)
    body = plan_body({"productId": facts["dearer"], "discounts": []}, name="Second")
    answer = await builder.merchant.put(f"/v1/plans/{facts['plan']}", body)
    assert answer.status == 200, answer.body
    return facts


async def _lane(builder: FixtureBuilder, *lanes: str) -> None:
    """Run lanes of this account until no work is due."""
    account_id = builder.merchant.account_id
    for lane in lanes:
        while await LANE[lane].run(
            builder.merchant.deps, await load_account(builder.merchant.deps, account_id)
        ):
            pass


async def draft(builder: FixtureBuilder) -> dict[str, Any]:
    """An invoice whose price call is due."""
    merchant = builder.merchant
    pricing = {"mode": "endpoint", "url": builder.prices.url(), "capCents": 10_000}
    usage = await merchant.made("/v1/products", {"name": "Usage", "pricing": pricing})
    subscription = await merchant.enroll(await merchant.plan(usage))
    await _lane(builder, "generation")
    facts = await _only_invoice(builder)
    return facts | {"subscription": subscription["id"], "usage": usage["id"]}


async def held(builder: FixtureBuilder) -> dict[str, Any]:
    """An invoice whose first price call failed."""
    builder.prices.answers({"amount": "none"})
    facts = await draft(builder)
    await _lane(builder, "pricing")
    builder.prices.scripts.clear()
    return facts


async def _only_invoice(builder: FixtureBuilder) -> dict[str, Any]:
    merchant = builder.merchant
    (listed,) = await merchant.invoices()
    invoice = (await merchant.get(f"/v1/invoices/{listed['id']}")).json
    connection = (await merchant.get("/v1/integration")).json["gateways"][0]["connectionId"]
    return {
        "invoice": invoice["id"],
        "item": invoice["items"][0]["id"],
        "connection": connection,
        "charge": invoice["gatewayInvoiceId"],
    }


async def ready(builder: FixtureBuilder) -> dict[str, Any]:
    facts = await due(builder)
    await _lane(builder, "generation")
    return facts | await _only_invoice(builder)


async def abandoned(builder: FixtureBuilder) -> dict[str, Any]:
    """A ready invoice with an expired lease, as if a worker had died after sending the request for the charge."""
    merchant = builder.merchant
    facts = await ready(builder)
    fault = {"connectionId": facts["connection"], "operation": "create_charge", "fault": "timeout_after"}
    await merchant.made("/v1/sandbox/faults", fault | {"times": 1})
    await _lane(builder, "issuance")
    await builder.root.execute(
        "UPDATE invoice SET next_attempt_at = issue_failing_since, lease_until = now() WHERE account_id = $1",
        merchant.account_id,
    )
    return facts


async def issued(builder: FixtureBuilder) -> dict[str, Any]:
    """An issued invoice whose charge is due to be polled."""
    await builder.merchant.set_up_gateway(behaviour="never_pay", webhookSecret=HOOK_SECRET)
    facts = await ready(builder)
    await _lane(builder, "issuance")
    facts |= await _only_invoice(builder)
    await builder.root.execute(
        "UPDATE invoice SET next_attempt_at = issued_at WHERE account_id = $1", builder.merchant.account_id
    )
    return facts


async def paid(builder: FixtureBuilder) -> dict[str, Any]:
    """An issued invoice whose charge is paid at the gateway. The engine has not polled the charge since the payment."""
    facts = await issued(builder)
    await builder.root.execute(
        f"{SILENTLY['payment']} WHERE account_id = $1",
        builder.merchant.account_id,
    )
    return facts


async def settled(builder: FixtureBuilder) -> dict[str, Any]:
    """A paid invoice whose payment is recorded, and whose charge is due to be polled again."""
    facts = await paid(builder)
    await _lane(builder, "reconciliation")
    await builder.root.execute(
        "UPDATE invoice SET next_attempt_at = issued_at WHERE account_id = $1", builder.merchant.account_id
    )
    return facts


async def former(builder: FixtureBuilder) -> dict[str, Any]:
    """The same as the fixture `settled`, except that the subscription is canceled, so the customer can be erased."""
    facts = await settled(builder)
    await builder.merchant.made(f"/v1/subscriptions/{facts['subscription']}/cancel")
    return facts


async def swept(builder: FixtureBuilder) -> dict[str, Any]:
    """The same as the fixture `paid`, except that the connection's sweep is due too."""
    facts = await paid(builder)
    await builder.root.execute(
        "UPDATE connection_sweep SET next_sweep_at = swept_to WHERE account_id = $1",
        builder.merchant.account_id,
    )
    return facts


async def partly_paid(builder: FixtureBuilder) -> dict[str, Any]:
    """An issued invoice. A part of it was paid, and the payment is recorded."""
    facts = await partly_paid_at_gateway(builder)
    await _lane(builder, "reconciliation")
    return facts


async def partly_paid_at_gateway(builder: FixtureBuilder) -> dict[str, Any]:
    """An issued invoice. A part of it was paid at the gateway since the last poll."""
    facts = await issued(builder)
    await builder.merchant.made(f"/v1/sandbox/charges/{facts['charge']}/pay", {"amountCents": 600})
    return facts


async def disputed(builder: FixtureBuilder) -> dict[str, Any]:
    """A paid invoice. A part of its payment was disputed since the last poll."""
    facts = await settled(builder)
    await builder.merchant.made(f"/v1/sandbox/charges/{facts['charge']}/dispute", {"amountCents": 600})
    return facts


async def two_connections(builder: FixtureBuilder) -> dict[str, Any]:
    """A subscription that is due for generation, and another gateway connection."""
    facts = await due(builder)
    first = (await builder.merchant.get("/v1/integration")).json["gateways"][0]["connectionId"]
    return facts | {"connection": first, "other connection": await _other_connection(builder)}


async def ready_with_two_connections(builder: FixtureBuilder) -> dict[str, Any]:
    facts = await ready(builder)
    return facts | {"other connection": await _other_connection(builder)}


async def _other_connection(builder: FixtureBuilder) -> str:
    body = {"provider": "sandbox", "credentials": {}, "settings": {}}
    return (await builder.merchant.made("/v1/integration/gateways", body))["connectionId"]


async def pushing(builder: FixtureBuilder) -> dict[str, Any]:
    """A webhook with a delivered event, and a later event that has no delivery yet."""
    merchant, receiver = builder.merchant, builder.receiver
    answer = await merchant.put("/v1/integration/webhook", {"url": receiver.url})
    assert answer.status == 200, answer.body
    facts = await due(builder)
    await _lane(builder, "push", "probe")
    (event,) = await merchant.events()
    await merchant.made("/v1/subscriptions", subscription_body({"id": facts["plan"]}))
    return facts | {"event": event["id"], "url": receiver.url}
