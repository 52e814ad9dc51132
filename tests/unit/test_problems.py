"""Error responses, and the order in which a request is checked. [spec 7 problem+json, D-10]"""

import httpx
import pytest

from fatura.domain.errors import (
    IDEMPOTENCY_KEY_REQUIRED,
    INVALID_REQUEST,
    METHOD_NOT_ALLOWED,
    NOT_FOUND,
    UNAUTHORIZED,
    Problem,
)
from tests.unit.tiny_api import KEY, UNKNOWN_ID, client_of, fields_of, tiny_api

TOO_LONG = "x" * 129


def check(answer: httpx.Response, problem: Problem) -> None:
    """Check that a response is exactly this problem document."""
    assert answer.status_code == problem.status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    body = answer.json()
    assert set(body) - {"meta"} == {"type", "title", "status", "detail", "requestId"}
    assert (body["type"], body["title"], body["status"]) == (problem.type, problem.title, problem.status)
    assert body["requestId"] == answer.headers["x-request-id"]
    assert body["detail"]


ORDER = [
    ("/v1/nothing", {}, b"{", NOT_FOUND),
    ("/v1/things", {}, b"x" * 300_000, UNAUTHORIZED),
    ("/v1/things", {"Authorization": f"Bearer {KEY}"}, b"{", IDEMPOTENCY_KEY_REQUIRED),
    ("/v1/things", {"Authorization": f"Bearer {KEY}", "Idempotency-Key": "a b"}, b"{", INVALID_REQUEST),
]


@pytest.mark.parametrize(("path", "headers", "content", "problem"), ORDER)
async def test_the_first_error_of_a_request_is_returned(path, headers, content, problem):
    """The order is: route, 401, 413, 400 for headers, 400 for everything else. [D-10, D-11]"""
    async with client_of(tiny_api(), None) as client:
        check(await client.post(path, headers=headers, content=content), problem)


async def test_a_malformed_body_comes_before_a_malformed_id(client):
    """[D-10]"""
    check(await client.patch("/v1/things/nonsense", json={"name": ""}), INVALID_REQUEST)
    check(await client.patch("/v1/things/nonsense", json={"name": "x"}), NOT_FOUND)


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v1/", "/v1/things/", "//v1/things", "/v1/Things", "/redoc", "/openapi.json"]
)
async def test_unknown_routes_are_404(client, path):
    """[D-11]"""
    check(await client.get(path), NOT_FOUND)


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "/v1/things", "GET, HEAD, POST"),
        ("OPTIONS", "/v1/things", "GET, HEAD, POST"),
        ("POST", f"/v1/things/{UNKNOWN_ID}", "GET, HEAD, PATCH"),
        ("GET", f"/v1/things/{UNKNOWN_ID}/archive", "POST"),
        ("POST", "/health", "GET, HEAD"),
        ("POST", "/docs", "GET, HEAD"),
    ],
)
async def test_wrong_methods_are_405(client, method, path, allowed):
    """[D-11]"""
    answer = await client.request(method, path)
    check(answer, METHOD_NOT_ALLOWED)
    assert answer.headers["allow"] == allowed


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("Authorization", "")],
        [("Authorization", KEY)],
        [("Authorization", f"Basic {KEY}")],
        [("Authorization", f"Bearer{KEY}")],
        [("Authorization", f"Bearer  {KEY}")],
        [("Authorization", f"Bearer {KEY} {KEY}")],
        [("Authorization", "Bearer ")],
        [("Authorization", f"Bearer {KEY}x")],
        [("Authorization", "Bearer " + "x" * 8000)],
        [("Authorization", b"Bearer \xff\xfe")],
        [("Authorization", f"Bearer {KEY}"), ("Authorization", f"Bearer {KEY}")],
        [("X-Api-Key", KEY)],
    ],
)
async def test_a_missing_or_malformed_key_is_401(headers):
    """[spec 5.1, spec 5.3, spec 7 401]"""
    async with client_of(tiny_api(), None) as client:
        answer = await client.get("/v1/things", headers=headers)
        check(answer, UNAUTHORIZED)
        assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
async def test_the_scheme_may_have_any_case(scheme):
    """[spec 5.1]"""
    async with client_of(tiny_api(), None) as client:
        assert (
            await client.get("/v1/things", headers={"Authorization": f"{scheme} {KEY}"})
        ).status_code == 200


async def test_every_invalid_field_is_listed_in_one_answer(client):
    """[spec 7 400, D-11]"""
    body = {
        "name": " ",
        "ref": 7,
        "pricing": {"mode": "fixed", "cents": 10.5, "cap": 1},
        "items": [
            {
                "product": "x",
                "discounts": [{"percent": 20, "first": 1}, {"percent": 101, "first": 0}],
            },
            {"discounts": [{"percent": 1, "first": 3, "last": 2}]},
        ],
        "method": "cash",
        "free": [],
        "id": UNKNOWN_ID,
    }
    answer = await client.post("/v1/things", json=body, headers={"Idempotency-Key": "k"})
    check(answer, INVALID_REQUEST)
    assert fields_of(answer) == [
        ("name", "must be text of 1 to 120 characters, and not blank"),
        ("ref", "must be text of 1 to 120 characters, and not blank"),
        ("pricing.cents", "must be an integer from 0 to 999999999999"),
        ("pricing.cap", "is not a field of this request"),
        ("items[0].product", "must be a UUID of 36 characters"),
        ("items[0].discounts[1].percent", "must be an integer from 1 to 100"),
        ("items[0].discounts[1].first", "must be an integer from 1 to 2147483647"),
        ("items[1].product", "is required"),
        ("items[1].discounts[0].last", "must be at least first"),
        ("method", "must be card, pix or boleto"),
        ("free", "must be an object"),
        ("id", "is not a field of this request"),
    ]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, ("name", "is required")),
        ({"name": "x", "pricing": {}}, ("pricing.mode", "is required")),
        ({"name": "x", "pricing": {"mode": "free"}}, ("pricing.mode", "must be fixed or endpoint")),
        ({"name": "x", "pricing": {"mode": None}}, ("pricing.mode", "must be fixed or endpoint")),
        ({"name": "x", "pricing": {"mode": "fixed"}}, ("pricing.cents", "is required")),
        ({"name": "x", "pricing": {"mode": "fixed", "cents": 1, "fixed": 1}},
         ("pricing.fixed", "is not a field of this request")),
        ({"name": "x", "pricing": 1}, ("pricing", "must be an object")),
        ({"name": "x", "items": {}}, ("items", "must be an array")),
        ({"name": "x", "items": [1]}, ("items[0]", "must be an object")),
        ({"name": "x", "items": [{"product": UNKNOWN_ID}] * 3}, ("items", "must have at most 2 entries")),
        ({"name": None}, ("name", "must be text of 1 to 120 characters, and not blank")),
        ({"name": "x", "Name": "y"}, ("Name", "is not a field of this request")),
    ],
)  # fmt: skip
async def test_each_invalid_field_has_a_path_and_a_plain_message(client, body, field):
    """[D-11]"""
    answer = await client.post("/v1/things", json=body, headers={"Idempotency-Key": "k"})
    assert field in fields_of(answer)


async def test_a_patch_distinguishes_null_from_an_omitted_field(client):
    path = f"/v1/things/{UNKNOWN_ID}"
    assert (await client.patch(path, json={})).json() == {}
    assert (await client.patch(path, json={"note": None})).json() == {"note": None}
    assert fields_of(await client.patch(path, json={"name": None, "note": 1})) == [
        ("name", "must be text of 1 to 120 characters, and not blank"),
        ("note", "must be text of at most 500 characters"),
    ]


@pytest.mark.parametrize(
    ("query", "fields"),
    [
        ("page=0&pageSize=101", ["page", "pageSize"]),
        ("page=1000000001", ["page"]),
        ("page=&pageSize=x&archived=yes&plan=1", ["page", "pageSize", "archived", "plan"]),
        ("page=1&page=1", ["page"]),
        ("page=1%002", ["page", "page"]),
        ("page=%ff", ["query"]),
        ("&".join(f"x{number}=1" for number in range(101)), ["query"]),
    ],
)
async def test_a_malformed_query_is_400(client, query, fields):
    """[D-11, D-16, spec 8 page size]"""
    answer = await client.get(f"/v1/things?{query}")
    check(answer, INVALID_REQUEST)
    assert [path for path, _ in fields_of(answer)] == fields


async def test_a_query_has_defaults(client):
    """[spec 8 page size]"""
    of = {"archived": None, "of": "None"}
    assert (await client.get("/v1/things")).json() == {"page": 1, "pageSize": 25, **of}
    assert (await client.get("/v1/things?page=1000000000&pageSize=100")).json() == {
        "page": 1_000_000_000,
        "pageSize": 100,
        **of,
    }
    assert (await client.get(f"/v1/things?archived=true&plan={UNKNOWN_ID}")).json()["of"] == UNKNOWN_ID


KNOWN = "archived, page, pageSize, plan"


@pytest.mark.parametrize(
    ("query", "fields"),
    [
        ("utm=x&utm=y", [("utm", f"this route takes {KNOWN}")]),
        ("page_size=5&PLAN=1", [("page_size", "did you mean pageSize?"), ("PLAN", "did you mean plan?")]),
        ("archive", [("archive", "did you mean archived?")]),
        ("=1", [("query", f"this route takes {KNOWN}")]),
        ("%00=1", [("\0", f"this route takes {KNOWN}")]),
        ("x" * 2000, [("x" * 120, f"this route takes {KNOWN}")]),
    ],
)
async def test_an_unknown_query_parameter_is_400(client, query, fields):
    """[D-60]"""
    answer = await client.get(f"/v1/things?{query}")
    check(answer, INVALID_REQUEST)
    assert fields_of(answer) == [(path, f"unknown query parameter; {rest}") for path, rest in fields]


async def test_all_invalid_parts_of_a_query_are_listed(client):
    """[D-11, D-60]"""
    answer = await client.get("/v1/things?page=0&sort=name&plan=1&plan=1")
    assert [path for path, _ in fields_of(answer)] == ["sort", "plan", "page", "plan"]


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_route_without_parameters_refuses_any(client, method):
    """[D-60]"""
    path = f"/v1/things/{UNKNOWN_ID}" + ("" if method == "GET" else "/poke")
    answer = await client.request(method, f"{path}?expand=items")
    check(answer, INVALID_REQUEST)
    assert fields_of(answer) == [("expand", "unknown query parameter; this route takes none")]


async def test_routes_without_authentication_accept_any_query(client):
    """Health probes may add their own parameters. [D-60]"""
    for path in ("/health", "/docs", "/docs-json"):
        assert (await client.get(f"{path}?cache=1")).status_code == 200


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "1",
        UNKNOWN_ID.replace("-", ""),
        "{" + UNKNOWN_ID + "}",
        UNKNOWN_ID + "x",
        "%00",
        "%ff",
        "x" * 2000,
    ],
)
async def test_a_malformed_id_is_404(client, text):
    """[spec 5.4, D-11]"""
    answer = await client.get(f"/v1/things/{text}")
    check(answer, NOT_FOUND)
    assert answer.json()["detail"].startswith("No thing has the id ")


async def test_ids_may_have_either_case(client):
    """[spec 2.1 ids]"""
    path = f"/v1/things/{UNKNOWN_ID.upper()}"
    found = (await client.get(path)).json()
    assert found == {"got": UNKNOWN_ID, "onlyReads": True}


@pytest.mark.parametrize("key", ["x" * 256, "", "a b", "\u00e9", "a\tb"])
async def test_a_malformed_idempotency_key_is_400(client, key):
    """[D-14]"""
    headers = {"Idempotency-Key": key.encode()}
    for path in ("/v1/things", f"/v1/things/{UNKNOWN_ID}/archive"):
        answer = await client.post(path, headers=headers)
        assert fields_of(answer)[0][0] == "Idempotency-Key"
    ignored = await client.post(f"/v1/things/{UNKNOWN_ID}/poke", headers=headers)
    assert ignored.json() == {"got": UNKNOWN_ID, "key": None}


async def test_two_idempotency_keys_are_400(client):
    """[D-14]"""
    answer = await client.post("/v1/things", headers=[("Idempotency-Key", "a"), ("Idempotency-Key", "a")])
    assert [path for path, _ in fields_of(answer)] == ["Idempotency-Key"]


async def test_the_endpoint_gets_key_and_body(client):
    """[D-14]"""
    answer = await client.post(
        "/v1/things", json={"name": "x"}, headers={"Idempotency-Key": "!~" + "x" * 253}
    )
    assert answer.status_code == 201
    assert (answer.json()["key"], answer.json()["value"]) == ("!~" + "x" * 253, {"name": "x"})
    assert answer.json()["target"] == "POST /v1/things"
    check(await client.post("/v1/things", json={"name": "x"}), IDEMPOTENCY_KEY_REQUIRED)
