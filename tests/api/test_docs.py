"""`/docs` and `/docs-json` are complete and valid, and load nothing from other hosts (spec 4.6)."""

import re
from collections.abc import Iterator

import pytest
import pytest_asyncio
from openapi_spec_validator import OpenAPIV31SpecValidator

from fatura.domain.errors import CATALOGUE
from fatura.domain.events import CATALOGUE as EVENT_TYPES
from tests.support.contract import Contract
from tests.support.world import Json, World, rows

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROUTES = rows("""
    method | path                                          | success | refusals
    GET    | /health                                       | 200     |
    GET    | /health/ready                                 | 200     | 503
    POST   | /v1/products                                  | 201     | 400
    GET    | /v1/products                                  | 200     | 400
    GET    | /v1/products/{productId}                      | 200     | 404
    PATCH  | /v1/products/{productId}                      | 200     | 400 404 409
    POST   | /v1/products/{productId}/archive              | 200     | 404
    POST   | /v1/products/{productId}/unarchive            | 200     | 404
    POST   | /v1/products/{productId}/pricing-test         | 200     | 404
    POST   | /v1/plans                                     | 201     | 400 404 409 422
    GET    | /v1/plans                                     | 200     | 400
    GET    | /v1/plans/{planId}                            | 200     | 404
    PUT    | /v1/plans/{planId}                            | 200     | 400 404 409 422
    POST   | /v1/plans/{planId}/archive                    | 200     | 404
    POST   | /v1/plans/{planId}/propagate                  | 200     | 202 400 404 409
    GET    | /v1/plans/{planId}/propagation                | 200     | 404
    POST   | /v1/subscriptions                             | 201     | 400 404 409 422
    GET    | /v1/subscriptions                             | 200     | 400
    GET    | /v1/subscriptions/{subscriptionId}            | 200     | 404
    GET    | /v1/subscriptions/{subscriptionId}/terms      | 200     | 404
    GET    | /v1/subscriptions/{subscriptionId}/terms/history | 200  | 404
    GET    | /v1/subscriptions/{subscriptionId}/preview    | 200     | 404 409
    POST   | /v1/subscriptions/{subscriptionId}/customize  | 200     | 400 404 409 422
    POST   | /v1/subscriptions/{subscriptionId}/cancel     | 200     | 404 409
    GET    | /v1/customers                                 | 200     | 400
    GET    | /v1/customers/{customerId}                    | 200     | 404
    PATCH  | /v1/customers/{customerId}                    | 200     | 400 404 409
    POST   | /v1/customers/{customerId}/erase              | 200     | 202 404 409
    GET    | /v1/invoices                                  | 200     | 400
    GET    | /v1/invoices/{invoiceId}                      | 200     | 404
    GET    | /v1/invoices/{invoiceId}/charges/{chargeId}/calls | 200 | 400 404
    POST   | /v1/invoices/{invoiceId}/cancel               | 200     | 404 409
    POST   | /v1/invoices/{invoiceId}/reissue              | 200     | 400 404 409 422 503
    GET    | /v1/invoices/{invoiceId}/payments             | 200     | 400 404
    POST   | /v1/invoices/{invoiceId}/payments             | 200     | 400 404 409 422 503
    POST   | /v1/invoices/{invoiceId}/refunds              | 200     | 202 400 404 409 422 503
    POST   | /v1/invoices/{invoiceId}/pay-link/rotate      | 200     | 404
    POST   | /v1/invoices/{invoiceId}/retry-issuance       | 200     | 404 409
    POST   | /v1/invoices/{invoiceId}/retry-pricing        | 200     | 404
    POST   | /v1/invoices/{invoiceId}/items/{itemId}/value | 200     | 400 404 409
    GET    | /v1/events                                    | 200     | 400
    GET    | /v1/events/{eventId}                          | 200     | 404
    GET    | /v1/events/{eventId}/deliveries               | 200     | 404
    POST   | /v1/events/{eventId}/redeliver                | 202     | 404 409
    GET    | /v1/integration                               | 200     |
    GET    | /v1/audit                                     | 200     | 400
    GET    | /v1/integration/api-keys                      | 200     | 400
    POST   | /v1/integration/api-keys                      | 201     | 400 422
    DELETE | /v1/integration/api-keys/{apiKeyId}           | 204     | 404 409
    POST   | /v1/integration/secret/rotate                 | 200     | 400
    GET    | /v1/integration/pay-page                      | 200     |
    PUT    | /v1/integration/pay-page                      | 200     | 400
    GET    | /v1/integration/webhook                       | 200     | 404
    PUT    | /v1/integration/webhook                       | 200     | 400
    DELETE | /v1/integration/webhook                       | 204     | 404
    GET    | /v1/integration/gateways                      | 200     |
    POST   | /v1/integration/gateways                      | 201     | 400
    PATCH  | /v1/integration/gateways/{connectionId}       | 200     | 400 404
    GET    | /v1/integration/providers                     | 200     |
    POST   | /v1/integration/gateways/{connectionId}/check | 200     | 404
    POST   | /v1/integration/gateways/{connectionId}/move  | 200     | 202 400 404 409 422
    GET    | /v1/integration/gateways/{connectionId}/move  | 200     | 404
    POST   | /v1/integration/gateways/{connectionId}/statement | 200 | 400 404 422
    GET    | /v1/test-clock                                | 200     | 409
    POST   | /v1/test-clock/advance                        | 200     | 400 409 422
    DELETE | /v1/test-clock/advance                        | 204     | 409
    GET    | /v1/sandbox/charges                           | 200     | 400
    GET    | /v1/sandbox/products                          | 200     |
    POST   | /v1/sandbox/charges/{chargeId}/pay            | 200     | 400 404 409
    POST   | /v1/sandbox/charges/{chargeId}/refuse         | 200     | 404 409
    POST   | /v1/sandbox/charges/{chargeId}/cancel         | 200     | 404 409
    POST   | /v1/sandbox/charges/{chargeId}/refund         | 200     | 400 404 409
    POST   | /v1/sandbox/charges/{chargeId}/dispute        | 200     | 400 404 409
    POST   | /v1/sandbox/charges/{chargeId}/dispute-close  | 200     | 400 404 409
    POST   | /v1/sandbox/charges/{chargeId}/double         | 200     | 404 409
    POST   | /v1/sandbox/charges/{chargeId}/forget         | 200     | 404 409
    POST   | /v1/sandbox/faults                            | 201     | 400 404
    DELETE | /v1/sandbox/faults                            | 204     | 400 404
    POST   | /gateways/{accountId}/{connectionId}/webhook  | 200     | 400 404 413 429 500 503
""")

FIELDS = rows("""
    method | path                | field                          | required | limits
    POST   | /v1/products        | name                           | yes      | string minLength=1 maxLength=120
    POST   | /v1/products        | description                    | no       | string null maxLength=500
    POST   | /v1/products        | externalRef                    | no       | string null minLength=1 maxLength=120
    POST   | /v1/products        | pricing                        | yes      |
    POST   | /v1/products        | pricing.0.mode                 | yes      | string const=fixed
    POST   | /v1/products        | pricing.0.monthlyPriceCents    | yes      | integer minimum=0 maximum=999999999999
    POST   | /v1/products        | pricing.1.mode                 | yes      | string const=endpoint
    POST   | /v1/products        | pricing.1.url                  | yes      | string format=uri
    POST   | /v1/products        | pricing.1.capCents             | yes      | integer minimum=1 maximum=999999999999
    PATCH  | /v1/products/{productId} | name                      | no       | string minLength=1 maxLength=120
    PATCH  | /v1/products/{productId} | description               | no       | string null maxLength=500
    PATCH  | /v1/products/{productId} | monthlyPriceCents         | no       | integer minimum=0
    PATCH  | /v1/products/{productId} | endpointUrl               | no       | string format=uri
    PATCH  | /v1/products/{productId} | capCents                  | no       | integer minimum=1
    POST   | /v1/plans           | name                           | yes      | string minLength=1 maxLength=120
    POST   | /v1/plans           | periodMonths                   | yes      | integer enum=[1, 3, 6, 12]
    POST   | /v1/plans           | defaultPaymentMethod           | yes      | string enum=['card', 'pix', 'boleto']
    POST   | /v1/plans           | maxInstallments                | no       | integer minimum=1 maximum=12 default=1
    POST   | /v1/plans           | commitmentCycles               | no       | integer null minimum=1
    POST   | /v1/plans           | items                          | yes      | array minItems=1 maxItems=20
    POST   | /v1/plans           | items.productId                | yes      | string format=uuid
    POST   | /v1/plans           | items.position                 | no       | integer minimum=0 maximum=19
    POST   | /v1/plans           | items.discounts                | no       | array maxItems=20 default=[]
    POST   | /v1/plans           | items.discounts.percent        | yes      | integer minimum=1 maximum=100
    POST   | /v1/plans           | items.discounts.fromCycle      | yes      | integer minimum=1
    POST   | /v1/plans           | items.discounts.toCycle        | no       | integer null minimum=1
    PUT    | /v1/plans/{planId}  | items.discounts.percent        | yes      | integer minimum=1 maximum=100
    POST   | /v1/plans/{planId}/propagate | dryRun                | no       | boolean default=False
    POST   | /v1/plans/{planId}/propagate | fromVersion           | no       | integer null minimum=1
    POST   | /v1/subscriptions   | planId                         | yes      | string format=uuid
    POST   | /v1/subscriptions   | customer.externalRef           | yes      | string minLength=1 maxLength=120
    POST   | /v1/subscriptions   | customer.name                  | yes      | string minLength=1 maxLength=200
    POST   | /v1/subscriptions   | customer.email                 | yes      | string format=email
    POST   | /v1/subscriptions   | customer.document              | no       | string null minLength=11 maxLength=18
    POST   | /v1/subscriptions   | externalRef                    | no       | string null minLength=1 maxLength=120
    PATCH  | /v1/customers/{customerId} | name                    | no       | string minLength=1 maxLength=200
    PATCH  | /v1/customers/{customerId} | email                   | no       | string format=email
    PATCH  | /v1/customers/{customerId} | document                | no       | string null minLength=11 maxLength=18
    POST   | /v1/subscriptions   | paymentMethod                  | no       | string
    POST   | /v1/subscriptions   | chargeDay                      | no       | integer minimum=1 maximum=28
    POST   | /v1/subscriptions   | firstChargeDate                | no       | string format=date
    POST   | /v1/subscriptions   | startCycle                     | no       | integer minimum=1 maximum=1200 default=1
    POST   | /v1/subscriptions   | gatewayConnectionId            | no       | string format=uuid
    POST   | /v1/subscriptions/{subscriptionId}/customize | periodMonths | yes | integer enum=[1, 3, 6, 12]
    POST   | /v1/subscriptions/{subscriptionId}/customize | items.productId | yes | string format=uuid
    POST   | /v1/integration/api-keys | name                      | yes      | string minLength=1 maxLength=120
    POST   | /v1/integration/api-keys | scopes                    | no       | array minItems=1 maxItems=3
    POST   | /v1/integration/api-keys | expiresAt                 | no       | string null format=date-time
    PUT    | /v1/integration/pay-page | name                      | no       | string null minLength=1 maxLength=120
    PUT    | /v1/integration/pay-page | color                     | no       | string null pattern=^#[0-9a-fA-F]{6}$
    PUT    | /v1/integration/pay-page | logo                      | no       | string null maxLength=43692
    PUT    | /v1/integration/webhook | url                        | yes      | string format=uri
    POST   | /v1/integration/gateways | provider                  | yes      | string minLength=1
    POST   | /v1/integration/gateways | label                     | no       | string null minLength=1
    POST   | /v1/integration/gateways | credentials               | yes      | object
    POST   | /v1/integration/gateways | settings                  | no       | object
    PATCH  | /v1/integration/gateways/{connectionId} | active     | no       | boolean
    POST   | /v1/integration/gateways/{connectionId}/move | toConnectionId | yes | string format=uuid
    POST   | /v1/integration/gateways/{connectionId}/move | dryRun         | no  | boolean default=False
    POST   | /v1/integration/gateways/{connectionId}/statement | format    | yes | string
    GET    | /v1/products        | ?page                          | no       | integer minimum=1 maximum=1000000000
    GET    | /v1/products        | ?page                          | no       | integer default=1
    GET    | /v1/plans           | ?pageSize                      | no       | integer minimum=1 maximum=100 default=25
    GET    | /v1/products        | ?externalRef                   | no       | string minLength=1 maxLength=120
    GET    | /v1/products        | ?archived                      | no       | boolean
    GET    | /v1/plans           | ?archived                      | no       | boolean
    GET    | /v1/customers       | ?externalRef                   | no       | string minLength=1 maxLength=120
    GET    | /v1/subscriptions   | ?status                        | no       | string
    GET    | /v1/subscriptions   | ?externalRef                   | no       | string minLength=1 maxLength=120
    GET    | /v1/subscriptions   | ?planId                        | no       | string format=uuid
    GET    | /v1/subscriptions   | ?customerId                    | no       | string format=uuid
    GET    | /v1/subscriptions   | ?customerExternalRef           | no       | string minLength=1 maxLength=120
    GET    | /v1/invoices        | ?status                        | no       | string
    GET    | /v1/invoices        | ?subscriptionId                | no       | string format=uuid
    GET    | /v1/invoices        | ?customerId                    | no       | string format=uuid
    GET    | /v1/invoices        | ?dueFrom                       | no       | string format=date
    GET    | /v1/invoices        | ?dueTo                         | no       | string format=date
    GET    | /v1/events          | ?limit                         | no       | integer minimum=1 maximum=200 default=50
    GET    | /v1/events          | ?cursor                        | no       | string
""")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def contract(shared_world: World) -> Contract:
    """The document that `/docs-json` serves without an API key."""
    response = await shared_world._client.get("/docs-json")
    assert (response.status_code, response.headers["content-type"]) == (200, "application/json")
    return Contract(response.json())


async def test_the_document_is_valid_openapi(contract: Contract):
    """[spec 4.6 GET /docs-json 200]"""
    assert contract.document["openapi"].startswith("3.1.")
    assert list(OpenAPIV31SpecValidator(contract.document).iter_errors()) == []


async def test_the_document_has_exactly_the_routes(contract: Contract):
    """[spec 4.6 GET /docs-json 200, spec 9.1]"""
    documented = {(method, path) for method, path, _ in contract.operations()}
    assert documented == {(method, path) for method, path, _, _ in ROUTES}
    names = [operation["operationId"] for _, _, operation in contract.operations()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(("method", "path", "success", "refusals"), ROUTES)
async def test_a_route_documents_its_answers(contract: Contract, method, path, success, refusals):
    """[spec 4.6 GET /docs-json 200]"""
    operation = contract.document["paths"][path][method.lower()]
    everywhere = {"401", "403", "429", "500", "503"} if path.startswith("/v1/") else set()
    assert {success, *refusals.split()} | everywhere <= set(operation["responses"])
    assert operation["description"].strip()
    assert operation["security"] == ([{"ApiKey": []}] if everywhere else [])
    for status, response in operation["responses"].items():
        if status[0] == "4":
            at = ("paths", path, method.lower(), "responses", status, "content", "application/problem+json")
            for type_, example in response["content"]["application/problem+json"]["examples"].items():
                assert (example["value"]["type"], str(example["value"]["status"])) == (type_, status)
                assert contract.faults(example["value"], *at, "schema") == []


@pytest.mark.parametrize("row", FIELDS, ids=" ".join)
async def test_a_field_documents_its_limits(contract: Contract, row):
    """[spec 4.6 GET /docs-json 200]"""
    method, path, field, required, limits = row
    shown, needed = field_of(contract, contract.document["paths"][path][method.lower()], field)

    types, *bounds = re.split(r" (?=\w+=)", limits) if "=" in limits else [limits]
    assert needed is (required == "yes")
    for type_ in types.split():
        assert type_ in shown["type"]
    for bound in bounds:
        name, value = bound.split("=")
        assert str(shown[name]) == value


def field_of(contract: Contract, operation: Json, field: str) -> tuple[Json, bool]:
    """Return the schema of a request's field, merged by `flat`, and whether the field is required."""
    if field.startswith("?"):
        found = next(each for each in operation["parameters"] if each.get("name") == field[1:])
        return flat(contract, found["schema"]), found["required"]
    assert operation["requestBody"]["required"] is True
    node, needed = operation["requestBody"]["content"]["application/json"]["schema"], True
    for name in field.split("."):
        node = contract.resolve(node)
        node = contract.resolve(node.get("items", node))
        if name.isdigit():
            node = node["oneOf"][int(name)]
            continue
        assert node["additionalProperties"] is False
        needed = name in node.get("required", [])
        node = node["properties"][name]
    return flat(contract, node), needed


def flat(contract: Contract, node: Json) -> Json:
    """Return the schema `node`, merged with the alternatives in its `anyOf`."""
    node = contract.resolve(node)
    found: Json = {"type": [node["type"]] if "type" in node else []} | {
        name: value for name, value in node.items() if name != "type"
    }
    for each in node.get("anyOf", []):
        inner = flat(contract, each)
        found = {**inner, **found, "type": found["type"] + inner["type"]}
    return found


async def test_the_idempotency_key_is_documented(contract: Contract):
    """[D-14]"""
    required, optional = set[str](), set[str]()
    for method, path, operation in contract.operations():
        for parameter in map(contract.resolve, operation.get("parameters", [])):
            if parameter["name"] == "Idempotency-Key":
                assert method == "POST"
                assert (parameter["schema"]["minLength"], parameter["schema"]["maxLength"]) == (1, 255)
                (required if parameter["required"] else optional).add(path)
    assert required == {
        "/v1/invoices/{invoiceId}/reissue",
        "/v1/invoices/{invoiceId}/payments",
        "/v1/invoices/{invoiceId}/refunds",
        "/v1/products",
        "/v1/plans",
        "/v1/subscriptions",
    }
    assert optional == {
        path
        for method, path, _, _ in ROUTES
        if method == "POST"
        and path not in required
        and not re.search("sandbox|test-clock|retry-pricing|pricing-test|check$|^/gateways/", path)
    }


async def test_every_error_code_is_documented(contract: Contract):
    """[D-12]"""
    code = contract.document["components"]["schemas"]["Problem"]["properties"]["type"]
    assert code["enum"] == [problem.type for problem in CATALOGUE]
    for problem in CATALOGUE:
        assert f"| `{problem.type}` | {problem.status} |" in code["description"]


async def test_every_example_matches_its_schema(contract: Contract):
    """[spec 4.6 GET /docs-json 200]"""
    found = list(examples(contract.document, ()))
    assert len(found) > 500
    for pointer, example in found:
        assert contract.faults(example, *pointer) == [], (pointer, example)


async def test_every_body_and_answer_has_an_example(contract: Contract):
    """[spec 4.6 GET /docs-json 200]"""
    for place, content in contents(contract.document, ()):
        assert content["examples"], place


def contents(node: Json, pointer: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Json]]:
    if isinstance(node, dict):
        for media_type, content in node["content"].items() if "content" in node else ():
            yield (*pointer, "content", media_type), content
        for name, inner in node.items():
            if name not in {"examples", "schemas"}:
                yield from contents(inner, (*pointer, name))


async def test_every_event_type_is_a_webhook_with_its_own_payload(contract: Contract):
    """[D-36, D-37]"""
    webhooks = contract.document["webhooks"]
    assert list(webhooks) == list(EVENT_TYPES)
    for type_, item in webhooks.items():
        call = contract.resolve(item)["post"]
        schema = call["requestBody"]["content"]["application/json"]["schema"]
        assert contract.resolve(schema)["properties"]["type"]["const"] == type_
        assert call["security"] == []
    event = contract.document["components"]["schemas"]["Event"]
    assert set(event["discriminator"]["mapping"]) == set(EVENT_TYPES)


async def test_errors_of_events_and_resources_have_the_same_fields(contract: Contract):
    """An error has a `code` for programs and a `detail` for people. [D-36, D-55 health]"""
    schemas = contract.document["components"]["schemas"]
    fields = {name: set(each.get("properties", ())) for name, each in schemas.items()}
    assert {name for name, each in fields.items() if {"code", "message"} <= each} == set()
    assert len([name for name, each in fields.items() if {"code", "detail"} <= each]) >= 5


async def test_a_product_s_creation_documents_the_price_call(contract: Contract):
    """[spec 4.7 skip, D-31]"""
    callbacks = contract.document["paths"]["/v1/products"]["post"]["callbacks"]
    call = callbacks["price"]["{$request.body#/pricing/url}"]["post"]
    asked = contract.resolve(call["requestBody"]["content"]["application/json"]["schema"])
    assert asked["properties"]["version"]["const"] == 1
    answered = contract.resolve(call["responses"]["2XX"]["content"]["application/json"]["schema"])
    assert set(answered["properties"]) == {"amount", "description", "skip"}


def examples(node: Json, pointer: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Json]]:
    """Yield every example in the document, with the path of the schema that the example must match."""
    if isinstance(node, dict):
        for example in node.get("examples", ()) if isinstance(node.get("examples"), list) else ():
            yield pointer, example
        if "schema" in node and isinstance(node.get("examples"), dict):
            for example in node["examples"].values():
                yield (*pointer, "schema"), example["value"]
        for name, inner in node.items():
            if name not in {"examples", "example"}:
                yield from examples(inner, (*pointer, name))
    elif isinstance(node, list):
        for place, inner in enumerate(node):
            yield from examples(inner, (*pointer, str(place)))


async def test_the_page_loads_nothing_from_other_hosts(shared_world: World):
    """[spec 4.6 GET /docs 200]"""
    page = await shared_world._client.get("/docs")
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "/docs-json" in page.text
    assert not re.search(r"(https?:)?//[\w.]", page.text)
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; connect-src 'self'")
    assert "http" not in policy
    assets = re.findall(r'(?:src|href)="(/[^"]+)"', page.text)
    assert len(assets) == 2
    for asset in assets:
        served = await shared_world._client.get(asset)
        assert served.status_code == 200
        assert len(served.content) > 10_000
        assert not re.search(rb"(?:@import|url\()\s*[\"']?https?:", served.content)
    for outside in ("../openapi.py", "%2e%2e/__init__.py", "nothing.js"):
        assert (await shared_world._client.get(f"/docs/assets/{outside}")).status_code == 404
