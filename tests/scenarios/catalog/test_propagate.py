"""Propagation moves subscribers to the current version of their plan (D-23)."""

import pytest

from fatura.store.catalog import propagation
from tests.support.expect import UNKNOWN_ID, everything, invalid, problem
from tests.support.propagate_steps import propagate, publish, sum_of_previews, tables
from tests.support.sandbox_steps import connection_id
from tests.support.world import Json, World, columns, item, plan_body, rows


async def read(world: World, subscription: Json) -> Json:
    return (await world.get(f"/v1/subscriptions/{subscription['id']}")).json


@pytest.mark.faults
async def test_subscribers_move_from_their_next_cycle(world: World):
    """A moved subscriber gets the terms and the default payment method of the new version. A payment method that the
    subscriber chose, the next due date, the commitment and existing invoices stay the same.
    [D-23, D-23 cents, D-6, spec 2.5 snapshot]
    """
    await world.advance("2035-01-05")
    cheap, dear = await world.product(1000), await world.product(5000)
    plan = await world.plan(cheap, commitmentCycles=12)
    usual = await world.enroll(plan, chargeDay=10)
    own = await world.enroll(plan, chargeDay=10, paymentMethod="card")
    private, ended = await world.enroll(plan, chargeDay=10), await world.enroll(plan, chargeDay=10)
    await world.made(
        f"/v1/subscriptions/{private['id']}/customize",
        {name: value for name, value in plan_body(cheap).items() if name != "name"},
    )
    await world.made(f"/v1/subscriptions/{ended['id']}/cancel")
    await world.advance("2035-01-08")
    before = {each["id"]: await read(world, each) for each in (usual, own, private, ended)}
    emitted = await world.events()
    new = plan_body(item(dear, (10, 2, 2)), defaultPaymentMethod="boleto", periodMonths=3, commitmentCycles=2)
    assert (await world.put(f"/v1/plans/{plan['id']}", new)).json["version"] == 2
    late = await world.enroll(plan, chargeDay=10)

    assert await propagate(world, plan) == {
        "version": 2,
        "moved": 2,
        "skippedCount": 0,
        "skipped": [],
        "nextCycleCentsBefore": 2000,
        "nextCycleCentsAfter": 2 * 13_500,
    }

    moved = {"planVersion": 2}
    assert await read(world, usual) == before[usual["id"]] | moved | {"paymentMethod": "boleto"}
    assert await read(world, own) == before[own["id"]] | moved
    for untouched in (private, ended):
        assert await read(world, untouched) == before[untouched["id"]]
    assert await read(world, late) == late
    new_events = [event["type"] for event in (await world.events())[len(emitted) :]]
    assert new_events == ["subscription.created", *["subscription.terms_changed"] * 2]
    assert (await world.get(f"/v1/subscriptions/{usual['id']}/terms")).json["version"] == 2

    await world.advance("2035-05-10")
    for each, method in ((usual, "boleto"), (own, "card")):
        billed = await world.invoices(each)
        first = before[each["id"]]["paymentMethod"]
        assert columns(billed, "cycle", "dueDate", "totalCents", "paymentMethod") == rows(f"""
            cycle | due        | total | method
            1     | 2035-01-10 | 1000  | {first}
            2     | 2035-02-10 | 13500 | {method}
            3     | 2035-05-10 | 15000 | {method}
        """)
    assert await world.broken() == []


async def test_subscribers_on_the_current_version_do_not_count(world: World):
    """[D-23]"""
    plan = await world.plan()
    nothing = {
        "moved": 0,
        "skippedCount": 0,
        "skipped": [],
        "nextCycleCentsBefore": 0,
        "nextCycleCentsAfter": 0,
    }
    assert await propagate(world, plan) == nothing | {"version": 1}
    await world.enroll(plan)
    assert await propagate(world, plan) == nothing | {"version": 1}
    await publish(world, plan, await world.product(1))
    assert (await propagate(world, plan))["moved"] == 1
    assert await propagate(world, plan) == nothing | {"version": 2}


async def test_from_version_moves_only_that_versions_subscribers(world: World):
    """[D-23, D-111]"""
    plan = await world.plan(await world.product(100))
    first = await world.enroll(plan)
    await publish(world, plan, await world.product(200))
    second = await world.enroll(plan)
    await publish(world, plan, await world.product(300))

    assert (await propagate(world, plan, fromVersion=3))["moved"] == 0
    answer = await propagate(world, plan, fromVersion=2)
    assert (answer["moved"], answer["nextCycleCentsBefore"], answer["nextCycleCentsAfter"]) == (1, 200, 300)
    assert [(await read(world, each))["planVersion"] for each in (first, second)] == [1, 3]
    refused = await world.post(f"/v1/plans/{plan['id']}/propagate", {"fromVersion": 4})
    assert problem(refused) == (404, "engine.not_found", None)
    assert (await propagate(world, plan, fromVersion=None))["moved"] == 1


async def test_subscribers_whose_connection_cannot_bill_are_skipped_with_a_reason(world: World):
    """The pinned connection of a subscriber must be active and issue charges. The connection must also
    support the payment method and the installments that the subscriber would have after the move.
    [D-23 skipped, D-20]
    """
    product = await world.product(1000)
    plan = await world.plan(product)
    wide = await connection_id(world)
    pix_only, few, idle, silent = [
        (await world.connect(**settings))["connectionId"]
        for settings in ({"methods": ["pix"]}, {"maxInstallments": 3}, {}, {})
    ]
    moving = [
        await world.enroll(plan, gatewayConnectionId=wide),
        await world.enroll(plan, gatewayConnectionId=few, paymentMethod="boleto"),
        await world.enroll(plan, gatewayConnectionId=pix_only, paymentMethod="pix"),
    ]
    staying = {
        (await world.enroll(plan, gatewayConnectionId=pix_only))["id"]: "payment_method_unsupported",
        (await world.enroll(plan, gatewayConnectionId=few))["id"]: "installments_unsupported",
        (await world.enroll(plan, gatewayConnectionId=idle))["id"]: "gateway_connection_inactive",
        (await world.enroll(plan, gatewayConnectionId=silent))["id"]: "gateway_connection_inactive",
        (await world.enroll(plan, gatewayConnectionId=few, paymentMethod="card"))[
            "id"
        ]: "installments_unsupported",
    }
    await world.patch(f"/v1/integration/gateways/{idle}", {"active": False})
    await world.patch(f"/v1/integration/gateways/{silent}", {"settings": {"issuesCharges": False}})
    before = {each: (await world.get(f"/v1/subscriptions/{each}")).json for each in staying}
    await publish(world, plan, await world.product(700), defaultPaymentMethod="card", maxInstallments=6)

    answer = await propagate(world, plan)

    assert answer["skipped"] == [
        {"subscriptionId": each, "reason": reason} for each, reason in sorted(staying.items())
    ]
    assert (answer["moved"], answer["nextCycleCentsBefore"], answer["nextCycleCentsAfter"]) == (3, 3000, 2100)
    methods = [(await read(world, each))["paymentMethod"] for each in moving]
    assert methods == ["card", "boleto", "pix"]
    assert before == {each: (await world.get(f"/v1/subscriptions/{each}")).json for each in staying}

    await world.patch(f"/v1/integration/gateways/{idle}", {"active": True})
    assert (await propagate(world, plan))["moved"] == 1, (
        "a skipped subscriber moves once its connection is active"
    )


async def test_a_dry_run_returns_the_same_answer_and_changes_nothing(world: World):
    """[D-23 dry run, D-23 cents]"""
    plan = await world.plan(item(await world.product(1000), (50, 2, 3)), await world.variable_product())
    for day in (3, 9, 27):
        await world.enroll(plan, chargeDay=day)
    other = (await world.connect(methods=["pix"]))["connectionId"]
    await world.enroll(plan, gatewayConnectionId=other)
    await world.run("generation")
    await publish(world, plan, item(await world.product(3), (33, 1, 2)), defaultPaymentMethod="boleto")
    before, shown = await tables(world), await everything(world)

    dry = await propagate(world, plan, dryRun=True)

    assert await tables(world) == before
    assert await everything(world) == shown
    assert (dry["moved"], len(dry["skipped"])) == (3, 1)
    assert await propagate(world, plan, dryRun=False) == dry
    assert await tables(world) != before


@pytest.mark.faults
async def test_the_totals_equal_the_sums_of_the_previews(world: World):
    """[D-23 cents]"""
    await world.advance("2035-01-01")
    products = [await world.product(cents) for cents in (999, 1, 333_333, 0)]
    plan = await world.plan(item(products[0], (33, 1, 2), (67, 3, 4)), products[3], periodMonths=3)
    subscriptions = [await world.enroll(plan, chargeDay=day) for day in (2, 9)]
    await publish(world, plan, item(products[1], (50, 1, None)), products[0])
    subscriptions += [
        await world.enroll(plan, chargeDay=5, paymentMethod=method) for method in ("card", "boleto")
    ]
    await world.advance("2035-04-20")
    subscriptions += [await world.enroll(plan, chargeDay=5)]
    await publish(
        world, plan, item(products[2], (17, 2, 3)), await world.variable_product(), item(products[0])
    )
    before = await sum_of_previews(world, subscriptions)

    answer = await propagate(world, plan)

    after = await sum_of_previews(world, subscriptions)
    assert answer["moved"] == len(subscriptions)
    assert (answer["nextCycleCentsBefore"], answer["nextCycleCentsAfter"]) == (before, after)
    assert before != after


async def test_unknown_and_archived_plans_and_bad_bodies_are_refused(world: World):
    """[D-23, D-10, D-11]"""
    product = await world.product()
    plan, archived = await world.plan(product), await world.plan(product)
    await world.enroll(archived)
    await publish(world, archived, product)
    await world.made(f"/v1/plans/{archived['id']}/archive")
    before = await everything(world)

    for sought in (UNKNOWN_ID, "7"):
        refused = await world.post(f"/v1/plans/{sought}/propagate", {})
        assert problem(refused) == (404, "engine.not_found", None)
    for dry_run in (True, False):
        refused = await world.post(f"/v1/plans/{archived['id']}/propagate", {"dryRun": dry_run})
        assert problem(refused) == (409, "engine.plan_archived", None)
    unknown_first = await world.post(f"/v1/plans/{archived['id']}/propagate", {"fromVersion": 9})
    assert problem(unknown_first) == (404, "engine.not_found", None)
    bad: list[tuple[str, Json]] = [
        ("dryRun", {"dryRun": "true"}),
        ("dryRun", {"dryRun": 1}),
        ("dryRun", {"dryRun": None}),
        ("fromVersion", {"fromVersion": 0}),
        ("fromVersion", {"fromVersion": 1.0}),
        ("fromVersion", {"fromVersion": 2**31}),
        ("toVersion", {"toVersion": 1}),
        ("", None),
    ]
    for named, body in bad:
        assert list(invalid(await world.post(f"/v1/plans/{plan['id']}/propagate", body))) == [named], body
    assert await everything(world) == before


async def test_an_archived_product_does_not_prevent_propagation(world: World):
    """[D-23, spec 3.1 active to archived]"""
    old, product = await world.product(1), await world.product(7)
    plan = await world.plan(old)
    await world.enroll(plan)
    await publish(world, plan, product)
    await world.made(f"/v1/products/{product['id']}/archive")
    assert (await propagate(world, plan))["nextCycleCentsAfter"] == 7


async def test_a_repeat_with_its_key_is_replayed(world: World):
    """[D-23, D-14]"""
    plan = await world.plan()
    await world.enroll(plan)
    await publish(world, plan, await world.product(1))
    path = f"/v1/plans/{plan['id']}/propagate"
    first = await world.post(path, {}, key="move")
    await world.enroll(plan)
    await publish(world, plan, await world.product(2))

    again = await world.post(path, {}, key="move")
    assert (again.body, again.headers["idempotent-replayed"]) == (first.body, "true")
    assert problem(await world.post(path, {"fromVersion": 1}, key="move"))[0] == 422
    assert (await propagate(world, plan))["moved"] == 2


async def test_a_dry_run_stores_nothing(world: World):
    """[D-180, D-23 dry run]"""
    plan = await world.plan()
    await world.enroll(plan)
    await publish(world, plan, await world.product(1))
    path, before = f"/v1/plans/{plan['id']}/propagate", await world.sql("SELECT FROM idempotency_key")
    for _ in range(2):
        answer = await world.post(path, {"dryRun": True}, key="dry")
        assert (answer.status, answer.json["moved"]) == (200, 1)
        assert "idempotent-replayed" not in answer.headers
    assert await world.sql("SELECT FROM idempotency_key") == before
    assert (await world.post(path, {}, key="dry")).json["moved"] == 1


async def test_the_first_skipped_subscribers_are_listed_and_those_of_earlier_propagations_deleted(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    """[D-180, D-180 earlier, D-23 skipped, D-54 progress]"""
    monkeypatch.setattr(propagation, "SKIPPED_SHOWN", 2)
    plan, pix_only = await world.plan(), (await world.connect(methods=["pix"]))["connectionId"]
    staying = [(await world.enroll(plan, gatewayConnectionId=pix_only))["id"] for _ in range(3)]
    await publish(world, plan, await world.product(1), defaultPaymentMethod="card")
    path = f"/v1/plans/{plan['id']}"

    for answer in (
        (await world.post(f"{path}/propagate", {"dryRun": True})).json,
        (await world.post(f"{path}/propagate", {}, key="first")).json,
        await propagate(world, plan),
        (await world.get(f"{path}/propagation")).json,
    ):
        assert [each["subscriptionId"] for each in answer["skipped"]] == sorted(staying)[:2]
        assert answer["skippedCount"] == 3

    assert len(await world.sql("SELECT FROM propagation_skip")) == 3
    again = (await world.post(f"{path}/propagate", {}, key="first")).json
    assert (again["skippedCount"], again["skipped"]) == (3, [])
    assert await world.broken() == []
