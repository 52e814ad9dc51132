"""An account with two resources of every kind, and valid request bodies that refer to them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from tests.support.world import Json, Merchant, World, plan_body, subscription_body

LISTS = (
    "/v1/products",
    "/v1/plans",
    "/v1/customers",
    "/v1/subscriptions",
    "/v1/invoices",
    "/v1/events",
    "/v1/integration/gateways",
    "/v1/integration/api-keys",
    "/v1/sandbox/charges",
    "/v1/sandbox/products",
    "/v1/audit?limit=200",
)


@dataclass(frozen=True, slots=True)
class Owned:
    """An account, and the ids of its resources by path parameter or field name."""

    merchant: Merchant
    ids: dict[str, list[str]]

    def one(self, name: str) -> str:
        """Return the id of the active resource by its path parameter or field name, such as `planId`."""
        return self.ids[name][0]


async def own_everything(world: World, merchant: Merchant) -> Owned:
    """Create two resources of every kind: first an active one, then an ended one if the kind can end.

    Return the account with their ids.
    """
    ids: dict[str, list[str]] = {}
    products = [await merchant.product(), await merchant.product()]
    plans = [await merchant.plan(products[0]), await merchant.plan(products[1])]
    await merchant.set_up_gateway(productCatalog=True)
    subscriptions = [await merchant.enroll(each) for each in plans]
    await world.run()
    await merchant.made(f"/v1/products/{products[1]['id']}/archive")
    await merchant.made(f"/v1/plans/{plans[1]['id']}/archive")
    await merchant.made(f"/v1/subscriptions/{subscriptions[1]['id']}/cancel")
    charges = (await merchant.get("/v1/sandbox/charges")).json["data"]
    await merchant.made(f"/v1/sandbox/charges/{charges[1]['chargeId']}/pay")
    await world.run()
    connections = [(await merchant.get("/v1/integration/gateways")).json["data"][0], await merchant.connect()]
    await merchant.patch(f"/v1/integration/gateways/{connections[1]['connectionId']}", {"active": False})
    other = await merchant.connect()
    ids["toConnectionId"] = [other["connectionId"], connections[1]["connectionId"]]
    keys = [await merchant.made("/v1/integration/api-keys", {"name": name}) for name in ("kept", "revoked")]
    await merchant.delete(f"/v1/integration/api-keys/{keys[1]['id']}")
    ids["productId"] = [each["id"] for each in products]
    ids["planId"] = [each["id"] for each in plans]
    ids["subscriptionId"] = [each["id"] for each in subscriptions]
    ids["customerId"] = [each["customer"]["id"] for each in subscriptions]
    ids["invoiceId"] = [each["id"] for each in await merchant.invoices()]
    details = [(await merchant.get(f"/v1/invoices/{each}")).json for each in ids["invoiceId"]]
    ids["itemId"] = [each["items"][0]["id"] for each in details]
    ids["chargeId"] = [each["chargeId"] for each in charges]
    ids["accountId"] = [str(merchant.account_id)] * 2
    ids["connectionId"] = ids["gatewayConnectionId"] = [each["connectionId"] for each in connections]
    ids["apiKeyId"] = [each["id"] for each in keys]
    used = (await merchant.get("/v1/integration/api-keys")).json["data"][-1]
    ids["actor"] = [used["id"]] * 2
    ids["eventId"] = [each["id"] for each in (await merchant.events())[:2]]
    assert {len(each) for each in ids.values()} == {2}
    return Owned(merchant, ids)


async def everything_of(merchant: Merchant) -> dict[str, Json]:
    """Return the first page of each list of an account by path, and all events."""
    answers = {path: await merchant.get(path) for path in LISTS}
    assert {each.status for each in answers.values()} == {200}
    return {path: each.json for path, each in answers.items()} | {"all events": await merchant.events()}


def valid_bodies(own: Owned) -> dict[str, Json]:
    """Return a valid body for every route that takes one. The bodies refer to resources of `own`."""
    terms = plan_body({"id": own.one("productId")})
    enrollment = subscription_body({"id": own.one("planId")})
    return {
        "post /v1/products": {"name": "Gym", "pricing": {"mode": "fixed", "monthlyPriceCents": 1}},
        "patch /v1/products/{productId}": {"name": "Gym"},
        "post /v1/plans": terms,
        "put /v1/plans/{planId}": terms,
        "post /v1/plans/{planId}/propagate": {},
        "post /v1/subscriptions": {**enrollment, "gatewayConnectionId": own.one("gatewayConnectionId")},
        "post /v1/subscriptions/{subscriptionId}/customize": {
            key: terms[key] for key in terms if key != "name"
        },
        "post /v1/invoices/{invoiceId}/items/{itemId}/value": {"amount": 1},
        "post /v1/invoices/{invoiceId}/refunds": {"amountCents": 1},
        "post /v1/invoices/{invoiceId}/reissue": {"paymentMethod": "pix"},
        "post /v1/invoices/{invoiceId}/payments": {"method": "cash"},
        "patch /v1/customers/{customerId}": {"name": "Ana Lima"},
        "post /v1/integration/api-keys": {"name": "checkout"},
        "post /v1/integration/secret/rotate": {"revokePrevious": False},
        "post /v1/integration/gateways": {"provider": "sandbox", "credentials": {}},
        "patch /v1/integration/gateways/{connectionId}": {"label": "Main"},
        "post /v1/integration/gateways/{connectionId}/move": {"toConnectionId": own.one("toConnectionId")},
        "post /v1/integration/gateways/{connectionId}/statement": {
            "format": "csv",
            "statement": "date,amount,id\n",
        },
        "put /v1/integration/pay-page": {"name": "Academia Sol"},
        "put /v1/integration/webhook": {"url": "https://merchant.example/events"},
        "post /v1/test-clock/advance": {"days": 0},
        "post /v1/sandbox/charges/{chargeId}/pay": {},
        "post /v1/sandbox/charges/{chargeId}/refund": {},
        "post /v1/sandbox/charges/{chargeId}/dispute": {},
        "post /v1/sandbox/charges/{chargeId}/dispute-close": {"won": True},
        "post /v1/sandbox/faults": {
            "connectionId": own.one("connectionId"),
            "operation": "get_charge",
            "fault": "rejected",
        },
        "post /gateways/{accountId}/{connectionId}/webhook": {},
    }


def id_places(body: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the path of every id in a body."""
    if isinstance(body, dict):
        for key, value in body.items():
            yield from id_places(value, (*path, key))
    elif isinstance(body, list):
        for place, value in enumerate(body):
            yield from id_places(value, (*path, place))
    elif isinstance(body, str) and _is_uuid(body):
        yield path


def put(body: Any, path: tuple[str | int, ...], value: Any) -> Any:
    """Return a copy of the body with the value at one path replaced."""
    if not path:
        return value
    copy = body.copy()
    copy[path[0]] = put(body[path[0]], path[1:], value)
    return copy


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True
