"""A provider's minimum for a charge, and for each installment of a card (D-49)."""

import pytest

from tests.support.expect import everything, problem
from tests.support.propagate_steps import propagate, publish, tables
from tests.support.sandbox_steps import charges, connection_id, pass_time, queue_fault, read
from tests.support.world import Answer, Json, World, item, plan_body, rows, subscription_body

LEAST, EACH = 500, 300


@pytest.fixture(autouse=True)
async def minimums(world: World) -> None:
    await world.set_up_gateway(minAmountCents=LEAST, minInstallmentCents=EACH)


def too_low(cents: int) -> tuple[int, str, Json]:
    meta = {"amountCents": cents, "minAmountCents": LEAST, "provider": "sandbox"}
    return 422, "engine.amount_unsupported", meta


def too_many(installments: int, cents: int) -> tuple[int, str, Json]:
    meta = {
        "maxInstallments": installments,
        "gatewayMax": cents // EACH,
        "amountCents": cents,
        "minInstallmentCents": EACH,
        "provider": "sandbox",
    }
    return 422, "engine.installments_unsupported", meta


async def enroll(world: World, plan: Json, **fields: Json) -> Answer:
    return await world.post("/v1/subscriptions", subscription_body(plan, **fields))


async def card_plan(world: World, cents: int, installments: int) -> Json:
    return await world.plan(
        await world.product(cents), defaultPaymentMethod="card", maxInstallments=installments
    )


async def low_invoice(world: World, cents: int = LEAST - 1, **plan: Json) -> Json:
    """Generate an invoice below the minimum, by lowering the price after the customer has subscribed."""
    product = await world.product(10_000)
    subscription = await world.enroll(await world.plan(product, **plan))
    answer = await world.patch(f"/v1/products/{product['id']}", {"monthlyPriceCents": cents})
    assert answer.status == 200, answer.body
    await world.run("generation")
    (invoice,) = await world.invoices(subscription)
    assert invoice["totalCents"] == cents
    return invoice


async def test_the_connection_shows_its_minimums(world: World) -> None:
    """[D-49 minimums, D-155, D-61 settings]"""
    (connection,) = (await world.get("/v1/integration")).json["gateways"]
    assert (connection["minAmountCents"], connection["minInstallmentCents"]) == (LEAST, EACH)

    await world.set_up_gateway(minAmountCents=None, minInstallmentCents=None)

    (connection,) = (await world.get("/v1/integration")).json["gateways"]
    assert (connection["minAmountCents"], connection["minInstallmentCents"]) == (None, None)
    assert (await enroll(world, await card_plan(world, 12, 12))).status == 201


@pytest.mark.parametrize(
    ("discounts", "start_cycle", "status"),
    [
        ([], 1, 201),
        ([(50, 1, None)], 1, 201),
        ([(51, 1, 1)], 1, 422),
        ([(51, 7, 7)], 1, 422),
        ([(51, 1, 6)], 7, 201),
        ([(51, 1, 7)], 7, 422),
        ([(100, 1, None)], 1, 201),
        ([(100, 1, 3), (51, 4, None)], 1, 422),
    ],
)
async def test_a_customer_cannot_subscribe_if_a_cycle_would_be_too_cheap(
    world: World, discounts: list[tuple[int, int, int | None]], start_cycle: int, status: int
) -> None:
    """Fatura checks the amount of every cycle from the start cycle on, except cycles that cost nothing.
    [D-49 minimums, D-155, D-9, D-58]
    """
    plan = await world.plan(item(await world.product(1000), *discounts))
    before = await everything(world)

    answer = await enroll(world, plan, startCycle=start_cycle)

    assert answer.status == status
    if status == 422:
        assert problem(answer) == too_low(490)
        assert await everything(world) == before


async def test_a_customer_cannot_subscribe_if_an_installment_would_be_too_low(world: World) -> None:
    """[D-49 minimums, D-155, D-21]"""
    accepted = await enroll(world, await card_plan(world, 12 * EACH, 12))
    plan = await card_plan(world, 12 * EACH - 1, 12)

    assert accepted.status == 201
    assert problem(await enroll(world, plan)) == too_many(12, 12 * EACH - 1)
    assert (await enroll(world, plan, paymentMethod="pix")).status == 201
    low = await card_plan(world, LEAST - 1, 12)
    assert problem(await enroll(world, low)) == too_low(LEAST - 1)


async def test_an_unknown_amount_prevents_no_subscription(world: World) -> None:
    """[D-49 minimums, D-155]"""
    plan = await world.plan(await world.product(1), await world.variable_product())

    assert (await enroll(world, plan)).status == 201


async def test_terms_below_the_minimum_cannot_be_customized(world: World) -> None:
    """[D-49 minimums, D-155, D-22]"""
    subscription = await world.enroll(await world.plan())
    await world.run("generation")
    path = f"/v1/subscriptions/{subscription['id']}/customize"

    def terms(product: Json, **fields: Json) -> Json:
        body = plan_body(product, **fields)
        return {name: value for name, value in body.items() if name != "name"}

    low, card = await world.product(LEAST - 1), {"defaultPaymentMethod": "card", "maxInstallments": 2}
    odd = await world.product(2 * EACH - 1)
    past = item(await world.product(1000), (99, 1, 1))
    before = await everything(world)

    assert problem(await world.post(path, terms(low))) == too_low(LEAST - 1)
    assert problem(await world.post(path, terms(odd, **card))) == too_many(2, 2 * EACH - 1)

    assert await everything(world) == before
    assert (await world.post(path, terms(past))).status == 200, "the discount is for a cycle of the past"


async def test_a_preview_below_the_minimum_is_refused(world: World) -> None:
    """[D-49 minimums, D-155]"""
    product = await world.product(1000)
    subscription = await world.enroll(await world.plan(product))
    path = f"/v1/subscriptions/{subscription['id']}/preview"
    assert (await world.get(path)).json["fixedTotalCents"] == 1000

    await world.patch(f"/v1/products/{product['id']}", {"monthlyPriceCents": LEAST - 1})
    assert problem(await world.get(path)) == too_low(LEAST - 1)

    await world.patch(f"/v1/products/{product['id']}", {"monthlyPriceCents": 0})
    assert (await world.get(path)).json["fixedTotalCents"] == 0


async def test_subscribers_whose_amounts_would_be_too_low_are_skipped(world: World) -> None:
    """A discount of past cycles is no reason to skip a subscriber.
    [D-49 minimums, D-155, D-23 skipped, D-111]
    """
    product = await world.product(1000)
    plan = await world.plan(product)
    old, new = await world.enroll(plan), await world.enroll(plan, chargeDay=28)
    free = (await world.connect())["connectionId"]
    unbound = await world.enroll(plan, gatewayConnectionId=free)
    await world.run("generation")
    assert [len(await world.invoices(each)) for each in (old, new)] == [1, 0]
    await publish(world, plan, item(product, (51, 1, 1)))

    dry = await propagate(world, plan, dryRun=True)
    before = await tables(world)
    assert await propagate(world, plan, dryRun=True) == dry
    assert await tables(world) == before

    skipped = [{"subscriptionId": new["id"], "reason": "amount_unsupported"}]
    assert (dry["moved"], dry["skipped"]) == (2, skipped)
    assert await propagate(world, plan) == dry
    moved = [(await world.get(f"/v1/subscriptions/{each['id']}")).json for each in (old, unbound, new)]
    assert [each["planVersion"] for each in moved] == [2, 2, 1]


async def test_subscribers_whose_installments_would_be_too_low_are_skipped(world: World) -> None:
    """[D-49 minimums, D-155, D-23 skipped]"""
    product = await world.product(2 * EACH - 1)
    plan = await world.plan(product)
    card, pix = await world.enroll(plan), await world.enroll(plan, paymentMethod="pix")
    await publish(world, plan, product, defaultPaymentMethod="card", maxInstallments=2)

    answer = await propagate(world, plan)

    assert answer["skipped"] == [{"subscriptionId": card["id"], "reason": "installments_unsupported"}]
    assert (await world.get(f"/v1/subscriptions/{pix['id']}")).json["planVersion"] == 2


async def unused_faults(world: World) -> int:
    (row,) = await world.sql("SELECT sum(times_left)::int AS unused FROM sandbox_fault")
    return row["unused"]


async def test_an_invoice_below_the_minimum_is_not_sent(world: World) -> None:
    """The invoice stays `ready` and shows the reason. A retry fails with the same error.
    [D-49 minimums, D-155, D-34, D-49 detail]
    """
    await queue_fault(world, "create_charge", "rejected", times=100)
    invoice = await low_invoice(world)

    await world.run()
    await pass_time(world, days=2)

    shown = await read(world, invoice)
    detail = f"The gateway charges at least {LEAST} cents, and the charge would be {LEAST - 1} cents."
    assert shown["status"] == "ready"
    assert (shown["issueError"]["code"], shown["issueError"]["detail"]) == ("amount_unsupported", detail)
    (charge,) = shown["charges"]
    assert (charge["status"], charge["gatewayInvoiceId"]) == ("not_made", None)
    assert charge["error"] == {"code": "amount_unsupported", "detail": detail}
    assert shown["payment"] is None
    (event,) = await world.events("invoice.issue_failed")
    assert event["data"]["error"]["code"] == "amount_unsupported"
    retried = await world.made(f"/v1/invoices/{invoice['id']}/retry-issuance")
    assert retried["issueError"]["code"] == "amount_unsupported"
    assert len(await world.events("invoice.issue_failed")) == 2
    assert await unused_faults(world) == 100, "the gateway got no request"
    assert await world.broken() == []


async def test_money_received_elsewhere_pays_an_invoice_below_the_minimum(world: World) -> None:
    """[D-49 minimums, D-155, D-52]"""
    invoice = await low_invoice(world)
    await world.run()

    paid = await world.made(f"/v1/invoices/{invoice['id']}/payments", {"method": "cash"})

    assert (paid["status"], paid["paidCents"]) == ("paid", LEAST - 1)
    assert await charges(world) == []
    assert await world.broken() == []


async def test_an_invoice_below_the_minimum_is_reissued_when_the_gateway_accepts_it(world: World) -> None:
    """[D-49 minimums, D-155, D-51 422]"""
    invoice = await low_invoice(world)
    await world.run()
    path = f"/v1/invoices/{invoice['id']}/reissue"
    assert problem(await world.post(path, {})) == too_low(LEAST - 1)
    assert (await read(world, invoice))["status"] == "ready"

    await world.set_up_gateway(minAmountCents=LEAST - 1)
    await world.made(path, {})
    await world.run("issuance")

    assert (await read(world, invoice))["status"] == "issued"
    assert [each["amountCents"] for each in await charges(world)] == [LEAST - 1]
    assert await world.broken() == []


async def test_an_invoice_below_the_installment_minimum_is_reissued_with_fewer_installments(
    world: World,
) -> None:
    """[D-49 minimums, D-155, D-51 422]"""
    cents = 12 * EACH - 1
    invoice = await low_invoice(world, cents, defaultPaymentMethod="card", maxInstallments=12)
    await world.run()
    assert (await read(world, invoice))["issueError"]["code"] == "installments_unsupported"
    path = f"/v1/invoices/{invoice['id']}/reissue"

    assert problem(await world.post(path, {})) == too_many(12, cents)
    assert problem(await world.post(path, {"installments": 12})) == too_many(12, cents)
    await world.made(path, {"installments": 11})
    await world.run("issuance")

    assert [each["installments"] for each in await charges(world)] == [11]
    assert (await read(world, invoice))["status"] == "issued"


async def test_the_open_amount_after_a_part_payment_must_reach_the_minimum(world: World) -> None:
    """After the refused reissue, the payer can still pay the open charge. [D-49 minimums, D-155, D-67 reissue]"""
    await world.set_up_gateway(behaviour="never_pay")
    subscription = await world.enroll(await world.plan(await world.product(1000)))
    await world.run()
    (invoice,) = await world.invoices(subscription)
    part = {"method": "cash", "amountCents": 1000 - LEAST + 1}
    await world.made(f"/v1/invoices/{invoice['id']}/payments", part)
    before = await read(world, invoice)

    answer = await world.post(f"/v1/invoices/{invoice['id']}/reissue", {})

    assert problem(answer) == too_low(LEAST - 1)
    assert await read(world, invoice) == before
    assert [each["status"] for each in await charges(world)] == ["open"]


async def test_other_invoices_are_issued_beside_one_below_the_minimum(world: World) -> None:
    """[D-49 minimums, D-155]"""
    await low_invoice(world)
    await world.enroll(await world.plan())

    await world.run()

    assert sorted(each["status"] for each in await world.invoices()) == ["issued", "ready"]
    assert [each["amountCents"] for each in await charges(world)] == [9990]


async def test_a_value_entered_by_hand_below_the_minimum_is_not_sent(world: World) -> None:
    """[D-49 minimums, D-155]"""
    subscription = await world.enroll(await world.plan(await world.variable_product()))
    await world.run("generation")
    (invoice,) = await world.invoices(subscription)
    item_id = (await read(world, invoice))["items"][0]["id"]
    await world.made(f"/v1/invoices/{invoice['id']}/items/{item_id}/value", {"amount": LEAST - 1})

    await world.run()

    assert (await read(world, invoice))["issueError"]["code"] == "amount_unsupported"
    assert await charges(world) == []


WRONG = rows("""
    setting             | value
    minAmountCents      | 0
    minAmountCents      | -1
    minInstallmentCents | true
    minInstallmentCents | 1.5
""")


async def test_a_wrong_minimum_is_refused(world: World) -> None:
    """[D-61 settings, D-8]"""
    path = f"/v1/integration/gateways/{await connection_id(world)}"
    for setting, value in WRONG:
        content = f'{{"settings": {{"{setting}": {value}}}}}'.encode()
        answer = await world.call("PATCH", path, content=content)
        assert (answer.status, answer.type) == (400, "engine.invalid_request")
        assert [each["path"] for each in answer.json["meta"]["fields"]] == [f"settings.{setting}"]
