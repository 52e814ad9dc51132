"""The order of the checks of a request, strict JSON, paths, methods and request ids (D-10, D-11, D-13)."""

import json
import re
from collections.abc import AsyncGenerator

import pytest

from tests.support.expect import UNKNOWN_ID, invalid, problem
from tests.support.world import Answer, World, open_world

pytestmark = pytest.mark.asyncio(loop_scope="module")
BODY = {"name": "Gym", "pricing": {"mode": "fixed", "monthlyPriceCents": 1}}
TOO_LARGE = b" " * (256 * 1024 + 1)


async def raw(world: World, method: str, path: str, *, content: bytes = b"", **headers: str) -> Answer:
    """Send a request with exactly the given headers. An underscore in a keyword stands for a hyphen."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    response = await world._client.request(method, path, content=content, headers=sent)
    return Answer(response.status_code, response.content, response.headers)


@pytest.mark.asyncio(loop_scope="session")
async def test_the_order_of_the_first_checks(database_url: str):
    """The API checks the route first, then method, API key, rate limit and size. [D-10, D-48, spec 7 401]"""
    async with open_world(database_url, FATURA_RATE_LIMIT="20") as world:
        no_key, with_key = {}, {"Authorization": f"Bearer {world.api_key}"}
        for method, path, headers, expected in [
            ("POST", "/v1/nothing", no_key, (404, "engine.not_found")),
            ("PUT", "/v1/plans", no_key, (405, "engine.method_not_allowed")),
            ("POST", "/v1/plans", no_key, (401, "engine.unauthorized")),
            ("POST", "/v1/plans", with_key, (413, "engine.payload_too_large")),
        ]:
            assert problem(await raw(world, method, path, content=TOO_LARGE, **headers))[:2] == expected

        asked = [await raw(world, "POST", "/v1/plans", content=TOO_LARGE, **with_key) for _ in range(100)]
        assert {answer.status for answer in asked} == {413, 429}


@pytest.mark.asyncio(loop_scope="session")
async def test_the_order_of_checks_of_a_plan(world: World):
    """The order is: size, headers, JSON, fields, 422 for the Idempotency-Key, 404, 409, other 422.
    Each request corrects the error that caused the previous refusal.
    [D-10, spec 7 400, spec 7 404, spec 7 409 archived product]
    """
    archived = await world.product()
    await world.post(f"/v1/products/{archived['id']}/archive", key="used")

    def offer(*products: str) -> bytes:
        items = [{"productId": each} for each in products]
        terms = {"periodMonths": 1, "defaultPaymentMethod": "pix", "maxInstallments": 2}
        return json.dumps({"name": "x", **terms, "items": items}).encode()

    unknown_too = offer(UNKNOWN_ID, archived["id"])
    for content, key, expected in [
        (TOO_LARGE, None, (413, "engine.payload_too_large")),
        (b"{", None, (400, "engine.idempotency_key_required")),
        (b"{", "used", (400, "engine.invalid_request")),
        (offer(), "used", (400, "engine.invalid_request")),
        (unknown_too, "used", (422, "engine.idempotency_key_reused")),
        (unknown_too, "fresh", (404, "engine.not_found")),
        (offer(archived["id"]), "fresh", (409, "engine.product_archived")),
        (offer((await world.product())["id"]), "fresh", (422, "engine.installments_unsupported")),
    ]:
        assert problem(await world.post("/v1/plans", key=key, content=content))[:2] == expected
    assert await world.all("/v1/plans") == []


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/v1",
        "/v2/products",
        "/v1/products/",
        "/V1/products",
        "/v1/product",
        "/v1//products",
        "/redoc",
        "/openapi.json",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
async def test_an_unknown_route_is_a_404(shared_world: World, method, path):
    """[D-11, D-10, spec 9.1]"""
    answer = await raw(shared_world, method, path)
    assert problem(answer) == (404, "engine.not_found", None)


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "/v1/products", "GET, HEAD, POST"),
        ("OPTIONS", "/v1/products", "GET, HEAD, POST"),
        ("PUT", "/v1/products/x", "GET, HEAD, PATCH"),
        ("GET", "/v1/products/x/archive", "POST"),
        ("PATCH", "/v1/plans/x", "GET, HEAD, PUT"),
        ("POST", "/health", "GET, HEAD"),
        ("POST", "/docs", "GET, HEAD"),
        ("BREW", "/v1/integration", "GET, HEAD"),
    ],
)
async def test_a_wrong_method_is_a_405(shared_world: World, method, path, allowed):
    """[D-11, D-12]"""
    answer = await raw(shared_world, method, path)
    assert problem(answer) == (405, "engine.method_not_allowed", None)
    assert answer.headers["allow"] == allowed


@pytest.mark.parametrize(
    ("content", "fields"),
    [
        (b"", [""]),
        (b"{", [""]),
        (b"null", [""]),
        (b'{"name": "a\\u0000b"}', ["name"]),
        (b'{"pricing": {"mode": "fixed", "mode": "fixed"}}', ["pricing.mode"]),
        (b'{"name":' + b"[" * 33 + b"]" * 33 + b"}", ["name" + "[0]" * 31]),
    ],
)
async def test_invalid_json_is_refused(shared_world: World, content, fields):
    """[D-11, D-8]"""
    before = (await shared_world.get("/v1/products")).json["pagination"]
    assert list(invalid(await shared_world.post("/v1/products", content=content))) == fields
    assert (await shared_world.get("/v1/products")).json["pagination"] == before


async def test_a_body_of_more_than_256_kib_is_refused(shared_world: World):
    """[D-11, D-12]"""
    content = json.dumps(BODY).encode()
    fits = content + b" " * (256 * 1024 - len(content))
    assert (await shared_world.post("/v1/products", content=fits)).status == 201

    answer = await shared_world.post("/v1/products", content=fits + b" ")
    assert problem(answer) == (413, "engine.payload_too_large", None)

    async def pieces() -> AsyncGenerator[bytes]:
        for _ in range(5):
            yield b" " * 65536

    headers = {"Authorization": f"Bearer {shared_world.api_key}", "Idempotency-Key": "x"}
    response = await shared_world._client.post("/v1/products", content=pieces(), headers=headers)
    assert response.json()["type"] == "engine.payload_too_large"


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "0",
        "{id:.35}",
        "{id}0",
        "{{{id}}}",
        "{hex}",
        "urn:uuid:{id}",
        "{id}%00",
        "%ff",
        "%00",
        "..",
        "{id}%20",
        "a" * 5000,
    ],
)
async def test_a_malformed_id_is_a_404(shared_world: World, text):
    """[D-11, spec 5.4, spec 2.1 ids]"""
    product = await shared_world.product()
    malformed = text.format(id=product["id"], hex=product["id"].replace("-", ""))
    for method, path in (("GET", ""), ("PATCH", ""), ("POST", "/archive")):
        answer = await shared_world.call(
            method, f"/v1/products/{malformed}{path}", {} if method == "PATCH" else None
        )
        assert problem(answer) == (404, "engine.not_found", None)


async def test_every_answer_has_a_request_id(shared_world: World):
    """[D-13]"""
    for given in ("x", "order-4711", "~" * 128, "{}|<>"):
        for path in ("/v1/products", f"/v1/products/{UNKNOWN_ID}", "/nowhere", "/health", "/docs"):
            answer = await shared_world.get(path, headers={"X-Request-Id": given})
            assert answer.headers.get_list("x-request-id") == [given]
            if answer.status != 200:
                assert answer.json["requestId"] == given
    for unfit in ("", " ", "a b", "x" * 129, "\x7f"):
        answer = await shared_world.get("/v1/products/x", headers={"X-Request-Id": unfit})
        made = answer.headers["x-request-id"]
        assert re.fullmatch(r"[0-9a-f-]{36}", made)
        assert answer.json["requestId"] == made


async def test_answers_may_not_be_cached(shared_world: World):
    """[spec 7 problem+json]"""
    for path in ("/v1/products", f"/v1/products/{UNKNOWN_ID}"):
        answer = await shared_world.get(path)
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"


async def test_a_head_has_the_status_of_its_get(shared_world: World):
    """[D-11]"""
    assert (await shared_world.call("HEAD", "/v1/products")).status == 200
    assert (await raw(shared_world, "HEAD", "/v1/products")).status == 401
