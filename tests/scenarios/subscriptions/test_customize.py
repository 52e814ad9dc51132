"""Customize: private terms for one subscription (spec 4.4 customize; D-6, D-22)."""

import pytest

from tests.support.world import Json, World, columns, item, rows


def terms(*items: Json, **fields: Json) -> Json:
    """Return the complete terms of a monthly pix offer with these items."""
    return {"periodMonths": 1, "defaultPaymentMethod": "pix", "items": list(items), **fields}


async def customize(world: World, subscription: Json, body: Json) -> Json:
    return await world.made(f"/v1/subscriptions/{subscription['id']}/customize", body)


async def test_customizing_changes_only_the_terms_and_the_default_method(world: World):
    """[spec 4.4 POST /v1/subscriptions/{subscriptionId}/customize 200, spec 3.2 subscription customized, D-22]
    [D-6, D-36, spec 9.2]
    """
    product = await world.product()
    plan = await world.plan(product)
    await world.put(f"/v1/plans/{plan['id']}", {"name": "Two", **terms(item(product))})
    subscription = await world.enroll(plan, chargeDay=10)
    body = terms(item(product, (50, 1, None)), defaultPaymentMethod="boleto", periodMonths=3)

    answer = await customize(world, subscription, body)
    expected = subscription | {"customized": True, "paymentMethod": "boleto"}
    assert answer == expected
    assert (answer["planVersion"], answer["planId"]) == (2, plan["id"])
    assert (await world.get(f"/v1/subscriptions/{subscription['id']}")).json == expected
    [event] = await world.events("subscription.customized")
    assert event["data"] == {"subscription": expected}


async def test_customizing_changes_no_other_subscription(world: World):
    """[spec 4.4 customize is private, spec 9.2]"""
    product = await world.product(1000)
    plan = await world.plan(product)
    mine, neighbour = [await world.enroll(plan) for _ in range(2)]
    await customize(world, mine, terms(item(product, (50, 1, None))))

    assert (await world.get(f"/v1/plans/{plan['id']}")).json == plan
    assert (await world.get(f"/v1/subscriptions/{neighbour['id']}")).json == neighbour
    later = await world.enroll(plan)
    assert (later["customized"], later["planVersion"]) == (False, 1)
    await world.run("generation")
    billed = [(await world.invoices(each))[0]["totalCents"] for each in (mine, neighbour, later)]
    assert billed == [500, 1000, 1000]
    again = (await world.put(f"/v1/plans/{plan['id']}", {"name": "Plan", **terms(item(product))})).json
    assert again["version"] == 2, "private terms do not use up a version number of the plan"


@pytest.mark.faults
async def test_new_terms_apply_from_the_next_cycle(world: World):
    """The next due date stays the same. Later due dates follow the new period.
    [spec 4.4 customize from the next cycle, D-6, spec 2.5 snapshot]
    """
    await world.advance("2035-01-05")
    cheap, dear = await world.product(1000), await world.product(5000)
    subscription = await world.enroll(await world.plan(cheap), chargeDay=10)
    await world.advance("2035-01-08")
    body = terms(item(dear, (10, 2, 2)), defaultPaymentMethod="boleto", periodMonths=3)
    changed = await customize(world, subscription, body)
    assert changed["nextDueDate"] == "2035-02-10"

    await world.advance("2035-08-10")
    listed = await world.invoices(subscription)
    assert columns(listed, "cycle", "dueDate", "totalCents", "paymentMethod") == rows("""
        cycle | due        | total | method
        1     | 2035-01-10 | 1000  | pix
        2     | 2035-02-10 | 13500 | boleto
        3     | 2035-05-10 | 15000 | boleto
        4     | 2035-08-10 | 15000 | boleto
    """)
    assert await world.broken() == []


@pytest.mark.faults
async def test_discounts_of_new_terms_count_cycles_since_enrollment(world: World):
    """[spec 2.3 discount resolution, D-22]"""
    await world.advance("2035-01-05")
    product = await world.product(1000)
    subscription = await world.enroll(await world.plan(product), chargeDay=10)
    await world.advance("2035-02-10")
    await customize(world, subscription, terms(item(product, (90, 1, 2), (20, 3, 3))))
    await world.advance("2035-04-10")
    assert columns(await world.invoices(subscription), "totalCents") == [
        ("1000",),
        ("1000",),
        ("800",),
        ("1000",),
    ]


@pytest.mark.parametrize(
    ("default", "own", "new_default", "method", "source"),
    rows("""
        default | own    | new    | method | source
        pix     |        | boleto | boleto | plan_default
        pix     | card   | boleto | card   | override
        pix     | pix    | card   | pix    | override
    """),
)
async def test_the_method_follows_the_terms_unless_it_was_an_override(
    world: World, *, default, own, new_default, method, source
):
    """[D-22, spec 2.4 paymentMethodSource]"""
    product = await world.product()
    override = {"paymentMethod": own} if own else {}
    subscription = await world.enroll(await world.plan(product, defaultPaymentMethod=default), **override)
    changed = await customize(world, subscription, terms(item(product), defaultPaymentMethod=new_default))
    assert (changed["paymentMethod"], changed["paymentMethodSource"]) == (method, source)


@pytest.mark.parametrize(
    ("given", "kept"), [({}, 12), ({"commitmentCycles": None}, None), ({"commitmentCycles": 3}, 3)]
)
async def test_the_commitment_is_replaced_only_when_given(world: World, given, kept):
    """[D-22]"""
    product = await world.product()
    subscription = await world.enroll(await world.plan(product, commitmentCycles=12))
    changed = await customize(world, subscription, terms(item(product), **given))
    assert changed["commitmentCycles"] == kept
    shown = (await world.get(f"/v1/subscriptions/{subscription['id']}/terms")).json
    assert shown["commitmentCycles"] == kept
    canceled = await world.made(f"/v1/subscriptions/{subscription['id']}/cancel")
    assert canceled["commitment"]["cycles"] == kept


async def test_the_effective_terms_are_read_as_a_plan(world: World):
    """[D-22]"""
    product, other = await world.product(), await world.variable_product()
    plan = await world.plan(item(product, (20, 1, 3)), defaultPaymentMethod="card", maxInstallments=3)
    subscription = await world.enroll(plan)
    path = f"/v1/subscriptions/{subscription['id']}/terms"
    assert (await world.get(path)).json == plan

    body = terms(
        item(other), item(product, (5, 2, 4), (7, 9, None)), periodMonths=12, defaultPaymentMethod="boleto"
    )
    await customize(world, subscription, body)
    shown = (await world.get(path)).json
    assert {name: shown[name] for name in ("periodMonths", "defaultPaymentMethod")} == {
        "periodMonths": 12,
        "defaultPaymentMethod": "boleto",
    }
    assert shown["items"] == [each | {"position": place} for place, each in enumerate(body["items"])]
    assert set(shown) == set(plan)
    assert (shown["id"], shown["name"], shown["version"], shown["maxInstallments"]) == (
        plan["id"],
        "Plan",
        1,
        1,
    )


async def test_terms_can_be_sent_back_as_read(world: World):
    """[D-18a, D-22]"""
    plan = await world.plan(
        item(await world.product(), (20, 1, 3)), defaultPaymentMethod="card", maxInstallments=3
    )
    subscription = await world.enroll(plan)
    path = f"/v1/subscriptions/{subscription['id']}/terms"
    read = (await world.get(path)).json
    sent = ("periodMonths", "defaultPaymentMethod", "maxInstallments", "commitmentCycles", "items")
    await customize(world, subscription, {name: read[name] for name in sent})
    assert (await world.get(path)).json == read


async def test_terms_customized_again_replace_the_earlier_ones(world: World):
    """[D-22, spec 4.4 customize is private]"""
    one, other = await world.product(1000), await world.product(300)
    subscription = await world.enroll(await world.plan(one))
    await customize(world, subscription, terms(item(one), item(other)))
    await customize(world, subscription, terms(item(other, (10, 1, None))))
    await world.run("generation")
    assert columns(await world.invoices(), "totalCents") == [("270",)]


async def test_a_subscription_on_an_archived_plan_may_be_customized(world: World):
    """[D-19]"""
    product = await world.product()
    plan = await world.plan(product)
    subscription = await world.enroll(plan)
    await world.post(f"/v1/plans/{plan['id']}/archive")
    assert (await customize(world, subscription, terms(item(product))))["customized"] is True


async def test_replaced_private_terms_do_not_count_for_the_quota_of_items(world: World):
    """Fatura keeps replaced terms that billed an invoice, and deletes other replaced terms. [D-245, D-249]"""
    product = await world.product(1000)
    subscription = await world.enroll(await world.plan(product))
    counted = "SELECT c.plan_items AS n FROM account_counter c"
    stored = (
        "SELECT (SELECT count(*) FROM plan_item) AS items, (SELECT count(*) FROM plan_discount) AS discounts"
    )
    discounted = item(product, (50, 1, None))

    await customize(world, subscription, terms(discounted, discounted))
    for _ in range(3):
        await customize(world, subscription, terms(discounted, discounted, discounted))
    assert [row["n"] for row in await world.sql(counted)] == [1 + 3]
    assert [tuple(row) for row in await world.sql(stored)] == [(1 + 3, 3)]

    assert await world.run("generation") == 1
    await customize(world, subscription, terms(discounted))
    assert [row["n"] for row in await world.sql(counted)] == [1 + 1]
    assert [tuple(row) for row in await world.sql(stored)] == [(1 + 3 + 1, 3 + 1)]
    [kept] = (await world.get(f"/v1/subscriptions/{subscription['id']}/terms")).json["items"]
    assert kept["discounts"] == discounted["discounts"]
    assert await world.broken() == []


@pytest.mark.parametrize(("is_billed", "counted"), [(True, 1), (False, 1 + 2)])
async def test_private_terms_of_a_canceled_subscription_count_only_if_they_billed_nothing(
    world: World, *, is_billed: bool, counted: int
):
    """Clients can read the terms of a canceled subscription. [D-245, D-249]"""
    product = await world.product(1000)
    subscription = await world.enroll(await world.plan(product))
    await customize(world, subscription, terms(item(product), item(product)))
    if is_billed:
        assert await world.run("generation") == 1

    await world.made(f"/v1/subscriptions/{subscription['id']}/cancel")

    [row] = await world.sql("SELECT c.plan_items AS n FROM account_counter c")
    assert row["n"] == counted
    assert len((await world.get(f"/v1/subscriptions/{subscription['id']}/terms")).json["items"]) == 2
    assert await world.broken() == []
