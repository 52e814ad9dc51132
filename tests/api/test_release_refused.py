"""The API refuses invalid requests to enter a value, retry pricing or test a price endpoint (spec 4.2, 4.5)."""

from uuid import uuid4

from tests.support.world import Json, World


async def held(world: World) -> tuple[str, str]:
    """Create a held invoice. Return its path and the id of its pending item."""
    await world.enroll(await world.plan(await world.variable_product()))
    await world.run("generation", "pricing")
    (invoice,) = await world.invoices()
    path = f"/v1/invoices/{invoice['id']}"
    return path, (await world.get(path)).json["items"][0]["id"]


async def test_unknown_ids_are_not_found(world: World) -> None:
    """[spec 4.5 POST /v1/invoices/{invoiceId}/retry-pricing 404, spec 7 404]
    [spec 4.5 POST /v1/invoices/{invoiceId}/items/{itemId}/value 404]
    [spec 4.2 POST /v1/products/{productId}/pricing-test 404]
    """
    path, item_id = await held(world)
    fixed = await world.product()
    for refused in (
        f"/v1/invoices/{uuid4()}/retry-pricing",
        f"/v1/invoices/{uuid4()}/items/{item_id}/value",
        f"{path}/items/{uuid4()}/value",
        f"/v1/products/{uuid4()}/pricing-test",
        f"/v1/products/{fixed['id']}/pricing-test",
    ):
        body = {"amount": 1} if refused.endswith("value") else None
        answer = await world.post(refused, body)
        assert (answer.status, answer.type) == (404, "engine.not_found"), refused
    assert (await world.get(path)).json["items"][0]["pricingStatus"] == "pending"


MALFORMED: list[tuple[Json, str]] = [
    ({}, "amount"),
    ({"amount": None}, "amount"),
    ({"amount": -1}, "amount"),
    ({"amount": 1.0}, "amount"),
    ({"amount": True}, "amount"),
    ({"amount": "1"}, "amount"),
    ({"amount": 1_000_000_000_000}, "amount"),  # [D-8]
    ({"amount": 1, "description": "x" * 301}, "description"),  # [spec 8 manual item description]
    ({"amount": 1, "description": 5}, "description"),
    ({"amount": 1, "description": "a\x00"}, "description"),  # [D-11]
    ({"amount": 1, "note": "x"}, "note"),
]


async def test_malformed_values_change_nothing(world: World) -> None:
    """[spec 7 400]"""
    path, item_id = await held(world)
    before = (await world.get(path)).json
    for body, field in MALFORMED:
        answer = await world.post(f"{path}/items/{item_id}/value", body)
        assert (answer.status, answer.type) == (400, "engine.invalid_request"), body
        assert [each["path"] for each in answer.json["meta"]["fields"]] == [field], body
    assert (await world.get(path)).json == before


async def test_a_value_of_0_and_the_longest_description_are_accepted(world: World) -> None:
    """[spec 8 manual item description, D-9]"""
    path, item_id = await held(world)
    answer = await world.post(f"{path}/items/{item_id}/value", {"amount": 0, "description": "é" * 300})
    assert (answer.status, answer.json["status"], answer.json["totalCents"]) == (200, "paid", 0)
    assert answer.json["items"][0]["description"] == "é" * 300
    assert await world.broken() == []


async def test_a_repeated_value_is_replayed(world: World) -> None:
    """[D-14]"""
    path, item_id = await held(world)
    first = await world.post(f"{path}/items/{item_id}/value", {"amount": 5}, key="once")
    again = await world.post(f"{path}/items/{item_id}/value", {"amount": 5}, key="once")
    assert (again.status, again.body, again.headers["Idempotent-Replayed"]) == (200, first.body, "true")
    other = await world.post(f"{path}/items/{item_id}/value", {"amount": 6}, key="once")
    assert (other.status, other.type) == (422, "engine.idempotency_key_reused")


async def test_no_route_creates_an_invoice(world: World) -> None:
    """[spec 1]"""
    answer = await world.post("/v1/invoices", {"totalCents": 1})
    assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")
    paths = (await world.get("/docs-json")).json["paths"]
    acting = {path for path, operations in paths.items() if "invoices" in path and "post" in operations}
    assert acting == {
        "/v1/invoices/{invoiceId}/retry-pricing",
        "/v1/invoices/{invoiceId}/items/{itemId}/value",
        "/v1/invoices/{invoiceId}/cancel",
        "/v1/invoices/{invoiceId}/reissue",
        "/v1/invoices/{invoiceId}/payments",
        "/v1/invoices/{invoiceId}/refunds",
        "/v1/invoices/{invoiceId}/retry-issuance",
        "/v1/invoices/{invoiceId}/pay-link/rotate",
    }


async def test_the_version_is_in_the_path(world: World) -> None:
    """[spec 9.1, spec 9.4, D-115]"""
    paths = (await world.get("/docs-json")).json["paths"]
    unversioned = {path for path in paths if not path.startswith("/v1/")}
    assert unversioned <= {
        "/health",
        "/health/ready",
        "/gateways/{accountId}/{connectionId}/webhook",
    }
    for operations in paths.values():
        for operation in operations.values():
            assert "x-sunset" in operation or not operation.get("deprecated")
