"""API keys: authentication, creation, listing and revocation (spec 5, D-41)."""

import asyncio
import re
from collections.abc import Sequence

import pytest

from fatura.domain.credentials import Mode
from tests.support.expect import INSTANT, UNKNOWN_ID, invalid, problem
from tests.support.world import Answer, World

KEYS = "/v1/integration/api-keys"
KEY_TEXT = re.compile(r"rk_(live|test)_[0-9A-Za-z]{22}_[0-9A-Za-z]{43}")


async def with_headers(world: World, *headers: tuple[str, str]) -> Answer:
    """Request the list of products. Send exactly the given headers."""
    sent = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    response = await world._client.request("GET", "/v1/products", headers=sent)
    return Answer(response.status_code, response.content, response.headers)


def flipped(key: str, place: int) -> str:
    """Return a copy of the key with another character at index `place`."""
    return key[:place] + ("A" if key[place] != "A" else "B") + key[place + 1 :]


async def test_a_key_authenticates_its_account(world: World):
    """[spec 5.1, spec 5.2]"""
    product = await world.product()
    live = await world.another(Mode.LIVE)

    assert [key.api_key[:8] for key in (world, live)] == ["rk_test_", "rk_live_"]
    for scheme in ("Bearer", "bearer", "BEARER"):
        answer = await with_headers(world, ("Authorization", f"{scheme} {world.api_key}"))
        assert (answer.status, answer.json["data"]) == (200, [product])
    assert (await live.get("/v1/products")).json["data"] == []


@pytest.mark.asyncio(loop_scope="module")
async def test_a_missing_or_invalid_key_is_refused(shared_world: World):
    """[spec 5.1, spec 5.2, spec 5.3, spec 7 401]"""
    key = shared_world.api_key
    theirs = (await shared_world.another()).api_key
    name = "Authorization"
    refused: Sequence[Sequence[tuple[str, str]]] = [
        [],
        [(name, "")],
        [(name, key)],
        [(name, "Bearer")],
        [(name, f"Bearer{key}")],
        [(name, f"Bearer {key}x")],
        [(name, "Bearer \xff\xfe")],
        [(name, "Bearer ")],
        [(name, f"Bearer  {key}")],
        [(name, f"Bearer {key} x")],
        [(name, f"Basic {key}")],
        [(name, f"Bearer {key}"), (name, f"Bearer {key}")],
        [("X-Api-Key", key)],
        [(name, "Bearer rk_")],
        [(name, "Bearer rk_test_x_y")],
        [(name, f"Bearer {key[3:]}")],
        [(name, f"Bearer pk{key[2:]}")],
        [(name, f"Bearer {key.lower()}")],
        [(name, f"Bearer {flipped(key, len(key) - 1)}")],
        [(name, f"Bearer {flipped(key, 10)}")],
        [(name, f"Bearer {key.replace('rk_test', 'rk_live')}")],
        [(name, f"Bearer {theirs[:30]}{key[30:]}")],
        [(name, f"Bearer {key[:8]}{'z' * 22}{key[30:]}")],
        [(name, f"Bearer {key}é")],
        [(name, "Bearer " + "rk_test_" * 1000)],
    ]

    for headers in refused:
        answer = await with_headers(shared_world, *headers)
        assert problem(answer) == (401, "engine.unauthorized", None), headers
        assert answer.headers["www-authenticate"] == "Bearer"
        assert "rk_..." in answer.json["detail"]
        assert key[8:30] not in answer.body.decode()
    assert (await with_headers(shared_world, (name, f"Bearer {key}"))).status == 200


async def test_a_new_key_is_shown_only_in_its_creation(world: World):
    """[D-41, spec 4.6 POST /v1/integration/api-keys 201]"""
    made = await world.post(KEYS, {"name": " checkout "})
    key = made.json

    assert made.status == 201
    assert KEY_TEXT.fullmatch(key["key"])
    assert key == {
        "id": key["id"],
        "name": " checkout ",
        "key": key["key"],
        "prefix": key["key"][: len(key["prefix"])],
        "scopes": ["read", "write", "admin"],
        "expiresAt": None,
        "createdAt": key["createdAt"],
        "lastUsedAt": None,
        "revokedAt": None,
    }
    assert INSTANT.fullmatch(key["createdAt"])
    assert len(key["key"]) - len(key["prefix"]) >= 39  # the characters after the prefix are secret

    listed = await world.get(KEYS)
    shown = {name: value for name, value in key.items() if name != "key"}
    assert listed.status == 200
    assert listed.json["data"][0] == shown
    assert [each["name"] for each in listed.json["data"]] == [" checkout ", "first key"]
    assert key["key"] not in listed.body.decode()


async def test_a_key_shows_its_last_use(world: World):
    """[D-41]"""
    key = await world.made(KEYS, {"name": "second"})
    await with_headers(world, ("Authorization", f"Bearer {key['key']}"))

    used = (await world.get(KEYS)).json["data"][0]["lastUsedAt"]
    assert INSTANT.fullmatch(used)
    assert used >= key["createdAt"]


async def test_a_revoked_key_is_refused_immediately(world: World):
    """[D-41, spec 5.3]"""
    key = await world.made(KEYS, {"name": "leaked"})
    header = ("Authorization", f"Bearer {key['key']}")
    assert (await with_headers(world, header)).status == 200

    revoked = await world.delete(f"{KEYS}/{key['id']}")
    assert (revoked.status, revoked.body) == (204, b"")
    assert problem(await with_headers(world, header)) == (401, "engine.unauthorized", None)
    first = (await world.get(KEYS)).json["data"][0]
    assert INSTANT.fullmatch(first["revokedAt"])
    await world.advance(days=1)
    assert (await world.delete(f"{KEYS}/{key['id']}")).status == 204
    assert (await world.get(KEYS)).json["data"][0] == first
    assert (await world.get("/v1/products")).status == 200


async def test_a_key_may_revoke_itself(world: World):
    """[D-41]"""
    own = (await world.get(KEYS)).json["data"][0]
    await world.made(KEYS, {"name": "another"})

    assert (await world.delete(f"{KEYS}/{own['id']}")).status == 204
    assert (await world.get(KEYS)).status == 401


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({}, ["name"]),
        ({"name": ""}, ["name"]),
        ({"name": " "}, ["name"]),
        ({"name": "x" * 121}, ["name"]),
        ({"name": None}, ["name"]),
        ({"name": "x", "key": "rk_test_mine"}, ["key"]),
        (None, [""]),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_a_key_needs_a_name(shared_world: World, body, fields):
    """[spec 7 400]"""
    before = (await shared_world.get(KEYS)).json["data"]
    assert sorted(invalid(await shared_world.post(KEYS, body))) == fields
    assert len((await shared_world.get(KEYS)).json["data"]) == len(before)


async def test_another_account_s_key_cannot_be_revoked(world: World):
    """[spec 5.4]"""
    other = await world.another()
    theirs = (await other.get(KEYS)).json["data"][0]["id"]

    for key_id in (theirs, UNKNOWN_ID):
        assert problem(await world.delete(f"{KEYS}/{key_id}")) == (404, "engine.not_found", None)
    assert (await other.get(KEYS)).json["data"][0]["revokedAt"] is None


async def test_every_route_but_health_requires_a_key(world: World):
    """The route for gateway webhooks needs no API key, because payment gateways sign their calls.
    [spec 5.1, spec 5.3, spec 5.8, D-10]
    """
    contract = (await world.get("/docs-json")).json
    open_routes: set[str] = set()
    for path, operations in contract["paths"].items():
        for method in operations:
            url = re.sub(r"\{\w+\}", "x", path)
            response = await world._client.request(method, url, content=b"{")
            answer = Answer(response.status_code, response.content, response.headers)
            if answer.status == 200 or path.startswith("/gateways/"):
                open_routes.add(path)
            else:
                assert problem(answer) == (401, "engine.unauthorized", None), (method, path)

    assert open_routes == {"/health", "/health/ready", "/gateways/{accountId}/{connectionId}/webhook"}


async def test_no_column_contains_a_secret_in_plain_text(world: World):
    """[D-41, D-14]"""
    await world.post(KEYS, {"name": "one"}, key="k-1")
    shown = (await world.post(KEYS, {"name": "one"}, key="k-1")).json

    stored = await all_rows(world)
    assert shown["prefix"].lower() in stored
    for secret in (world.api_key, shown["key"]):
        for form in (secret[-43:], secret[-43:-20]):
            assert form.lower() not in stored
            assert form.encode().hex() not in stored


async def all_rows(world: World) -> str:
    """Return the text of every row that the account can read, in lower case and with binary columns in hex."""
    tables = await world.sql("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    found = [
        row[0]
        for (table,) in tables
        for row in await world.sql(f"SELECT t::text FROM {table} t")  # noqa: S608 - names of our tables
    ]
    return "\n".join(found).lower()


async def test_concurrently_created_keys_differ(world: World):
    """[D-41]"""
    made = await asyncio.gather(*[world.made(KEYS, {"name": "x"}) for _ in range(8)])
    assert len({key["key"] for key in made}) == 8


async def test_an_account_has_a_limited_number_of_keys(world: World, monkeypatch: pytest.MonkeyPatch):
    """Concurrent requests do not exceed the limit. Revoked keys do not count. [D-189]"""
    monkeypatch.setattr("fatura.usecases.accounts.api_keys.MAX_API_KEYS", 3)

    made = await asyncio.gather(*(world.post(KEYS, {"name": "x"}) for _ in range(6)))

    assert sorted(answer.status for answer in made) == [201, 201, 422, 422, 422, 422]
    refused = next(answer for answer in made if answer.status == 422)
    assert problem(refused) == (422, "engine.too_many_api_keys", {"limit": 3})
    assert "revoke" in refused.json["detail"].lower()
    [first, *_] = (await world.get(KEYS)).json["data"]
    await world.delete(f"{KEYS}/{first['id']}")
    await world.made(KEYS, {"name": "instead"})
    assert (await world.post(KEYS, {"name": "one too many"})).status == 422
    assert (await (await world.another()).post(KEYS, {"name": "theirs"})).status == 201


async def test_the_keys_are_listed_in_pages(world: World):
    """[D-189, D-16, spec 2.7 newest first]"""
    made = [(await world.made(KEYS, {"name": f"key {number}"}))["id"] for number in range(4)]
    await world.delete(f"{KEYS}/{made[0]}")

    answer = (await world.get(f"{KEYS}?page=2&pageSize=2")).json

    assert [each["id"] for each in answer["data"]] == [made[1], made[0]]
    assert answer["pagination"] == {"page": 2, "pageSize": 2, "totalRecords": 5, "totalPages": 3}
    assert sorted(invalid(await world.get(f"{KEYS}?page=0&pageSize=101"))) == ["page", "pageSize"]
    assert (await world.get(f"{KEYS}?page=9")).json["data"] == []
