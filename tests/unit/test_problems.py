"""Error responses, and the order in which a request is checked. [spec 7 problem+json, D-10]"""

import httpx
import pytest

from fatura.api.http.forms import MAX_UNKNOWN
from fatura.domain.errors import (
    IDEMPOTENCY_KEY_REQUIRED,
    INVALID_REQUEST,
    NOT_FOUND,
    Problem,
)
from tests.unit.tiny_api import UNKNOWN_ID, fields_of


def check(answer: httpx.Response, problem: Problem) -> None:
    """Check that a response is a problem document of this type, with all its fields."""
    assert answer.status_code == problem.status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    body = answer.json()
    assert set(body) - {"meta"} == {"type", "title", "status", "detail", "requestId"}
    assert (body["type"], body["title"], body["status"]) == (problem.type, problem.title, problem.status)
    assert body["requestId"] == answer.headers["x-request-id"]
    assert body["detail"]


async def test_a_malformed_body_comes_before_a_malformed_id(client):
    """[D-10]"""
    check(await client.patch("/v1/things/nonsense", json={"name": ""}), INVALID_REQUEST)
    check(await client.patch("/v1/things/nonsense", json={"name": "x"}), NOT_FOUND)


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
        ({"name": "x", "items": [{"product": UNKNOWN_ID}] * 3}, ("items", "must have at most 2 elements")),
        ({"name": None}, ("name", "must be text of 1 to 120 characters, and not blank")),
        ({"name": "x", "Name": "y"}, ("Name", "is not a field of this request")),
    ],
)  # fmt: skip
async def test_each_invalid_field_has_a_path_and_a_plain_message(client, body, field):
    """[D-11]"""
    answer = await client.post("/v1/things", json=body, headers={"Idempotency-Key": "k"})
    assert field in fields_of(answer)


@pytest.mark.parametrize("path", ["", "pricing."])
async def test_an_object_with_many_unknown_fields_lists_the_first_of_them(client, path):
    """The known fields are still validated, and listed before the unknown fields. [D-104, D-11]"""
    many = {f"x{number}": number for number in range(2_000)}
    body = (
        {"name": "", **many} if not path else {"name": "x", "pricing": {**many, "mode": "fixed", "cents": -1}}
    )
    fields = fields_of(await client.post("/v1/things", json=body, headers={"Idempotency-Key": "k"}))

    assert fields[0][0] == path + ("cents" if path else "name")
    assert fields[1:] == [
        (f"{path}x{number}", "is not a field of this request") for number in range(MAX_UNKNOWN)
    ]


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
        ("page=1%002", ["page"]),
        ("page=%ff", ["query"]),
        ("&".join(f"x{number}=1" for number in range(101)), ["query"]),
    ],
)
async def test_a_malformed_query_is_400(client, query, fields):
    """[D-11, D-16, spec 8 page size]"""
    answer = await client.get(f"/v1/things?{query}")
    check(answer, INVALID_REQUEST)
    assert [path for path, _ in fields_of(answer)] == fields


KNOWN = "archived, page, pageSize, plan"


@pytest.mark.parametrize(
    ("query", "fields"),
    [
        ("utm=x&utm=y", [("utm", f"this route takes {KNOWN}")]),
        ("page_size=5&PLAN=1", [("page_size", "did you mean pageSize?"), ("PLAN", "did you mean plan?")]),
        ("archive", [("archive", "did you mean archived?")]),
        (
            "pag=1&Page=1&archive=1&plans=1",
            [
                ("pag", "did you mean page?"),
                ("Page", "did you mean page?"),
                ("archive", "did you mean archived?"),
                ("plans", f"this route takes {KNOWN}"),
            ],
        ),
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
    """Monitoring and browsers may add query parameters of their own. [D-60]"""
    for path in ("/health", "/docs", "/docs-json"):
        assert (await client.get(f"{path}?cache=1")).status_code == 200


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
