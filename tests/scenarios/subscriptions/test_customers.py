"""Reading and correcting customers. Their tax documents are never shown (D-15)."""

import asyncio
import hashlib
import json

import pytest

from fatura.store.subscriptions.customers import DOCUMENT_PLACE
from tests.support.captured_logs import captured_logs
from tests.support.expect import INSTANT, UNKNOWN_ID, everything, hashed, invalid, problem
from tests.support.sandbox_steps import row_held, until_waiting
from tests.support.world import Json, Merchant, World, subscription_body

CUSTOMER = {"externalRef": "c-1", "name": "Ana Souza", "email": "ana@example.com"}
DOCUMENT, OTHER_DOCUMENT = "529.982.247-25", "11144477735"
GRAPE = "\U0001f347"


async def customer(merchant: Merchant, **fields: Json) -> Json:
    """Subscribe a customer, and return the response of `GET /v1/customers/{customerId}`."""
    subscription = await merchant.enroll(await merchant.plan(), customer={**CUSTOMER, **fields})
    return (await merchant.get(path_of(subscription["customer"]))).json


def path_of(shown: Json) -> str:
    return f"/v1/customers/{shown['id']}"


async def opened_document(world: World) -> str | None:
    """Return the decrypted tax document of the only customer."""
    [row] = await world.sql("SELECT customer_id, document_sealed FROM customer")
    if row["document_sealed"] is None:
        return None
    opened = world.deps.vault.open(
        row["document_sealed"],
        place=DOCUMENT_PLACE,
        account_id=world.account_id,
        row_id=str(row["customer_id"]),
    )
    assert opened not in row["document_sealed"]
    return opened.decode()


async def test_a_customers_route_shows_every_field(world: World):
    """[D-15]"""
    subscription = await world.enroll(await world.plan(), customer=CUSTOMER)
    found = (await world.get(path_of(subscription["customer"]))).json

    shown = {"hasDocument": False, "createdAt": found["createdAt"], "erasedAt": None}
    assert found == {**subscription["customer"], **shown}
    assert found["createdAt"] == subscription["startedAt"]
    assert INSTANT.fullmatch(found["createdAt"])
    assert (await world.get("/v1/customers")).json["data"] == [found]
    assert set(subscription["customer"]) == {"id", "externalRef", "name", "email"}


async def test_a_customer_with_several_subscriptions_is_listed_once(world: World):
    """[D-15, D-16]"""
    plan = await world.plan()
    made = [await world.enroll(plan) for _ in range(3)]
    known = {name: made[1]["customer"][name] for name in CUSTOMER}
    for _ in range(2):
        await world.enroll(plan, customer=known)
    refused = await world.post(
        "/v1/subscriptions", {"planId": plan["id"], "customer": CUSTOMER, "firstChargeDate": "2020-01-01"}
    )
    assert refused.status == 400

    first = (await world.get("/v1/customers?pageSize=2")).json
    second = (await world.get("/v1/customers?pageSize=2&page=2")).json
    ids = [each["customer"]["id"] for each in made]
    assert [each["id"] for each in first["data"] + second["data"]] == ids[::-1]
    assert first["pagination"] == {"page": 1, "pageSize": 2, "totalRecords": 3, "totalPages": 2}
    assert await world.broken() == []


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "Ana Lima"},
        {"email": "ana.lima@example.com"},
        {"name": "x", "email": "a@b.co"},
        {"name": GRAPE * 200},  # [spec 8 customer.name]
        {},
    ],
)
async def test_a_correction_changes_only_the_given_fields(world: World, changes):
    """[D-15]"""
    before = await customer(world)
    again = await world.enroll(await world.plan(), customer=CUSTOMER)
    bystander = await world.enroll(await world.plan())
    answer = await world.patch(path_of(before), changes)

    assert (answer.status, answer.json) == (200, {**before, **changes})
    assert (await world.get(path_of(before))).json == answer.json
    shown = (await world.get(f"/v1/subscriptions/{again['id']}")).json
    assert shown == again | {"customer": {**again["customer"], **changes}}
    assert (await world.get(f"/v1/subscriptions/{bystander['id']}")).json == bystander
    assert await world.broken() == []


async def test_a_later_subscription_reuses_the_corrected_customer(world: World):
    """[D-15, spec 4.4 customer]"""
    before = await customer(world)
    await world.patch(path_of(before), {"name": "Ana Lima"})
    assert await customer(world) == {**before, "name": "Ana Lima"}


async def test_a_correction_emits_no_event(world: World):
    """[D-15, D-36, D-37, D-110]"""
    before = await customer(world)
    emitted = await world.events()
    await world.patch(path_of(before), {"name": "Ana Lima", "document": DOCUMENT})
    assert await world.events() == emitted


async def test_a_document_is_replaced_and_removed(world: World):
    """[D-15, spec 8 customer.document]"""
    before = await customer(world)
    for document in (DOCUMENT, OTHER_DOCUMENT, "1" * 18, None, DOCUMENT):
        answer = await world.patch(path_of(before), {"document": document})
        assert (answer.status, answer.json) == (200, {**before, "hasDocument": document is not None})
        assert await opened_document(world) == document
        await world.patch(path_of(before), {"name": before["name"]})
        assert await opened_document(world) == document
    assert (await customer(world))["hasDocument"] is True


async def test_a_later_subscription_fills_in_a_removed_document(world: World):
    """[D-15]"""
    before = await customer(world, document=DOCUMENT)
    await world.patch(path_of(before), {"document": None})
    assert (await customer(world, document=OTHER_DOCUMENT))["hasDocument"] is True
    assert await opened_document(world) == OTHER_DOCUMENT


async def test_no_answer_event_or_log_line_contains_the_document(world: World):
    """[D-15, spec 2.4 document]"""
    before = await customer(world, document=OTHER_DOCUMENT)
    with captured_logs() as logs:
        answers = [
            await world.patch(path_of(before), {"document": DOCUMENT}),
            await world.patch(path_of(before), {"document": DOCUMENT, "name": ""}),
            await world.patch(path_of(before), {"document": DOCUMENT * 2}),
            await world.patch(f"/v1/customers/{UNKNOWN_ID}", {"document": DOCUMENT}),
            await world.get(path_of(before)),
            await world.get(f"/v1/customers?document={DOCUMENT}"),
            await world.get(f"/v1/customers?document={DOCUMENT * 2}"),
        ]
        assert [answer.status for answer in answers] == [200, 400, 400, 404, 200, 200, 400]
        await world.advance(days=10)

    lines = [line for line in logs.getvalue().splitlines() if json.loads(line).get("logger") != "httpx"]
    # `lines` omits the lines of httpx, because httpx logs the URLs that this test calls.
    everywhere = [str(await everything(world)), *lines]
    everywhere += [f"{answer.body} {answer.headers}" for answer in answers]
    assert any("/v1/customers/{customerId}" in line for line in lines), "requests are logged"
    for document in (DOCUMENT, "52998224725", OTHER_DOCUMENT):
        assert [text for text in everywhere if document in text] == []


async def test_no_stored_hash_reveals_the_document(world: World):
    """The hashes use a secret key. Otherwise, a reader of the database could hash all possible tax numbers and
    compare the hashes. [D-15, D-14]
    """
    body = subscription_body(await world.plan())
    body["customer"]["document"] = DOCUMENT
    assert (await world.post("/v1/subscriptions", body, key="k")).status == 201
    [kept] = await world.sql("SELECT body_hash FROM idempotency_key WHERE key = $1", hashed("k"))
    for separators in ((", ", ": "), (",", ":")):
        for ordered in (True, False):
            text = json.dumps(body, sort_keys=ordered, separators=separators)
            assert hashlib.sha256(text.encode()).digest() not in kept["body_hash"]
    assert (await world.post("/v1/subscriptions", body, key="k")).headers["idempotent-replayed"] == "true"


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({"name": ""}, ["name"]),  # [spec 8 customer.name]
        ({"name": " "}, ["name"]),
        ({"name": "x" * 201}, ["name"]),
        ({"name": None}, ["name"]),
        ({"name": 7}, ["name"]),
        ({"email": "ana"}, ["email"]),  # [spec 4.4 customer.email]
        ({"email": None}, ["email"]),
        ({"email": ""}, ["email"]),
        ({"document": "1" * 10}, ["document"]),  # [spec 8 customer.document]
        ({"document": "1" * 19}, ["document"]),
        ({"document": ""}, ["document"]),
        ({"document": " " * 11}, ["document"]),
        ({"document": "529.982.247-26"}, ["document"]),  # [D-251]
        ({"document": 52998224725}, ["document"]),
        ({"externalRef": "c-2"}, ["externalRef"]),
        ({"hasDocument": False}, ["hasDocument"]),
        ({"id": UNKNOWN_ID, "name": "", "email": "x"}, ["email", "id", "name"]),
        ([], [""]),
    ],
)
async def test_a_correction_with_invalid_fields_is_refused(world: World, body, fields):
    """[D-15, D-11]"""
    before = await customer(world, document=DOCUMENT)
    assert sorted(invalid(await world.patch(path_of(before), body))) == fields
    assert (await world.get(path_of(before))).json == before
    assert await opened_document(world) == DOCUMENT


async def test_unknown_malformed_and_foreign_ids_are_not_found(world: World):
    """[D-15, spec 5.4, spec 7 404]"""
    theirs = await customer(await world.another())
    for sought in (UNKNOWN_ID, theirs["id"], "1", theirs["id"].replace("-", "")):
        for answer in (
            await world.get(f"/v1/customers/{sought}"),
            await world.patch(f"/v1/customers/{sought}", {"name": "Eve"}),
        ):
            assert problem(answer) == (404, "engine.not_found", None)


async def test_concurrent_corrections_of_different_fields_both_count(world: World):
    """[D-15]"""
    before = await customer(world)
    async with row_held(world, "customer", customer_id=before["id"]):
        calls = [
            asyncio.create_task(world.patch(path_of(before), changes))
            for changes in ({"name": "Ana Lima"}, {"email": "lima@example.com"}, {"document": DOCUMENT})
        ]
        await until_waiting(world)
    assert [(await call).status for call in calls] == [200, 200, 200]
    after = (await world.get(path_of(before))).json
    assert after == {**before, "name": "Ana Lima", "email": "lima@example.com", "hasDocument": True}
