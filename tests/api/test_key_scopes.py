"""Scopes and expiry of API keys. The last key that can create other keys cannot be revoked (D-64)."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest

from fatura.api.v1 import RESOURCES
from fatura.domain.credentials import Scope
from fatura.views.view import instant
from tests.support.expect import UNKNOWN_ID, invalid, problem
from tests.support.sandbox_steps import now
from tests.support.world import Answer, Merchant, World, rows

KEYS = "/v1/integration/api-keys"
ADMIN_ROUTES = rows("""
    method | path
    POST   | /v1/integration/api-keys
    DELETE | /v1/integration/api-keys/{apiKeyId}
    POST   | /v1/integration/secret/rotate
    POST   | /v1/integration/gateways
    PATCH  | /v1/integration/gateways/{connectionId}
    POST   | /v1/integration/gateways/{connectionId}/check
    POST   | /v1/integration/gateways/{connectionId}/move
    PUT    | /v1/integration/webhook
    PUT    | /v1/integration/pay-page
    DELETE | /v1/integration/webhook
    GET    | /v1/audit
    POST   | /v1/customers/{customerId}/erase
""")


async def new_key(merchant: Merchant, *scopes: str, **fields: Any) -> Mapping[str, Any]:
    return await merchant.made(KEYS, {"name": "x", "scopes": list(scopes), **fields})


async def call_with(merchant: Merchant, key: Mapping[str, Any], method: str, path: str) -> Answer:
    return await merchant.call(method, path, headers={"Authorization": f"Bearer {key['key']}"})


def test_each_route_needs_one_scope():
    """[D-64 scopes]"""
    found = {
        (method, route.path): route.scope
        for each in RESOURCES
        for route in each.routes
        for method in route.methods or ()
    }
    admin = {place for place, scope in found.items() if scope is Scope.ADMIN}
    assert admin == set(ADMIN_ROUTES)
    others = {place: scope for place, scope in found.items() if place not in admin}
    assert {scope for (method, _), scope in others.items() if method == "GET"} == {Scope.READ}
    assert {scope for (method, _), scope in others.items() if method != "GET"} == {Scope.WRITE}


@pytest.mark.parametrize(
    ("held", "allowed"),
    [
        (["read"], [200, 403, 403]),
        (["write"], [403, 404, 403]),
        (["admin"], [403, 403, 404]),
        (["admin", "write", "read"], [200, 404, 404]),
    ],
)
async def test_a_key_may_do_only_what_its_scopes_allow(
    world: World, held: Sequence[str], allowed: Sequence[int]
):
    """A missing scope is reported before an unknown id. [D-64 scopes 403, D-67 scope]"""
    key = await new_key(world, *held)
    calls = (("GET", KEYS), ("POST", f"/v1/invoices/{UNKNOWN_ID}/cancel"), ("DELETE", f"{KEYS}/{UNKNOWN_ID}"))

    answers = [await call_with(world, key, *each) for each in calls]

    assert [each.status for each in answers] == allowed
    for answer, scope in zip(answers, ("read", "write", "admin"), strict=True):
        if answer.status == 403:
            assert problem(answer) == (403, "engine.forbidden", {"scope": scope})
            assert f"`{scope}`" in answer.json["detail"]


async def test_a_refused_scope_is_told_before_the_state_of_the_resource(world: World):
    """[D-67 scope]"""
    product = await world.product()
    await world.made(f"/v1/products/{product['id']}/archive")
    reader = {"Authorization": f"Bearer {(await new_key(world, 'read'))['key']}"}

    patch = {"pricingMode": "endpoint"}
    assert (await world.patch(f"/v1/products/{product['id']}", patch)).status == 409
    refused = await world.patch(f"/v1/products/{product['id']}", patch, headers=reader)
    assert problem(refused) == (403, "engine.forbidden", {"scope": "write"})
    assert (await world.post("/v1/plans", {"name": 1}, headers=reader)).status == 403


async def test_a_key_has_all_scopes_unless_others_are_sent(world: World):
    """[D-64 scopes]"""
    default = await world.made(KEYS, {"name": "x"})
    narrow = await new_key(world, "write", "read")

    assert default["scopes"] == ["read", "write", "admin"]
    assert (narrow["scopes"], narrow["expiresAt"]) == (["read", "write"], None)
    listed = {each["id"]: each["scopes"] for each in (await world.get(KEYS)).json["data"]}
    assert (listed[default["id"]], listed[narrow["id"]]) == (["read", "write", "admin"], ["read", "write"])


@pytest.mark.parametrize(
    ("fields", "refused"),
    [
        ({"scopes": []}, "scopes"),
        ({"scopes": None}, "scopes"),
        ({"scopes": "read"}, "scopes"),
        ({"scopes": ["owner"]}, "scopes[0]"),
        ({"scopes": ["read", "READ"]}, "scopes[1]"),
        ({"scopes": [["read"]]}, "scopes[0]"),
        ({"scopes": ["read", "read"]}, "scopes"),
        ({"scopes": ["read", "write", "admin", "read"]}, "scopes"),
        ({"expiresAt": "2026-01-01"}, "expiresAt"),
        ({"expiresAt": "2033-11-20T14:59:59.999Z"}, "expiresAt"),
        ({"expiresAt": "tomorrow"}, "expiresAt"),
        ({"expiresAt": 1893456000}, "expiresAt"),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_invalid_scopes_and_expiries_are_refused(
    shared_world: World, fields: Mapping[str, Any], refused: str
):
    """The expiry must be later than the account's current time, which is 2033-11-20T15:00Z. [D-64 expiry 400]"""
    answer = await shared_world.post(KEYS, {"name": "x", **fields})
    assert list(invalid(answer)) == [refused]


async def test_a_key_expires_on_the_account_s_clock(world: World):
    """[D-64 expiry, D-1]"""
    until = await now(world) + timedelta(days=3)
    key = await new_key(world, "read", expiresAt=instant(until))
    assert key["expiresAt"] == instant(until)
    assert (await call_with(world, key, "GET", KEYS)).status == 200

    await world.advance(to=instant(until - timedelta(minutes=1)))
    assert (await call_with(world, key, "GET", KEYS)).status == 200
    await world.advance(to=instant(until))
    refused = await call_with(world, key, "GET", KEYS)

    assert problem(refused) == (401, "engine.unauthorized", None)
    shown = (await world.get(KEYS)).json["data"][0]
    assert (shown["id"], shown["expiresAt"], shown["revokedAt"]) == (key["id"], instant(until), None)


async def test_expired_keys_do_not_count_towards_the_limit(world: World, monkeypatch: pytest.MonkeyPatch):
    """[D-189, D-64 expiry]"""
    monkeypatch.setattr("fatura.usecases.accounts.api_keys.MAX_API_KEYS", 2)
    await new_key(world, "read", expiresAt=instant(await now(world) + timedelta(days=1)))
    assert (await world.post(KEYS, {"name": "x"})).status == 422

    await world.advance(days=1)

    assert (await world.post(KEYS, {"name": "x"})).status == 201


async def test_the_last_key_with_the_scope_admin_cannot_be_revoked(world: World):
    """The only other key with the scope has expired, so it cannot create keys. [D-64 last key 409]"""
    [own] = (await world.get(KEYS)).json["data"]
    reader = await new_key(world, "read", "write")
    brief = await new_key(world, "admin", expiresAt=instant(await now(world) + timedelta(days=1)))
    await world.advance(days=1)

    refused = await world.delete(f"{KEYS}/{own['id']}")

    assert problem(refused) == (409, "engine.last_key", None)
    assert "admin" in refused.json["detail"]
    for other in (reader, brief, reader):
        assert (await world.delete(f"{KEYS}/{other['id']}")).status == 204
    assert (await world.delete(f"{KEYS}/{UNKNOWN_ID}")).status == 404
    successor = await new_key(world, "admin")
    assert (await world.delete(f"{KEYS}/{own['id']}")).status == 204
    assert (await call_with(world, successor, "DELETE", f"{KEYS}/{own['id']}")).status == 204
    last = await call_with(world, successor, "DELETE", f"{KEYS}/{successor['id']}")
    assert last.type == "engine.last_key"


async def test_concurrent_revocations_leave_one_key(world: World):
    """[D-64 last key 409]"""
    ids = [each["id"] for each in [*(await world.get(KEYS)).json["data"], await new_key(world, "admin")]]
    ids.append((await new_key(world, "admin", "read"))["id"])

    answers = await asyncio.gather(*(world.delete(f"{KEYS}/{each}") for each in ids))

    # At most two of the three keys are revoked. One key sends all requests: once it is revoked, the others get 401.
    assert sum(each.status == 204 for each in answers) <= 2
    live = await world.sql("SELECT FROM api_key WHERE revoked_at IS NULL AND 'admin' = ANY(scopes)")
    assert len(live) >= 1


async def test_two_administrators_cannot_revoke_each_other(world: World):
    """[D-64 last key 409]"""
    [first] = (await world.get(KEYS)).json["data"]
    for _ in range(5):
        second = await new_key(world, "admin", "read")
        answers = await asyncio.gather(
            call_with(world, second, "DELETE", f"{KEYS}/{first['id']}"),
            world.delete(f"{KEYS}/{second['id']}"),
        )
        statuses = [each.status for each in answers]
        assert statuses.count(204) == 1
        assert {*statuses} <= {204, 409, 401}
        if statuses[0] == 204:
            first, world.api_key = second, second["key"]
