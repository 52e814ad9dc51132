"""The event stream: the content of events, reading by cursor, and query parameters."""

from uuid import UUID

import pytest

from tests.support.sandbox_steps import (
    charges,
    issued_invoice,
    move,
    pass_time,
    queue_fault,
    read,
    ready_invoice,
)
from tests.support.world import Json, World, plan_body


async def page(world: World, query: str = "") -> Json:
    answer = await world.get(f"/v1/events{query}")
    assert answer.status == 200, answer.body
    return answer.json


async def test_an_invoices_event_holds_its_detail_with_the_clients_own_ids(world: World) -> None:
    """`data.invoice` is the invoice detail without `pricingAttempts`, `charges`, `payment`, `payUrl` and `refunds`.

    `data.invoice` also has the externalRefs of the products and of the subscription. [D-37]
    """
    product = await world.product(externalRef="gym-1")
    subscription = await world.enroll(await world.plan(product))
    await world.run("generation", "issuance")

    (emitted,) = await world.events("invoice.issued")

    (listed,) = await world.invoices(subscription)
    detail = await read(world, listed)
    assert detail.pop("pricingAttempts") == []
    assert detail.pop("charges")
    assert detail.pop("payment")
    assert detail.pop("refunds") == []
    del detail["payUrl"]
    assert emitted == {
        "id": str(UUID(emitted["id"])),
        "sequence": 3,
        "type": "invoice.issued",
        "createdAt": detail["issuedAt"],
        "data": {
            "invoice": {
                **detail,
                "subscriptionExternalRef": None,
                "items": [{**each, "productExternalRef": "gym-1"} for each in detail["items"]],
            }
        },
    }


async def test_each_invoice_of_a_batch_has_its_own_event_data(world: World) -> None:
    """[D-37, D-28]"""
    plan = await world.plan(await world.product(externalRef="gym-1"), await world.product(300))
    made = [
        await world.enroll(plan, chargeDay=chargeDay, externalRef=ref)
        for chargeDay, ref in ((5, "contract-1"), (17, None), (5, "contract-3"))
    ]
    await world.advance(days=40)

    emitted = {
        each["data"]["invoice"]["id"]: each["data"]["invoice"]
        for each in await world.events("invoice.created")
    }

    listed = [invoice for each in made for invoice in await world.invoices(each)]
    assert len(emitted) == len(listed) >= len(made)
    by_id = {each["id"]: each for each in made}
    for each in listed:
        detail, event = await read(world, each), emitted[each["id"]]
        subscription = by_id[each["subscriptionId"]]
        for name in ("subscriptionId", "cycle", "dueDate", "paymentMethod", "totalCents", "createdAt"):
            assert event[name] == detail[name]
        items = [
            {name: shown for name, shown in item.items() if name != "productExternalRef"}
            for item in event["items"]
        ]
        assert items == detail["items"]
        assert [item["productExternalRef"] for item in event["items"]] == ["gym-1", None]
        assert event["subscriptionExternalRef"] == subscription["externalRef"]
        assert event["customer"] == subscription["customer"] == detail["customer"]


async def test_a_subscriptions_event_holds_the_subscription(world: World) -> None:
    """[D-36, D-37]"""
    plan = await world.plan()
    created = await world.enroll(plan)
    terms = plan_body(await world.product(100))
    del terms["name"]
    customized = await world.made(f"/v1/subscriptions/{created['id']}/customize", terms)
    canceled = await world.made(f"/v1/subscriptions/{created['id']}/cancel")

    commitment = canceled.pop("commitment")
    assert [(each["type"], each["data"]) for each in await world.events()] == [
        ("subscription.created", {"subscription": created}),
        ("subscription.customized", {"subscription": customized}),
        ("subscription.canceled", {"subscription": {**canceled, "commitment": commitment}}),
    ]


async def test_an_event_is_a_snapshot(world: World) -> None:
    """[D-37]"""
    invoice = await issued_invoice(world)
    before = await world.events()

    (charge,) = await charges(world)
    await move(world, charge, "pay")
    await world.run("reconciliation")
    await world.post(f"/v1/subscriptions/{invoice['subscriptionId']}/cancel")

    assert (await world.events())[: len(before)] == before
    statuses = [
        each["data"]["invoice"]["status"] for each in await world.events() if "invoice" in each["data"]
    ]
    assert statuses == ["ready", "issued", "paid"]


async def test_issued_and_paid_are_emitted_with_the_transition(world: World) -> None:
    """[spec 6.2, spec 6.1, D-36]"""
    invoice = await issued_invoice(world)
    await world.advance(invoice["dueDate"])

    (issued,), (paid,) = await world.events("invoice.issued"), await world.events("invoice.paid")
    found = await read(world, invoice)
    assert issued["createdAt"] == found["issuedAt"]
    assert (paid["data"]["invoice"]["status"], paid["data"]["invoice"]["paidAt"]) == ("paid", found["paidAt"])


async def test_an_alert_carries_its_reason(world: World) -> None:
    """[D-37]"""
    await ready_invoice(world)
    await queue_fault(world, "create_charge", "rejected")
    await world.run("issuance")

    carried = {each["type"]: set(each["data"]) for each in await world.events()}
    assert carried == {
        "subscription.created": {"subscription"},
        "invoice.created": {"invoice"},
        "invoice.issue_failed": {"invoice", "error"},
    }


async def test_refused_requests_emit_nothing(world: World) -> None:
    """[D-37]"""
    subscription = await world.enroll(await world.plan())
    await world.post(f"/v1/subscriptions/{subscription['id']}/cancel")
    before = await world.events()

    assert (await world.post(f"/v1/subscriptions/{subscription['id']}/cancel")).status == 409
    assert (await world.post("/v1/subscriptions", {"planId": subscription["planId"]})).status == 400

    assert await world.events() == before


@pytest.mark.faults
async def test_sequence_counts_each_account_from_one_without_gaps(world: World) -> None:
    """[D-37]"""
    other = await world.another()
    for merchant in (world, other, world):
        await merchant.enroll(await merchant.plan())
        await world.run()
        await pass_time(merchant, days=4)

    assert [each["sequence"] for each in await world.events()] == list(range(1, 9))
    assert [each["sequence"] for each in await other.events()] == list(range(1, 5))


@pytest.mark.faults
async def test_a_page_has_50_events_by_default_and_200_at_most(world: World) -> None:
    """[spec 8 events limit, spec 4.6 GET /v1/events 200]"""
    await _emit(world, 201)

    for limit, shown in (("", 50), ("?limit=1", 1), ("?limit=200", 200)):
        answer = await page(world, limit)

        assert [each["sequence"] for each in answer["data"]] == list(range(1, shown + 1))
        following = await page(world, f"?limit=200&cursor={answer['nextCursor']}")
        assert following["data"][0]["sequence"] == shown + 1
        assert set(answer) == {"data", "nextCursor", "completeFrom"}


async def _emit(world: World, count: int) -> None:
    subscription = await world.enroll(await world.plan())
    terms = plan_body(await world.product(100))
    del terms["name"]
    for _ in range(count - 1):
        await world.made(f"/v1/subscriptions/{subscription['id']}/customize", terms)


MALFORMED = (
    "limit=0",
    "limit=201",  # [spec 8 events limit]
    "limit=-1",
    "limit=1.0",
    "limit=",
    "limit=1&limit=2",
    "cursor=",
    "cursor=-1",
    "cursor=1.5",
    "cursor=abc",
    "cursor=%EF%BC%91",  # a full-width Unicode digit
    "cursor=9223372036854775808",
    "cursor=" + "9" * 5000,
    "cursor=0%00",
    "type=invoice.unheard_of",
    "type=",
)


async def test_a_malformed_query_is_refused(world: World) -> None:
    """[D-11]"""
    found: list[tuple[str, int, str]] = []
    for query in MALFORMED:
        answer = await world.get(f"/v1/events?{query}")
        assert answer.type == "engine.invalid_request", query
        found += [(query, answer.status, each["path"]) for each in answer.json["meta"]["fields"]]

    assert found == [(query, 400, query.partition("=")[0]) for query in MALFORMED]


async def test_a_client_polls_with_the_cursor(world: World) -> None:
    """[D-38]"""
    assert await page(world) == {"data": [], "nextCursor": "0", "completeFrom": 1}
    await world.enroll(await world.plan())

    first = await page(world, "?cursor=0")
    assert [each["type"] for each in first["data"]] == ["subscription.created"]
    at_end = await page(world, f"?cursor={first['nextCursor']}")
    assert at_end == {"data": [], "nextCursor": first["nextCursor"], "completeFrom": 1}
    await world.run()

    following = await page(world, f"?cursor={at_end['nextCursor']}")
    assert [each["type"] for each in following["data"]] == ["invoice.created", "invoice.issued"]
    assert isinstance(following["nextCursor"], str)


async def test_a_type_filters_the_stream(world: World) -> None:
    """The cursor is a position in the whole stream, not in the filtered one. [D-38]"""
    await _emit(world, 4)
    await world.run()

    first = await page(world, "?type=subscription.customized&limit=2")
    rest = await page(world, f"?type=subscription.customized&cursor={first['nextCursor']}")

    assert [each["sequence"] for each in first["data"] + rest["data"]] == [2, 3, 4]
    assert (await page(world, "?type=webhook.disabled"))["data"] == []


async def test_an_event_always_has_the_same_bytes(world: World) -> None:
    """[D-37]"""
    await issued_invoice(world)
    whole = (await world.get("/v1/events")).body
    alone = (await world.get("/v1/events?limit=1&cursor=1")).body
    by_type = (await world.get("/v1/events?type=invoice.created")).body

    element = alone.removeprefix(b'{"data":[').removesuffix(b'],"nextCursor":"2","completeFrom":1}')
    assert element in whole
    assert element in by_type


@pytest.mark.faults
async def test_events_of_an_invoice_keep_their_order(world: World) -> None:
    """Events of other invoices may come between the events of an invoice. [D-38]"""
    plan = await world.plan()
    for day in (5, 5, 9, 20):
        await world.enroll(plan, chargeDay=day)

    await pass_time(world, days=70)

    emitted: dict[str, list[str]] = {}
    for event in await world.events():
        if invoice := event["data"].get("invoice"):
            emitted.setdefault(invoice["id"], []).append(event["type"].removeprefix("invoice."))
    lives = {tuple(each) for each in emitted.values()}
    assert lives <= {("created", "issued", "paid"), ("created", "issued"), ("created",)}
    assert ("created", "issued", "paid") in lives
    assert await world.broken() == []
