"""Invoices in lists and details (spec 2.5, 4.5)."""

import pytest

from tests.support.expect import UNKNOWN_ID, problem
from tests.support.sandbox_steps import charges, issued_invoice
from tests.support.world import Json, World, columns, item


async def detail(world: World, invoice: Json) -> Json:
    answer = await world.get(f"/v1/invoices/{invoice['id']}")
    assert answer.status == 200
    return answer.json


def table_item(shown: Json, product: Json, **fields: Json) -> Json:
    """Return the expected JSON of a fixed product's item in a three-month period. The id is copied from `shown`."""
    return {
        "id": shown["id"],
        "productId": product["id"],
        "productName": product["name"],
        "pricingSource": "table",
        "pricingStatus": "priced",
        "months": 3,
        "currency": "BRL",
        "description": None,
        **fields,
    }


def payment_entry(shown: Json) -> Json:
    """Return the expected JSON of the only payment of `shown`, a paid invoice of 15.02 BRL."""
    (entry,) = shown["payments"]
    return {
        "id": entry["id"],
        "kind": "payment",
        "amountCents": 1502,
        "feeCents": 0,
        "currency": "BRL",
        "occurredAt": "2035-01-10T03:00:00.000Z",
        "source": "gateway",
        "chargeId": shown["charges"][0]["id"],
        "reference": entry["reference"],
        "method": None,
        "note": None,
        "recordedAt": entry["recordedAt"],
    }


async def test_a_detail_shows_every_field_of_an_invoice(world: World):
    """[spec 2.5 invoice, spec 2.5 item, spec 2.5 pricingSource table, spec 2.5 pricingStatus priced]
    [spec 4.5 GET /v1/invoices/{invoiceId} 200, spec 4.5 GET /v1/invoices 200, spec 2.1 nulls, D-9, D-25, D-129]
    """
    await world.advance("2035-01-05")
    gym, pool = await world.product(1001), await world.product(0, name="Pool")
    plan = await world.plan(
        item(gym, (50, 1, 1)), item(pool), periodMonths=3, defaultPaymentMethod="card", maxInstallments=3
    )
    subscription = await world.enroll(plan, chargeDay=10)
    await world.advance("2035-01-10T12:00:00Z")

    [listed] = (await world.get("/v1/invoices")).json["data"]
    [charge] = await charges(world, listed)
    shown = await detail(world, listed)
    assert shown == {
        "id": listed["id"],
        "subscriptionId": subscription["id"],
        "customer": subscription["customer"],
        "cycle": 1,
        "status": "paid",
        "dueDate": "2035-01-10",
        "paymentMethod": "card",
        "installments": 3,
        "totalCents": 1502,
        "currency": "BRL",
        "paidCents": 1502,
        "refundedCents": 0,
        "gatewayInvoiceId": charge["chargeId"],
        "issuedAt": shown["issuedAt"],
        "paidAt": "2035-01-10T03:00:00.000Z",
        "refundedAt": None,
        "disputedAt": None,
        "canceledAt": None,
        "issueError": None,
        "createdAt": shown["createdAt"],
        "items": [
            table_item(shown["items"][0], gym, monthlyPriceCents=1001, discountPercent=50, amountCents=1502),
            table_item(shown["items"][1], pool, monthlyPriceCents=0, discountPercent=None, amountCents=0),
        ],
        "paymentCount": 1,
        "payments": [payment_entry(shown)],
        "refunds": [],
        "pricingAttempts": [],
        "charges": shown["charges"],
        "payment": None,
        "payUrl": None,
    }
    only_in_details = {
        "payUrl",
        "paymentCount",
        "items",
        "payments",
        "refunds",
        "pricingAttempts",
        "charges",
        "payment",
    }
    assert listed == {name: value for name, value in shown.items() if name not in only_in_details}


async def test_amounts_have_the_currency_of_the_account(world: World):
    """Lists show the currency on the invoice. Details and events also show it on each item. [D-140]"""
    await world.sql("UPDATE account SET currency = 'USD'")
    subscription = await world.enroll(await world.plan(await world.product(), await world.variable_product()))
    await world.run("generation")
    [listed] = await world.invoices(subscription)
    [event] = await world.events("invoice.created")
    for invoice in (await detail(world, listed), event["data"]["invoice"]):
        assert [invoice["currency"], *(each["currency"] for each in invoice["items"])] == ["USD"] * 3
    assert listed["currency"] == "USD"
    assert await world.broken() == []


async def test_charges_and_payments_have_the_currency_of_the_account(world: World):
    """[D-140, D-50, D-53]"""
    await world.sql("UPDATE account SET currency = 'USD'")
    await world.set_up_gateway(behaviour="never_pay")
    invoice = await issued_invoice(world)
    path = f"/v1/invoices/{invoice['id']}"
    await world.made(f"{path}/payments", {"method": "cash", "amountCents": 4000})
    await world.made(f"/v1/sandbox/charges/{invoice['gatewayInvoiceId']}/pay", {"amountCents": 5990})
    await world.run("reconciliation")
    for amount_cents in (5990, 4000):
        await world.made(f"{path}/refunds", {"amountCents": amount_cents})

    shown = await detail(world, invoice)
    assert (shown["status"], shown["refundedCents"]) == ("paid", 9990)
    assert sorted(each["source"] for each in shown["payments"]) == ["gateway"] * 2 + ["manual"] * 2
    for name in ("charges", "payments", "refunds"):
        assert {each["currency"] for each in shown[name]} == {"USD"}, name
    assert await world.broken() == []


async def test_invoices_show_their_customer_as_it_is_now(world: World):
    """An event keeps the customer as it was when the event was emitted. [D-129]"""
    subscription = await world.enroll(await world.plan())
    await world.run()
    customer = subscription["customer"]
    renamed = {"name": "Ana Lima", "email": "lima@example.com"}
    assert (await world.patch(f"/v1/customers/{customer['id']}", renamed)).status == 200

    [invoice] = await world.invoices()
    assert (await detail(world, invoice))["customer"] == customer | renamed
    for query in ("", "?status=issued", f"?dueFrom={invoice['dueDate']}", f"?customerId={customer['id']}"):
        [listed] = (await world.get(f"/v1/invoices{query}")).json["data"]
        assert listed["customer"] == customer | renamed, query
    [created] = await world.events("invoice.created")
    assert created["data"]["invoice"]["customer"] == customer


async def test_an_invoice_with_a_variable_item_is_a_draft_without_a_total(world: World):
    """[D-24, spec 2.5 invoice, spec 2.1 nulls]"""
    plan = await world.plan(item(await world.product(700)), item(await world.variable_product()))
    await world.enroll(plan)
    await world.run("generation")
    [invoice] = await world.invoices()
    assert (invoice["status"], invoice["totalCents"], invoice["issuedAt"]) == ("draft", None, None)
    shown = await detail(world, invoice)
    assert columns(shown["items"], "pricingSource", "pricingStatus", "monthlyPriceCents", "amountCents") == [
        ("table", "priced", "700", "700"),
        ("endpoint", "pending", "None", "None"),
    ]
    [event] = await world.events("invoice.created")
    assert event["data"]["invoice"]["status"] == "draft"
    assert await charges(world) == []


@pytest.mark.parametrize("cents", [0, 5000])
async def test_an_invoice_of_zero_is_created_paid_and_never_charged(world: World, cents: int):
    """[D-9, spec 3.3 rule 2, D-24]"""
    plan = await world.plan(item(await world.product(cents), (100, 1, None)))
    await world.enroll(plan)
    await world.run()
    [invoice] = await world.invoices()
    assert (invoice["status"], invoice["totalCents"], invoice["paidAt"]) == ("paid", 0, invoice["createdAt"])
    assert (invoice["issuedAt"], invoice["gatewayInvoiceId"]) == (None, None)
    assert await charges(world) == []
    emitted = [event["type"] for event in await world.events() if event["type"].startswith("invoice.")]
    assert emitted == ["invoice.created", "invoice.paid"]
    assert await world.broken() == []


async def test_later_changes_of_product_and_plan_do_not_change_an_invoice(world: World):
    """[spec 2.5 snapshot, spec 3.1 active to archived]"""
    product = await world.product(1000)
    plan = await world.plan(item(product, (10, 1, None)))
    await world.enroll(plan)
    await world.run("generation")
    [invoice] = await world.invoices()
    before = await detail(world, invoice)
    await world.patch(f"/v1/products/{product['id']}", {"name": "Dear", "monthlyPriceCents": 9999})
    offer = {"name": "Two", "periodMonths": 12, "defaultPaymentMethod": "boleto", "items": [item(product)]}
    await world.put(f"/v1/plans/{plan['id']}", offer)
    await world.post(f"/v1/products/{product['id']}/archive")
    await world.run("generation")
    assert await detail(world, invoice) == before


async def test_archived_products_and_plans_keep_billing(world: World):
    """[spec 3.1 active to archived, spec 3.2 plan active to archived]"""
    await world.advance("2035-01-05")
    product = await world.product(1000)
    plan = await world.plan(product)
    early = await world.enroll(plan, chargeDay=10)
    await world.post(f"/v1/products/{product['id']}/archive")
    late = await world.enroll(plan, chargeDay=10)
    await world.post(f"/v1/plans/{plan['id']}/archive")
    await world.advance("2035-02-08")
    for subscription in (early, late):
        assert columns(await world.invoices(subscription), "totalCents") == [("1000",), ("1000",)]


async def in_several_states(world: World) -> dict[str, Json]:
    """Create one held, one paid, one issued and one ready invoice, and return them by status."""
    await world.enroll(await world.plan(await world.variable_product()))
    await world.enroll(await world.plan(await world.product(0)))
    await world.enroll(await world.plan())
    await world.run()
    await world.enroll(await world.plan())
    await world.run("generation")
    return {invoice["status"]: invoice for invoice in await world.invoices()}


async def test_a_list_of_one_state_has_its_own_total(world: World):
    """[spec 4.5 GET /v1/invoices status, D-16]"""
    by_state = await in_several_states(world)
    assert set(by_state) == {"awaiting_value", "paid", "issued", "ready"}
    for state in ("draft", "awaiting_value", "ready", "issued", "paid", "overdue", "canceled"):
        found = (await world.get(f"/v1/invoices?status={state}")).json
        expected = [by_state[state]] if state in by_state else []
        count = len(expected)
        assert found["data"] == expected
        assert found["pagination"] == {"page": 1, "pageSize": 25, "totalRecords": count, "totalPages": count}


async def test_lists_are_paged_newest_first(world: World):
    """[spec 2.7 envelope, spec 2.7 newest first, D-16]"""
    await world.advance("2035-01-05")
    await world.enroll(await world.plan(), chargeDay=10)
    await world.advance("2035-03-10")
    first = (await world.get("/v1/invoices?pageSize=2")).json
    last = (await world.get("/v1/invoices?pageSize=2&page=2&status=paid")).json
    assert [each["cycle"] for each in first["data"] + last["data"]] == [3, 2, 1]
    assert first["pagination"] == {"page": 1, "pageSize": 2, "totalRecords": 3, "totalPages": 2}
    empty = (await world.get("/v1/invoices?status=overdue")).json
    assert empty == {
        "data": [],
        "pagination": {"page": 1, "pageSize": 25, "totalRecords": 0, "totalPages": 0},
    }


async def test_unknown_malformed_and_foreign_ids_are_not_found(world: World):
    """[spec 4.5 GET /v1/invoices/{invoiceId} 404, spec 5.4]"""
    other = await world.another()
    await other.enroll(await other.plan())
    await other.run("generation")
    [theirs] = await other.invoices()
    for sought in (UNKNOWN_ID, theirs["id"], "x", theirs["subscriptionId"]):
        answer = await world.get(f"/v1/invoices/{sought}")
        assert problem(answer) == (404, "engine.not_found", None)
    assert await world.invoices() == []


async def test_invoices_are_read_only(world: World):
    """[spec 1, D-11]"""
    await world.enroll(await world.plan())
    await world.run("generation")
    [invoice] = await world.invoices()
    path = f"/v1/invoices/{invoice['id']}"
    for method, at in (("POST", "/v1/invoices"), ("PATCH", path), ("PUT", path), ("DELETE", path)):
        answer = await world.call(method, at, {"status": "paid"})
        assert problem(answer)[:2] == (405, "engine.method_not_allowed")
    assert await world.invoices() == [invoice]


async def test_totals_beyond_32_bits_are_exact(world: World):
    """[D-8, spec 2.1 money]"""
    product = await world.product(999_999_999_999)
    plan = await world.plan(*[item(product, (1, 1, None))] * 20, periodMonths=12)
    await world.enroll(plan)
    await world.run()
    [invoice] = await world.invoices()
    assert invoice["totalCents"] == 20 * 11_879_999_999_988
    assert [charge["amountCents"] for charge in await charges(world)] == [invoice["totalCents"]]
