"""The part of the OpenAPI document about calls to merchants: events to webhooks, and price calls (spec 6, 4.7)."""

import json

from fatura import signature
from fatura.api.openapi.operations import content, examples
from fatura.api.openapi.schemas import Schema, event_name, name_of
from fatura.domain.events import CATALOGUE
from fatura.domain.pricing import CallMode
from fatura.views.price_calls import PriceAnswerView, PricePeriodView, PriceReferenceView, PriceRequestView
from fatura.views.samples.events import sample_json
from fatura.views.samples.story import ANA, DUE, SUBSCRIPTION, TRAINING_ITEM_ID

TAG = "Event notifications"
"""Tag of the requests to webhooks. It must differ from `Webhooks`, the tag of the API's webhook routes.

Client generators make one class per tag. A common tag would put these requests and those routes into one class.
"""
TAG_DESCRIPTION = "The requests that Fatura makes to your webhook, one for every event."
VIEWS = (PriceRequestView, PriceAnswerView)


def webhooks() -> tuple[Schema, Schema]:
    """Return the document's webhooks by event type, and the path items that they refer to.

    Each webhook is a `$ref`, because openapi-generator turns inline webhooks into code that does not compile.
    """
    items = {_name(type_): {"post": _event_call(type_)} for type_ in CATALOGUE}
    return {type_: {"$ref": f"#/components/pathItems/{_name(type_)}"} for type_ in CATALOGUE}, items


def _name(type_: str) -> str:
    return "on_" + type_.replace(".", "_")


def _event_call(type_: str) -> Schema:
    return {
        "operationId": _name(type_),
        "summary": f"Receive {type_}",
        "description": f"Sent when this happened: {CATALOGUE[type_]}. Answer within 10 seconds, and process the event "
        "after that. An event can arrive more than once, always with the same `id`.",
        "tags": [TAG],
        "security": [],
        "parameters": [_SIGNATURE, *_EVENT_HEADERS],
        "requestBody": {
            "required": True,
            "content": content(event_name(type_), examples({type_: sample_json(type_)})),
        },
        "responses": {
            "2XX": {"description": "Delivered."},
            "410": {"description": "Disables the webhook."},
            "default": {
                "description": "Not delivered. Fatura tries again. `Retry-After` can delay the next try by at most 24 "
                "hours."
            },
        },
    }


def price_callback() -> Schema:
    """Return the OpenAPI callback of `POST /v1/products`: the price call of each cycle (spec 4.7)."""
    request = PriceRequestView(
        version=1,
        mode=CallMode.LIVE,
        pricing_request_id=str(TRAINING_ITEM_ID),
        product=PriceReferenceView(external_ref="training"),
        subscription=PriceReferenceView(external_ref=SUBSCRIPTION.external_ref or ""),
        customer=PriceReferenceView(external_ref=ANA.external_ref),
        period=PricePeriodView(start=DUE, end=DUE.replace(year=2027, month=1, day=9)),
        cycle=1,
        currency="BRL",
    )
    prices = {
        "an amount": json.loads(PriceAnswerView(amount=12000, description="2 sessions").json()),
        "nothing to charge": json.loads(PriceAnswerView(skip=True).json()),
    }
    return {
        "{$request.body#/pricing/url}": {
            "post": {
                "operationId": "price",
                "summary": "Price an item",
                "description": "Sent to the product's price endpoint for each cycle. Answer within 10 seconds. The "
                "first valid answer is final.",
                "tags": ["Products"],
                "security": [],
                "parameters": [_SIGNATURE],
                "requestBody": {
                    "required": True,
                    "content": content(
                        name_of(PriceRequestView), examples({"a cycle": json.loads(request.json())})
                    ),
                },
                "responses": {
                    "2XX": {
                        "description": "The price.",
                        "content": content(name_of(PriceAnswerView), examples(prices)),
                    },
                    "4XX": {"description": "No price; Fatura calls again later."},
                },
            }
        }
    }


def _header(name: str, description: str) -> Schema:
    return {
        "name": name,
        "in": "header",
        "required": True,
        "description": description,
        "schema": {"type": "string"},
    }


# These parameters are inline: if a path item has several `$ref` parameters, openapi-generator wrongly treats them as
# duplicates.
_SIGNATURE = _header(
    signature.HEADER,
    "`t=<unix seconds>,v1=<hex>`: HMAC-SHA256 of `t`, a dot and the raw body, keyed with the integration secret. "
    "Several `v1` may follow while the secret is being rotated.",
)
_EVENT_HEADERS = (
    _header("X-Service-Event-Id", "The event's `id`. Process each event only once."),
    _header("X-Service-Event-Type", "The event's `type`."),
    _header("X-Service-Delivery-Attempt", "Number of the attempt, from 1."),
    _header("webhook-id", "The event's `id`, as in Standard Webhooks."),
    _header("webhook-timestamp", "Unix seconds of the signature, as in Standard Webhooks."),
    _header("webhook-signature", "Signature, as in Standard Webhooks."),
)
