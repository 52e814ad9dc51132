"""Fill an account over HTTP with active and ended resources of every kind."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import httpx

from tests.support.postgres_processes import until
from tests.support.world import Json, plan_body, subscription_body

PATIENCE_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Resources:
    """The ids of an account's resources: `ids` lists them by path parameter, such as `planId`.

    For some operations, `suitable` lists the path parameters with which the operation succeeds. The product
    `product_id` and the plan `plan_id` are active, so that new plans and subscriptions can use them.
    """

    ids: dict[str, list[str]]
    suitable: dict[str, list[dict[str, str]]]
    product_id: str
    plan_id: str


class Account:
    """An API client of one account. It fails the test if the API answers with an error."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def __call__(self, method: str, path: str, body: Json = None) -> Json:
        headers = {"Idempotency-Key": str(uuid4())} if method == "POST" else {}
        answer = self._client.request(method, path, json=body, headers=headers)
        assert answer.is_success, (method, path, answer.text)
        return answer.json() if answer.content else None

    def all(self, path: str) -> Sequence[Json]:
        """Return the records on the first page of a list."""
        return self("GET", path)["data"]

    def product(self, **pricing: Any) -> str:
        return self("POST", "/v1/products", {"name": "Gym", "pricing": pricing})["id"]

    def plan(self, product_id: str) -> str:
        """Create a plan of one product and return its id."""
        return self("POST", "/v1/plans", plan_body({"id": product_id}))["id"]

    def enroll(self, plan_id: str) -> Json:
        return self("POST", "/v1/subscriptions", subscription_body({"id": plan_id}))

    def invoices(self, *subscriptions: Json) -> list[Json]:
        """Return the details of the invoices of the given subscriptions."""
        found = [each for of in subscriptions for each in self.all(f"/v1/invoices?subscriptionId={of['id']}")]
        return [self("GET", f"/v1/invoices/{each['id']}") for each in found]


def fill(account: Account, merchant_url: str) -> Resources:
    """Fill an account while a worker runs. `merchant_url` must serve a price at `/price`, and a 500 at `/later`."""
    settings = {"productCatalog": True, "behaviour": "never_pay"}
    connection_id = account.all("/v1/integration/gateways")[0]["connectionId"]
    account("PATCH", f"/v1/integration/gateways/{connection_id}", {"settings": settings})
    keys = _api_keys(account)
    account("PUT", "/v1/integration/webhook", {"url": f"{merchant_url}/events"})
    products = [
        account.product(mode="fixed", monthlyPriceCents=9990),
        account.product(mode="endpoint", url=f"{merchant_url}/price", capCents=100_000),
        account.product(mode="endpoint", url=f"{merchant_url}/later", capCents=100_000),
    ]
    plans = [account.plan(each) for each in products]
    fixed = [account.enroll(plans[0]) for _ in range(10)]
    asked = [account.enroll(plans[1]), account.enroll(plans[2])]
    until(lambda: len(account.all("/v1/sandbox/charges")) == 11, seconds=PATIENCE_SECONDS)
    ready = _refused_by_the_gateway(account, plans[0], connection_id)
    account("POST", f"/v1/plans/{plans[0]}/propagate", {})
    ended = _ended(account)
    charges = {each["invoiceId"]: each["chargeId"] for each in account.all("/v1/sandbox/charges")}
    invoices = account.invoices(*fixed, *asked)
    disputed = charges[invoices[7]["id"]]
    _pay(account, paid=charges[invoices[0]["id"]], disputed=disputed, by_hand=invoices[9])
    pending = invoices[-1]
    return Resources(
        ids={
            "productId": [*products[1:], ended["productId"]],
            "planId": [*plans[1:], ended["planId"]],
            "subscriptionId": [each["id"] for each in (*fixed[3:], *asked)],
            "customerId": [each["customer"]["id"] for each in (*fixed, *asked)],
            "invoiceId": [each["id"] for each in invoices[:3]],
            "itemId": [each["items"][0]["id"] for each in invoices[:3]],
            "chargeId": [charges[each["id"]] for each in invoices[:2]],
            "eventId": [each["id"] for each in account.all("/v1/events")],
            "connectionId": [connection_id],
            "apiKeyId": keys,
        },
        suitable={
            "erase_customer": [{"customerId": ended["customerId"]}],
            "publish_plan": [{"planId": plans[0]}],
            "propagate_plan": [{"planId": plans[0]}],
            "read_propagation": [{"planId": plans[0]}],
            **dict.fromkeys(("move_subscriptions", "read_move"), _moved(account, connection_id)),
            "customize_subscription": [{"subscriptionId": fixed[0]["id"]}],
            "close_item": [{"invoiceId": pending["id"], "itemId": pending["items"][0]["id"]}],
            "retry_issuance": [{"invoiceId": ready["id"]}],
            "refund_invoice": [{"invoiceId": invoices[9]["id"]}],
            "cancel_invoice": [{"invoiceId": invoices[3]["id"]}],
            "cancel_sandbox_charge": [{"chargeId": charges[invoices[4]["id"]]}],
            "refuse_sandbox_charge": [{"chargeId": charges[invoices[5]["id"]]}],
            "refund_sandbox_charge": [{"chargeId": charges[invoices[0]["id"]]}],
            "dispute_sandbox_charge": [{"chargeId": charges[invoices[0]["id"]]}],
            "close_sandbox_dispute": [{"chargeId": disputed}],
            "double_sandbox_charge": [{"chargeId": disputed}],
            "forget_sandbox_charge": [{"chargeId": charges[invoices[8]["id"]]}],
            "pay_sandbox_charge": [{"chargeId": charges[invoices[6]["id"]]}],
        },
        product_id=products[0],
        plan_id=plans[0],
    )


def _pay(account: Account, *, paid: str, disputed: str, by_hand: Json) -> None:
    """Pay two sandbox charges, dispute one of them, and record a payment that was received without the gateway."""
    for charge_id in (paid, disputed):
        account("POST", f"/v1/sandbox/charges/{charge_id}/pay")
    account("POST", f"/v1/sandbox/charges/{disputed}/dispute")
    account("POST", f"/v1/invoices/{by_hand['id']}/payments", {"method": "cash"})


def _api_keys(account: Account) -> list[str]:
    keys = [account("POST", "/v1/integration/api-keys", {"name": name})["id"] for name in ("kept", "revoked")]
    account("DELETE", f"/v1/integration/api-keys/{keys[1]}")
    return keys


def _moved(account: Account, connection_id: str) -> list[dict[str, str]]:
    """Add a connection, move its subscriptions to the connection `connection_id`, and deactivate the added one.

    Return path parameters that name the added connection.
    """
    body = {"provider": "sandbox", "credentials": {}}
    old = account("POST", "/v1/integration/gateways", body)["connectionId"]
    account("POST", f"/v1/integration/gateways/{old}/move", {"toConnectionId": connection_id})
    account("PATCH", f"/v1/integration/gateways/{old}", {"active": False})
    return [{"connectionId": old}]


def _refused_by_the_gateway(account: Account, plan_id: str, connection_id: str) -> Json:
    """Return an invoice whose charge the gateway has rejected. The engine retries only if a client asks for it."""
    refused = {"connectionId": connection_id, "operation": "create_charge", "fault": "rejected"}
    account("POST", "/v1/sandbox/faults", refused)
    subscription = account.enroll(plan_id)
    until(lambda: bool(account.all("/v1/events?type=invoice.issue_failed")), seconds=PATIENCE_SECONDS)
    [invoice] = account.invoices(subscription)
    return invoice


def _ended(account: Account) -> dict[str, str]:
    """Create an archived product, and an archived plan with a canceled subscription.

    Return the ids of the product, the plan and the customer.
    """
    product_id = account.product(mode="fixed", monthlyPriceCents=0)
    plan_id = account.plan(product_id)
    subscription = account.enroll(plan_id)
    account("POST", f"/v1/subscriptions/{subscription['id']}/cancel")
    account("POST", f"/v1/plans/{plan_id}/archive")
    account("POST", f"/v1/products/{product_id}/archive")
    return {"productId": product_id, "planId": plan_id, "customerId": subscription["customer"]["id"]}
