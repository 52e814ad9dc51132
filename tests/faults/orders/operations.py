"""The operations that run concurrently. Each operation is an API call or one batch of a lane."""

import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from fatura.signature import sign
from fatura.usecases.transaction import load_account
from tests.faults.orders.setup import Fixture
from tests.support.world import LANE, Answer, Json, Merchant, plan_body

Act = Callable[[Merchant, Fixture], Awaitable[Json]]
HOOK_SECRET = "a-secret-of-sandbox"


@dataclass(frozen=True, slots=True)
class Operation:
    name: str
    act: Act
    lane: str | None = None
    """A lane that runs again after both operations, because a batch skips rows that the other operation has locked."""


def seen(answer: Answer) -> Json:
    """Return the parts of a response that trials compare: status, replay header, and body without the request id."""
    body = json.loads(answer.body) if answer.body else None
    if isinstance(body, dict):
        body.pop("requestId", None)
    return {
        "status": answer.status,
        "replayed": answer.headers.get("Idempotent-Replayed"),
        "body": body,
    }


def call(name: str, method: str, path: str, body: Json = None, *, key: str | None = "") -> Operation:
    """Return an operation that calls the API.

    `path` and `body` may contain names of the fixture's values, such as `<plan>`, which are replaced by the values. By
    default, the Idempotency-Key is derived from `name`. With `key=None`, the request has no Idempotency-Key.
    """

    async def act(merchant: Merchant, fixture: Fixture) -> Json:
        filled = None if body is None else json.loads(_fill(json.dumps(body), fixture))
        sent = name.replace(" ", "-") if key == "" else key
        return seen(await merchant.call(method, _fill(path, fixture), filled, key=sent))

    return Operation(name, act)


def _fill(text: str, fixture: Fixture) -> str:
    for name, value in fixture.facts.items():
        text = text.replace(f"<{name}>", str(value))
    return text


def batch(lane: str, name: str | None = None) -> Operation:
    async def act(merchant: Merchant, fixture: Fixture) -> Json:
        account = await load_account(merchant.deps, fixture.merchant.account_id)
        await LANE[lane].run(merchant.deps, account)
        return {}

    return Operation(name or lane, act, lane)


async def _gateway_webhook(merchant: Merchant, fixture: Fixture) -> Json:
    body = json.dumps({"chargeId": fixture.facts["charge"], "id": "evt_1"}).encode()
    response = await merchant._client.post(
        f"/gateways/{merchant.account_id}/{fixture.facts['connection']}/webhook",
        content=body,
        headers={"X-Sandbox-Signature": sign(body, [HOOK_SECRET], timestamp=int(time.time()))},
    )
    return seen(Answer(response.status_code, response.content, response.headers))


def plan_terms(cents_of: str = "product", **fields: Json) -> Json:
    return plan_body({"productId": f"<{cents_of}>", "discounts": []}, **fields)


def _terms(product: str, **fields: Json) -> Json:
    terms = plan_terms(product, **fields)
    del terms["name"]
    return terms


def enrolling(customer: str = "ana") -> Json:
    return {
        "planId": "<plan>",
        "customer": {"externalRef": customer, "name": "Ana", "email": "ana@example.com"},
    }


GENERATION = batch("generation")
PRICING = batch("pricing", "price pull")
ISSUANCE = batch("issuance")
RECONCILIATION = batch("reconciliation")
PART_POLL = batch("reconciliation", "poll of a part payment")
DISPUTE_POLL = batch("reconciliation", "dispute poll")
SWEEP = batch("sweep")
PUSH = batch("push")

CANCEL = call("cancel", "POST", "/v1/subscriptions/<subscription>/cancel")
CANCEL_AGAIN = call("cancel again", "POST", "/v1/subscriptions/<subscription>/cancel")
CUSTOMIZE = call(
    "customize", "POST", "/v1/subscriptions/<subscription>/customize", _terms("dearer", periodMonths=3)
)
CUSTOMIZE_AGAIN = call(
    "customize again", "POST", "/v1/subscriptions/<subscription>/customize", _terms("product", periodMonths=6)
)
PUBLISH = call("PUT plan", "PUT", "/v1/plans/<plan>", plan_terms("dearer", name="Dearer"), key=None)
PUBLISH_AGAIN = call(
    "PUT plan again", "PUT", "/v1/plans/<plan>", plan_terms(name="Again", periodMonths=3), key=None
)
PROPAGATE = call("propagate", "POST", "/v1/plans/<plan>/propagate", {})
PROPAGATE_AGAIN = call("propagate again", "POST", "/v1/plans/<plan>/propagate", {})
ARCHIVE_PLAN = call("archive plan", "POST", "/v1/plans/<plan>/archive")
ARCHIVE_PRODUCT = call("archive product", "POST", "/v1/products/<dearer>/archive")
EDIT_PRODUCT = call(
    "edit product", "PATCH", "/v1/products/<product>", {"name": "Pool", "monthlyPriceCents": 5000}, key=None
)
EDIT_DEARER = call(
    "edit dearer product", "PATCH", "/v1/products/<dearer>", {"monthlyPriceCents": 1}, key=None
)
CREATE_PLAN = call("create plan", "POST", "/v1/plans", plan_terms("dearer"))
SUBSCRIBE = call("subscribe", "POST", "/v1/subscriptions", enrolling("bia"))
SUBSCRIBE_HERE = call(
    "subscribe here", "POST", "/v1/subscriptions", enrolling("bia") | {"gatewayConnectionId": "<connection>"}
)
MOVE = call(
    "move", "POST", "/v1/integration/gateways/<connection>/move", {"toConnectionId": "<other connection>"}
)
SUBSCRIBE_TOO = call("subscribe too", "POST", "/v1/subscriptions", enrolling("bia"))
SUBSCRIBE_KNOWN = call("subscribe known", "POST", "/v1/subscriptions", enrolling("ana"))
SUBSCRIBE_REPLAY = call("subscribe, same key", "POST", "/v1/subscriptions", enrolling("bia"), key="subscribe")
OTHER_BODY = call("other body, same key", "POST", "/v1/subscriptions", enrolling("caio"), key="subscribe")
EDIT_CUSTOMER = call("edit customer", "PATCH", "/v1/customers/<customer>", {"name": "Anabel"}, key=None)

CANCEL_INVOICE = call("cancel invoice", "POST", "/v1/invoices/<invoice>/cancel")
CANCEL_INVOICE_AGAIN = call("cancel invoice again", "POST", "/v1/invoices/<invoice>/cancel")
REISSUE = call("reissue", "POST", "/v1/invoices/<invoice>/reissue", {})
REISSUE_AGAIN = call("reissue again", "POST", "/v1/invoices/<invoice>/reissue", {})
REISSUE_REPLAY = call("reissue, same key", "POST", "/v1/invoices/<invoice>/reissue", {}, key="reissue")
PAYMENT = call("manual payment", "POST", "/v1/invoices/<invoice>/payments", {"method": "cash"})
PAYMENT_AGAIN = call(
    "manual payment again", "POST", "/v1/invoices/<invoice>/payments", {"method": "transfer"}
)
PAYMENT_REPLAY = call(
    "manual payment, same key",
    "POST",
    "/v1/invoices/<invoice>/payments",
    {"method": "cash"},
    key="manual-payment",
)
RETRY_PRICING = call("retry-pricing", "POST", "/v1/invoices/<invoice>/retry-pricing")
VALUE = call("manual value", "POST", "/v1/invoices/<invoice>/items/<item>/value", {"amount": 300})
OTHER_VALUE = call("other value", "POST", "/v1/invoices/<invoice>/items/<item>/value", {"amount": 400})
EDIT_ENDPOINT = call("edit endpoint", "PATCH", "/v1/products/<usage>", {"capCents": 10}, key=None)
RETRY_ISSUANCE = call("retry-issuance", "POST", "/v1/invoices/<invoice>/retry-issuance")
CONNECTION_OFF = call(
    "connection off", "PATCH", "/v1/integration/gateways/<connection>", {"active": False}, key=None
)
REFUND = call("refund", "POST", "/v1/invoices/<invoice>/refunds", {"amountCents": 600})
REFUND_AGAIN = call("refund again", "POST", "/v1/invoices/<invoice>/refunds", {"amountCents": 600})
REFUND_REPLAY = call(
    "refund, same key", "POST", "/v1/invoices/<invoice>/refunds", {"amountCents": 600}, key="refund"
)
GATEWAY_WEBHOOK = Operation("gateway webhook", _gateway_webhook)
WEBHOOK_COPY = Operation("copy of the webhook", _gateway_webhook)
ERASE = call("erase", "POST", "/v1/customers/<customer>/erase")

ROTATE = call("rotate", "POST", "/v1/integration/secret/rotate")
ROTATE_AGAIN = call("rotate again", "POST", "/v1/integration/secret/rotate")
REDELIVER = call("redeliver", "POST", "/v1/events/<event>/redeliver")
OTHER_WEBHOOK = call("other webhook", "PUT", "/v1/integration/webhook", {"url": "<url>/other"}, key=None)
NO_WEBHOOK = call("no webhook", "DELETE", "/v1/integration/webhook", key=None)
