"""Quotas of an account, with concurrent requests to a real API process (D-245)."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio

from fatura.domain.quotas import Quota, setting
from fatura.variables import VARIABLES
from tests.support.fatura_processes import environment, free_port, run_here, running, serves
from tests.support.postgres_processes import until
from tests.support.unlimited import UNLIMITED
from tests.support.world import World, item, plan_body, subscription_body

LIMITS = {"FATURA_QUOTA_PRODUCTS": "3", "FATURA_QUOTA_PLANS": "2", "FATURA_QUOTA_PLAN_ITEMS": "5"}
PRODUCT = {"name": "Gym", "pricing": {"mode": "fixed", "monthlyPriceCents": 9990}}
AT_ONCE = 6


@pytest.fixture
def served(database_url: str, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The URL and an API key of an API process with low quotas."""
    env, port = environment(database_url, **UNLIMITED, **LIMITS), free_port()
    opened = run_here("account", "create", "Gym", "--mode", "sandbox", "--json", env=env)
    with running("api", "--port", str(port), env=env, output=tmp_path / "api.log"):
        until(lambda: serves(port), seconds=30)
        yield f"http://127.0.0.1:{port}", json.loads(opened.stdout)["apiKey"]


@pytest_asyncio.fixture
async def client(served: tuple[str, str]) -> AsyncIterator[httpx.AsyncClient]:
    url, key = served
    async with httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {key}"}) as opened:
        yield opened


async def _post(client: httpx.AsyncClient, path: str, body: Any, *, key: str | None = None) -> httpx.Response:
    return await client.post(path, json=body, headers={"Idempotency-Key": key or str(uuid4())})


def _statuses(answers: list[httpx.Response]) -> list[int]:
    return sorted(answer.status_code for answer in answers)


def _refusal(answers: list[httpx.Response]) -> Any:
    body = next(answer.json() for answer in answers if answer.status_code == 422)
    return body["type"], body["meta"]


async def test_concurrent_requests_do_not_exceed_a_quota(client: httpx.AsyncClient) -> None:
    """[D-245]"""
    made = await asyncio.gather(*(_post(client, "/v1/products", PRODUCT) for _ in range(AT_ONCE)))

    assert _statuses(made) == [201, 201, 201, 422, 422, 422]
    assert _refusal(made) == ("engine.quota_exceeded", {"quota": "products", "limit": 3})
    listed = (await client.get("/v1/products")).json()
    assert (listed["pagination"]["totalRecords"], len(listed["data"])) == (3, 3)
    product = listed["data"][0]
    assert (await client.post(f"/v1/products/{product['id']}/archive")).status_code == 200
    assert (await _post(client, "/v1/products", PRODUCT)).status_code == 422
    assert (await client.patch(f"/v1/products/{product['id']}", json={"name": "Sauna"})).status_code == 200

    used = listed["data"][1]
    plans = await asyncio.gather(
        *(_post(client, "/v1/plans", plan_body(used, name=str(number))) for number in range(AT_ONCE))
    )
    assert _statuses(plans) == [201, 201, 422, 422, 422, 422]
    assert _refusal(plans) == ("engine.quota_exceeded", {"quota": "plans", "limit": 2})


async def test_versions_and_private_terms_share_a_quota_of_items(client: httpx.AsyncClient) -> None:
    """Two plan items are stored first, so the quota of five allows three more. [D-245]"""
    product = (await _post(client, "/v1/products", PRODUCT)).json()
    body = plan_body(product, product)
    plan = (await _post(client, "/v1/plans", body)).json()
    enrolled = (await _post(client, "/v1/subscriptions", subscription_body(plan))).json()
    terms = {key: value for key, value in body.items() if key != "name"}

    changes = await asyncio.gather(
        client.put(f"/v1/plans/{plan['id']}", json=body),
        client.put(f"/v1/plans/{plan['id']}", json=body),
        _post(client, f"/v1/subscriptions/{enrolled['id']}/customize", terms),
    )

    assert _statuses(list(changes)) == [200, 422, 422]
    assert _refusal(list(changes)) == ("engine.quota_exceeded", {"quota": "plan_items", "limit": 5})
    last = {**body, "items": [item(product)]}
    assert (await client.put(f"/v1/plans/{plan['id']}", json=last)).status_code == 200
    assert (await client.put(f"/v1/plans/{plan['id']}", json=last)).status_code == 422
    assert (await _post(client, "/v1/subscriptions", subscription_body(plan))).status_code == 201


async def test_a_refused_request_stores_nothing_and_its_key_can_be_used_again(
    client: httpx.AsyncClient,
) -> None:
    """[D-245, D-14]"""
    made = [await _post(client, "/v1/products", PRODUCT) for _ in range(3)]
    assert _statuses(made) == [201, 201, 201]
    audited = (await client.get("/v1/audit?limit=200")).json()["data"]

    refused = await _post(client, "/v1/products", PRODUCT, key="once")

    assert (refused.status_code, refused.headers["content-type"]) == (422, "application/problem+json")
    assert "FATURA_QUOTA_PRODUCTS" in refused.json()["detail"]
    assert (await client.get("/v1/audit?limit=200")).json()["data"] == audited
    other = plan_body(made[0].json())
    assert (await _post(client, "/v1/plans", other, key="once")).status_code == 201


def test_each_quota_has_a_setting() -> None:
    """[D-245]"""
    names = {each.name for each in VARIABLES if each.name.startswith("FATURA_QUOTA_")}
    assert names == {setting(quota) for quota in Quota}


async def test_old_keys_and_secrets_do_not_pile_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """[D-245, D-119]"""
    monkeypatch.setattr("fatura.usecases.accounts.api_keys.MAX_ENDED_KEYS", 2)
    made = [await world.made("/v1/integration/api-keys", {"name": f"key {number}"}) for number in range(5)]
    for each in made[:4]:
        assert (await world.delete(f"/v1/integration/api-keys/{each['id']}")).status == 204
    for _ in range(20):
        await world.made("/v1/integration/secret/rotate")

    last = await world.made("/v1/integration/api-keys", {"name": "last"})

    listed = (await world.get("/v1/integration/api-keys")).json["data"]
    kept = [last["id"], *(each["id"] for each in reversed(made[2:]))]
    assert [each["id"] for each in listed[:-1]] == kept
    assert (await world.sql("SELECT count(*) FROM integration_secret"))[0][0] == 8
    assert await world.broken() == []
