"""A request repeated with its Idempotency-Key has no second effect and gets the first answer (D-14)."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from tests.support.expect import UNKNOWN_ID, everything, hashed, invalid, problem
from tests.support.world import Answer, Json, World, plan_body, subscription_body

BODY = {"name": "Gym", "pricing": {"mode": "fixed", "monthlyPriceCents": 9990}}
KEYS = "/v1/integration/api-keys"


def is_replay(answer: Answer) -> bool:
    return answer.headers.get("idempotent-replayed") == "true"


@pytest.mark.parametrize("path", ["/v1/products", "/v1/plans", "/v1/subscriptions"])
@pytest.mark.asyncio(loop_scope="module")
async def test_creations_require_a_key(shared_world: World, path):
    """[spec 4.2 POST /v1/products key, spec 4.3 POST /v1/plans key, spec 4.4 POST /v1/subscriptions key]
    [spec 7 400, D-14]
    """
    plan = await shared_world.plan()
    bodies = {"/v1/products": BODY, "/v1/plans": plan_body({"productId": UNKNOWN_ID})}
    before = await shared_world.all(path)
    for body in (bodies.get(path, subscription_body(plan)), {}):
        answer = await shared_world.post(path, body, key=None)
        assert problem(answer) == (400, "engine.idempotency_key_required", None)
    assert await shared_world.all(path) == before


@pytest.mark.parametrize("key", ["x", "~", "!" * 255, "ORDER-1", "order-1", '"quoted,key"'])
@pytest.mark.asyncio(loop_scope="module")
async def test_a_key_is_1_to_255_visible_ascii_characters(shared_world: World, key):
    """[D-14]"""
    first = await shared_world.post("/v1/products", BODY, key=key)
    again = await shared_world.post("/v1/products", BODY, key=key)

    assert (first.status, is_replay(first)) == (201, False)
    assert (again.status, again.body, is_replay(again)) == (201, first.body, True)


@pytest.mark.parametrize("key", ["", " ", "a b", "x" * 256, "a\tb", "\x7f"])
@pytest.mark.asyncio(loop_scope="module")
async def test_an_invalid_key_is_refused(shared_world: World, key):
    """[D-14, D-11]"""
    for path, body in (("/v1/products", BODY), (KEYS, {"name": "x"})):
        answer = await shared_world.post(path, body, key=key)
        assert list(invalid(answer)) == ["Idempotency-Key"]


async def test_a_repeated_request_gets_the_first_answer(world: World):
    """[D-14]"""
    first = await world.post("/v1/products", BODY, key="k")
    path = f"/v1/products/{first.json['id']}"
    await world.patch(path, {"name": "Pool", "monthlyPriceCents": 1})
    archived = await world.post(f"{path}/archive", key="k2")
    await world.post(f"{path}/unarchive")
    await world.advance(days=40)  # keys expire in real time, not on the account's clock

    again = await world.post("/v1/products", BODY, key="k")
    assert (again.status, again.body, is_replay(again)) == (201, first.body, True)
    archived_again = await world.post(f"{path}/archive", {}, key="k2")  # the API treats {} as no body
    assert (archived_again.status, archived_again.body) == (200, archived.body)
    assert is_replay(archived_again)
    now = (await world.get(path)).json
    assert (now["name"], now["archivedAt"]) == ("Pool", None)


async def test_a_repeated_plan_is_replayed_though_its_terms_are_invalid_now(world: World):
    """[D-14, D-10]"""
    product = await world.product()
    first = await world.post("/v1/plans", plan_body(product), key="k")
    await world.post(f"/v1/products/{product['id']}/archive")

    again = await world.post("/v1/plans", plan_body(product), key="k")
    assert (again.status, again.body) == (201, first.body)
    assert (await world.post("/v1/plans", plan_body(product))).status == 409


async def test_bodies_are_compared_as_json(world: World):
    """[D-14]"""
    first = await world.post("/v1/products", BODY, key="k")
    spaced = json.dumps(dict(reversed(BODY.items())), indent=3).replace("Gym", "\\u0047ym").encode()

    again = await world.post("/v1/products", content=spaced, key="k")
    assert (again.body, is_replay(again)) == (first.body, True)


async def test_a_key_used_for_another_request_is_refused(world: World):
    """The engine refuses a reused Idempotency-Key before it looks up the resource. [D-14, D-10]"""
    one, two = await world.product(), await world.product()
    await world.post(f"/v1/products/{one['id']}/archive", key="k")
    before = await everything(world)

    others: list[tuple[str, Json]] = [
        (f"/v1/products/{one['id']}/unarchive", None),  # another route
        (f"/v1/products/{two['id']}/archive", None),  # another id
        (f"/v1/products/{UNKNOWN_ID}/archive", None),
        ("/v1/products", BODY),
        (KEYS, {"name": "x"}),
        ("/v1/integration/gateways", {"provider": "sandbox", "credentials": {}}),
    ]
    for path, body in others:
        assert problem(await world.post(path, body, key="k")) == (422, "engine.idempotency_key_reused", None)
    assert await everything(world) == before


@pytest.mark.parametrize(
    "change",
    [
        {"name": "gym"},
        {"description": None},
        {"pricing": {"mode": "fixed", "monthlyPriceCents": 9991}},
        {"pricing": {"mode": "endpoint", "url": "https://merchant.example/x", "capCents": 1}},
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_any_difference_of_the_body_is_refused(shared_world: World, change):
    """[D-14]"""
    key = f"body-{json.dumps(change, separators=(',', ':'))}"
    first = await shared_world.post("/v1/products", BODY, key=key)

    refused = await shared_world.post("/v1/products", BODY | change, key=key)
    assert problem(refused) == (422, "engine.idempotency_key_reused", None)
    assert (await shared_world.post("/v1/products", BODY, key=key)).body == first.body


async def test_accounts_do_not_share_keys(world: World):
    """[D-14, spec 5.2]"""
    other = await world.another()
    ours = await world.post("/v1/products", BODY, key="k")
    theirs = await other.post("/v1/products", BODY | {"name": "Pool"}, key="k")

    assert (ours.status, theirs.status, is_replay(theirs)) == (201, 201, False)
    assert ours.json["id"] != theirs.json["id"]


async def test_refusals_are_not_stored(world: World):
    """After a refusal, the client can use the key for the same body or for another body. [D-14]"""
    product = await world.product()
    path = f"/v1/products/{product['id']}"
    await world.post(f"{path}/archive")
    offers = [
        ({}, 400),
        (plan_body({"productId": UNKNOWN_ID}), 404),
        (plan_body(product), 409),
        (plan_body(await world.product(), maxInstallments=2), 422),
    ]
    for body, status in offers:
        assert (await world.post("/v1/plans", body, key="k")).status == status
    assert await world.sql("SELECT key FROM idempotency_key WHERE key = $1", hashed("k")) == []

    await world.post(f"{path}/unarchive")
    corrected = await world.post("/v1/plans", plan_body(product), key="k")
    assert (corrected.status, is_replay(corrected)) == (201, False)


async def test_an_answer_with_a_secret_is_stored_encrypted(world: World):
    """An answer with a secret is stored for 24 hours. Other answers are stored for 30 days. [D-14, D-41]"""
    first = await world.post(KEYS, {"name": "x"}, key="secret")
    again = await world.post(KEYS, {"name": "x"}, key="secret")
    await world.post("/v1/products", BODY, key="plain")

    assert (again.status, again.body, is_replay(again)) == (201, first.body, True)
    assert len((await world.get(KEYS)).json["data"]) == 2
    stored = {
        row["key"]: row
        for row in await world.sql("SELECT key, is_sealed, answer, expires_at FROM idempotency_key")
    }
    assert [stored[hashed(key)]["is_sealed"] for key in ("secret", "plain")] == [True, False]
    assert first.json["key"].encode() not in stored[hashed("secret")]["answer"]
    for key, kept in (("secret", timedelta(hours=24)), ("plain", timedelta(days=30))):
        left = stored[hashed(key)]["expires_at"] - datetime.now(UTC)
        assert kept - timedelta(minutes=2) < left <= kept


async def test_an_expired_key_can_be_used_again(world: World):
    """[D-14]"""
    first = await world.post("/v1/products", BODY, key="k")
    await world.sql("UPDATE idempotency_key SET expires_at = now() - interval '1 second'")

    second = await world.post("/v1/products", BODY, key="k")
    assert (second.status, is_replay(second)) == (201, False)
    assert second.json["id"] != first.json["id"]
    assert (await world.post("/v1/products", BODY, key="k")).body == second.body


@pytest.mark.parametrize(
    ("id_", "expected"),
    [
        (UNKNOWN_ID, (422, "engine.idempotency_key_reused", None)),
        ("x", (404, "engine.not_found", None)),
    ],
)
async def test_a_reused_key_is_checked_before_an_unknown_id_and_after_a_malformed_one(
    world: World, id_: str, expected: tuple[int, str, None]
):
    """[D-10, D-14]"""
    await world.post("/v1/products", BODY, key="k")
    assert problem(await world.post(f"/v1/products/{id_}/archive", key="k")) == expected
