"""Subscribing customers to plans (spec 2.4, 4.4)."""

from datetime import date, datetime, timedelta

import pytest

from fatura.domain.calendar import local_date
from tests.support.expect import UNKNOWN_ID, everything, problem
from tests.support.sandbox_steps import connection_id, now
from tests.support.world import Json, World, columns, item, rows, subscription_body

CUSTOMER = {"externalRef": "c-1", "name": "Ana Souza", "email": "ana@example.com"}
DOCUMENT = "529.982.247-25"


async def test_create_read_and_list_show_every_field(world: World):
    """[spec 2.4 subscription, spec 2.4 customer, spec 2.1 dates, spec 4.4 POST /v1/subscriptions 201]
    [spec 4.4 GET /v1/subscriptions 200, spec 4.4 GET /v1/subscriptions/{subscriptionId} 200]
    [spec 3.2 subscription created, spec 4.4 rule 1, D-17]
    """
    await world.advance("2035-01-05")
    plan = await world.plan(commitmentCycles=12)
    answer = await world.post(
        "/v1/subscriptions", {"planId": plan["id"], "customer": CUSTOMER, "chargeDay": 10}
    )

    assert answer.status == 201
    created = answer.json
    assert created == {
        "id": created["id"],
        "externalRef": None,
        "planId": plan["id"],
        "planVersion": 1,
        "customized": False,
        "customer": {"id": created["customer"]["id"], **CUSTOMER},
        "status": "active",
        "chargeDay": 10,
        "paymentMethod": "pix",
        "paymentMethodSource": "plan_default",
        "gatewayConnectionId": await connection_id(world),
        "cycleCount": 0,
        "commitmentCycles": 12,
        "nextDueDate": "2035-01-10",
        "startedAt": created["startedAt"],
        "canceledAt": None,
    }
    assert local_date(datetime.fromisoformat(created["startedAt"])) == date(2035, 1, 5)
    assert (await world.get(f"/v1/subscriptions/{created['id']}")).json == created
    listed = (await world.get("/v1/subscriptions")).json
    assert listed == {
        "data": [created],
        "pagination": {"page": 1, "pageSize": 25, "totalRecords": 1, "totalPages": 1},
    }
    [event] = await world.events("subscription.created")
    assert event["data"] == {"subscription": created}


async def test_the_next_billing_run_generates_the_first_invoice(world: World):
    """[spec 3.2 subscription created, spec 2.4 cycleCount]"""
    await world.advance("2035-01-05")
    subscription = await world.enroll(await world.plan())
    assert await world.invoices() == []

    await world.run("generation")
    assert columns(await world.invoices(), "cycle", "status", "dueDate") == [("1", "ready", "2035-01-08")]
    after = (await world.get(f"/v1/subscriptions/{subscription['id']}")).json
    assert after == subscription | {"cycleCount": 1, "nextDueDate": "2035-02-05"}


async def test_lists_are_paged_newest_first(world: World):
    """[spec 2.7 envelope, spec 2.7 newest first, D-16]"""
    plan = await world.plan()
    made = [(await world.enroll(plan))["id"] for _ in range(3)]
    first = (await world.get("/v1/subscriptions?page=1&pageSize=2")).json
    last = (await world.get("/v1/subscriptions?page=2&pageSize=2")).json
    beyond = (await world.get("/v1/subscriptions?page=3&pageSize=2")).json
    assert [each["id"] for each in first["data"] + last["data"]] == made[::-1]
    assert beyond == {"data": [], "pagination": first["pagination"] | {"page": 3}}
    assert first["pagination"] == {"page": 1, "pageSize": 2, "totalRecords": 3, "totalPages": 2}


@pytest.mark.parametrize("action", ["", "/preview", "/terms"])
async def test_unknown_malformed_and_foreign_ids_are_not_found(world: World, action):
    """[spec 4.4 GET /v1/subscriptions/{subscriptionId} 404, spec 5.4]
    [spec 4.4 GET /v1/subscriptions/{subscriptionId}/preview 404]
    """
    other = await world.another()
    theirs = await other.enroll(await other.plan())
    for sought in (UNKNOWN_ID, theirs["id"], "1", theirs["id"].replace("-", "")):
        answer = await world.get(f"/v1/subscriptions/{sought}{action}")
        assert problem(answer) == (404, "engine.not_found", None)


@pytest.mark.parametrize(
    ("default", "override", "method", "source"),
    rows("""
        default | own    | method | source
        pix     |        | pix    | plan_default
        card    |        | card   | plan_default
        boleto  | boleto | boleto | override
        pix     | card   | card   | override
        card    | pix    | pix    | override
    """),
)
async def test_the_method_is_the_plans_default_or_an_override(
    world: World, default, override, method, source
):
    """[spec 4.4 paymentMethod, spec 2.4 paymentMethodSource]"""
    plan = await world.plan(defaultPaymentMethod=default)
    own = {"paymentMethod": override} if override else {}
    subscription = await world.enroll(plan, **own)
    assert (subscription["paymentMethod"], subscription["paymentMethodSource"]) == (method, source)


@pytest.mark.parametrize(("method", "installments"), [("card", 6), ("pix", None), ("boleto", None)])
async def test_pix_on_a_card_plan_is_a_single_payment(world: World, method, installments):
    """[D-20, D-25]"""
    plan = await world.plan(defaultPaymentMethod="card", maxInstallments=6)
    await world.enroll(plan, paymentMethod=method)
    await world.run()
    [invoice] = await world.invoices()
    [charge] = (await world.get("/v1/sandbox/charges")).json["data"]
    assert (invoice["paymentMethod"], invoice["installments"]) == (method, installments)
    assert (charge["paymentMethod"], charge["installments"]) == (method, installments)


async def test_a_known_customer_is_reused_unchanged(world: World):
    """[spec 4.4 customer]"""
    plan = await world.plan()
    first = await world.enroll(plan, customer=CUSTOMER)
    again = await world.enroll(plan, customer={**CUSTOMER, "name": "Other", "email": "other@example.com"})
    fresh = await world.enroll(plan, customer={**CUSTOMER, "externalRef": "c-2"})
    assert again["customer"] == first["customer"]
    assert fresh["customer"] == {**first["customer"], "id": fresh["customer"]["id"], "externalRef": "c-2"}
    assert fresh["customer"]["id"] != first["customer"]["id"]
    assert (await world.get(f"/v1/subscriptions/{first['id']}")).json == first


async def test_accounts_do_not_share_customers(world: World):
    """[spec 4.4 customer, spec 5.4]"""
    other = await world.another()
    mine = await world.enroll(await world.plan(), customer=CUSTOMER)
    theirs = await other.enroll(await other.plan(), customer={**CUSTOMER, "name": "Bia"})
    assert mine["customer"]["id"] != theirs["customer"]["id"]
    assert (mine["customer"]["name"], theirs["customer"]["name"]) == ("Ana Souza", "Bia")


async def test_the_document_is_encrypted_and_never_returned(world: World):
    """[spec 2.4 document]"""
    plan = await world.plan()
    answer = await world.post(
        "/v1/subscriptions", {"planId": plan["id"], "customer": CUSTOMER | {"document": DOCUMENT}}
    )
    assert answer.status == 201
    assert set(answer.json["customer"]) == {"id", "externalRef", "name", "email"}
    await world.run()
    digits = "".join(filter(str.isdigit, DOCUMENT))
    shown = str(await everything(world))
    assert DOCUMENT not in shown
    assert digits not in shown
    [row] = await world.sql("SELECT document_sealed FROM customer")
    assert row["document_sealed"]
    assert DOCUMENT.encode() not in row["document_sealed"]


async def sealed_document(world: World) -> bytes | None:
    [row] = await world.sql("SELECT document_sealed FROM customer")
    return row["document_sealed"]


async def test_a_missing_document_is_filled_in_once(world: World):
    """[spec 4.4 customer]"""
    plan = await world.plan()
    for document, known in ((None, False), (DOCUMENT, True)):
        await world.enroll(plan, customer=CUSTOMER | {"document": document})
        assert (await sealed_document(world) is not None) is known
    kept = await sealed_document(world)
    await world.enroll(plan, customer=CUSTOMER | {"document": "111.444.777-35"})
    assert await sealed_document(world) == kept


async def test_a_new_version_applies_to_new_subscriptions_only(world: World):
    """[spec 2.4 planVersion, spec 9.2, spec 4.3 pinned subscribers, spec 3.2 plan new version]"""
    cheap, dear = await world.product(1000), await world.product(5000)
    plan = await world.plan(cheap, commitmentCycles=6)
    first = await world.enroll(plan)
    body = {"name": "Plan", "periodMonths": 3, "defaultPaymentMethod": "boleto", "items": [item(dear)]}
    assert (await world.put(f"/v1/plans/{plan['id']}", body)).status == 200
    second = await world.enroll(plan)

    assert (await world.get(f"/v1/subscriptions/{first['id']}")).json == first
    assert columns([first, second], "planVersion", "paymentMethod", "commitmentCycles") == [
        ("1", "pix", "6"),
        ("2", "boleto", "None"),
    ]
    await world.run("generation")
    assert [each["totalCents"] for each in await world.invoices(first)] == [1000]
    assert [each["totalCents"] for each in await world.invoices(second)] == [15_000]


async def test_started_at_follows_the_accounts_clock(world: World):
    """[D-1, spec 2.1 instants]"""
    other = await world.another()
    await world.advance(days=400)
    ahead = await world.enroll(await world.plan())
    behind = await other.enroll(await other.plan())
    started = [datetime.fromisoformat(each["startedAt"]) for each in (ahead, behind)]
    assert timedelta(days=400) <= started[0] - started[1] + timedelta(minutes=1) < timedelta(days=401)
    assert started[0] <= await now(world)


async def test_the_same_customer_may_subscribe_twice(world: World):
    """[spec 4.4 customer]"""
    plan = await world.plan()
    body = subscription_body(plan)
    made: list[Json] = [await world.made("/v1/subscriptions", body) for _ in range(2)]
    await world.run("generation")
    assert [len(await world.invoices(each)) for each in made] == [1, 1]
