"""The route `/v1/integration` and the routes of gateway connections (spec 4.6, D-43, D-44)."""

import pytest

from fatura.domain.credentials import Mode
from tests.support.expect import INSTANT, UNKNOWN_ID, invalid, problem
from tests.support.world import Json, World, plan_body

GATEWAYS = "/v1/integration/gateways"
ALL_METHODS = ["card", "pix", "boleto"]


def sandbox(**fields: Json) -> Json:
    """Return a request body that creates a sandbox connection."""
    return {"provider": "sandbox", "credentials": {}, **fields}


WELL = {"state": "ok", "since": None, "error": None}


async def test_a_new_sandbox_account_has_one_connection(world: World):
    """[spec 4.6 GET /v1/integration 200, D-43, D-44, D-46]"""
    shown = await world.get("/v1/integration")
    connection = shown.json["gateways"][0]

    assert (shown.status, shown.json) == (
        200,
        {
            "accountId": str(world.account_id),
            "mode": "sandbox",
            "currency": "BRL",
            "gateways": [
                {
                    "connectionId": connection["connectionId"],
                    "provider": "sandbox",
                    "label": "Sandbox",
                    "active": True,
                    "issuesCharges": True,
                    "methods": ALL_METHODS,
                    "maxInstallments": 12,
                    "minAmountCents": None,
                    "minInstallmentCents": None,
                    "credentialsExpireAt": None,
                    "refunds": True,
                    "productCatalog": False,
                    "settings": {},
                    "createdAt": connection["createdAt"],
                    "health": WELL,
                    "reconciliation": dict(connection["reconciliation"]),
                }
            ],
        },
    )
    assert INSTANT.fullmatch(connection["createdAt"])
    del connection["reconciliation"]
    assert (await world.get(GATEWAYS)).json == {"data": [connection]}


async def test_a_new_connection_shows_its_capabilities(world: World):
    """[D-43, D-46]"""
    settings = {
        "methods": ["pix"],
        "maxInstallments": 3,
        "minAmountCents": 500,
        "minInstallmentCents": 100,
        "issuesCharges": False,
        "productCatalog": True,
        "refunds": False,
    }
    made = await world.post(GATEWAYS, sandbox(label=" Second ", settings=settings))
    connection = made.json

    assert made.status == 201
    assert connection == {
        "connectionId": connection["connectionId"],
        "provider": "sandbox",
        "label": " Second ",
        "credentialsExpireAt": None,
        "active": True,
        "createdAt": connection["createdAt"],
        "health": WELL,
        "settings": settings,
        **settings,
    }
    assert (await world.get(GATEWAYS)).json["data"][1:] == [connection]
    assert (await world.post(GATEWAYS, sandbox())).json["label"] is None
    assert await world.broken() == []


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        ({"label": "Main"}, {"label": "Main"}),
        ({"label": None}, {"label": None}),
        ({"active": False}, {"active": False}),
        ({"credentials": {}}, {}),
        ({"settings": {"methods": ["boleto", "pix"]}}, {"methods": ["boleto", "pix"]}),
        ({"settings": {"issuesCharges": False}, "label": "L"}, {"issuesCharges": False, "label": "L"}),
        ({"settings": {"productCatalog": True}, "credentials": {}}, {"productCatalog": True}),
        ({"settings": {"behaviour": "refuse"}}, {}),
        ({"settings": {}}, {}),
        ({}, {}),
    ],
)
async def test_a_change_merges_settings_key_by_key(world: World, change, shown):
    """[D-43, D-46]"""
    made = await world.connect(maxInstallments=5)
    answer = await world.patch(f"{GATEWAYS}/{made['connectionId']}", change)

    expected = {**made, **shown, "settings": {"maxInstallments": 5, **change.get("settings", {})}}
    if not expected["active"]:
        expected["health"] = {"state": "paused", "since": answer.json["health"]["since"], "error": None}
    assert (answer.status, answer.json) == (200, expected)
    assert (await world.get(GATEWAYS)).json["data"][1] == answer.json


@pytest.mark.parametrize(
    ("fields", "paths"),
    [
        ({"provider": "stripe"}, ["provider"]),
        ({"provider": ""}, ["provider"]),
        ({"credentials": None}, ["credentials"]),
        ({"credentials": {"apiKey": "x"}}, ["credentials.apiKey"]),
        ({"label": ""}, ["label"]),
        ({"label": "x" * 121}, ["label"]),
        ({"settings": None}, ["settings"]),
        ({"settings": {"methods": []}}, ["settings.methods"]),
        ({"settings": {"methods": ["pix", "pix"]}}, ["settings.methods"]),
        (
            {"settings": {"maxInstallments": 13, "issuesCharges": 1}},
            ["settings.issuesCharges", "settings.maxInstallments"],
        ),
        ({"settings": {"maxInstallments": True}}, ["settings.maxInstallments"]),
        ({"settings": {"behaviour": "pay"}}, ["settings.behaviour"]),
        ({"settings": {"colour": "red"}}, ["settings.colour"]),
        ({"active": True}, ["active"]),
        ({"connectionId": UNKNOWN_ID}, ["connectionId"]),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_an_invalid_connection_is_refused(shared_world: World, fields, paths):
    """[D-43, D-11]"""
    before = (await shared_world.get(GATEWAYS)).json
    assert sorted(invalid(await shared_world.post(GATEWAYS, sandbox(**fields)))) == paths
    assert (await shared_world.get(GATEWAYS)).json == before


@pytest.mark.parametrize(
    ("change", "paths"),
    [
        ({"provider": "sandbox"}, ["provider"]),
        ({"active": None}, ["active"]),
        ({"active": 1}, ["active"]),
        ({"credentials": {"x": 1}}, ["credentials.x"]),
        ({"credentials": None, "settings": []}, ["credentials", "settings"]),
        ({"settings": {"methods": "pix"}, "label": "new"}, ["settings.methods"]),
        ({"settings": {"x": 1}, "credentials": {}}, ["settings.x"]),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_an_invalid_change_of_a_connection_is_refused(shared_world: World, change, paths):
    """[D-43, D-11]"""
    before = (await shared_world.get(GATEWAYS)).json
    path = f"{GATEWAYS}/{before['data'][0]['connectionId']}"
    assert sorted(invalid(await shared_world.patch(path, change))) == paths
    assert (await shared_world.get(GATEWAYS)).json == before


async def test_an_unknown_connection_is_a_404(world: World):
    """[spec 5.4, spec 7 404]"""
    theirs = (await (await world.another()).get(GATEWAYS)).json["data"][0]["connectionId"]
    for connection_id in (UNKNOWN_ID, theirs, "x"):
        for change in ({}, {"active": False}, {"credentials": {}}):
            answer = await world.patch(f"{GATEWAYS}/{connection_id}", change)
            assert problem(answer) == (404, "engine.not_found", None)


async def test_a_live_account_cannot_connect_the_sandbox(world: World):
    """[D-44]"""
    live = await world.another(Mode.LIVE)
    shown = (await live.get("/v1/integration")).json

    assert (shown["mode"], shown["gateways"]) == ("live", [])
    for body in (sandbox(), sandbox(provider="x")):
        assert list(invalid(await live.post(GATEWAYS, body))) == ["provider"]
    assert (await live.get(GATEWAYS)).json == {"data": []}


async def test_credentials_are_stored_encrypted_and_never_shown(world: World):
    """[D-43]"""
    made = await world.connect()
    await world.patch(f"{GATEWAYS}/{made['connectionId']}", {"credentials": {}})

    for answer in (await world.get(GATEWAYS), await world.get("/v1/integration")):
        assert b'"credentials"' not in answer.body
    rows = await world.sql("SELECT credentials_sealed FROM gateway_connection")
    assert len({row[0] for row in rows}) == 2
    assert all(len(row[0]) > 28 and b"{}" not in row[0] for row in rows)


async def test_changed_capabilities_apply_to_new_terms(world: World):
    """[D-43, D-21]"""
    await world.set_up_gateway(methods=["pix"])
    body = plan_body(await world.product(), defaultPaymentMethod="card")
    assert (await world.post("/v1/plans", body)).status == 422
    await world.set_up_gateway(methods=ALL_METHODS)
    assert (await world.post("/v1/plans", body)).status == 201
