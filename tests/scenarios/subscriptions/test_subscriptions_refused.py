"""Requests that POST /v1/subscriptions refuses. A refused request changes nothing (spec 4.4, 8)."""

from tests.support.expect import UNKNOWN_ID, everything, invalid, problem
from tests.support.world import Json, World, subscription_body

CUSTOMER = {"externalRef": "c-1", "name": "Ana", "email": "ana@example.com"}

LEFT_OUT = object()
BAD: list[tuple[str, Json]] = [
    ("planId", LEFT_OUT),
    ("planId", None),
    ("planId", "1"),
    ("planId", 7),
    ("planId", UNKNOWN_ID.replace("-", "")),
    ("planId", f"{{{UNKNOWN_ID}}}"),
    ("customer", LEFT_OUT),
    ("customer", None),
    ("customer", "c-1"),
    ("customer", []),
    ("customer.externalRef", LEFT_OUT),
    ("customer.externalRef", None),
    ("customer.externalRef", ""),  # [spec 8 customer.externalRef]
    ("customer.externalRef", " \t"),
    ("customer.externalRef", "x" * 121),
    ("customer.externalRef", 7),
    ("customer.externalRef", "a\0b"),
    ("customer.name", LEFT_OUT),
    ("customer.name", ""),  # [spec 8 customer.name]
    ("customer.name", " "),
    ("customer.name", "x" * 201),
    ("customer.name", "\ud800"),
    ("customer.email", LEFT_OUT),
    ("customer.email", None),
    ("customer.email", ""),
    ("customer.email", "ana"),
    ("customer.email", "ana@"),
    ("customer.email", "@example.com"),
    ("customer.email", "ana example@example.com"),
    ("customer.email", "ana@example..com"),
    ("customer.email", "ana@example.com, bia@example.com"),
    ("customer.email", "ana@example.com\r\nBcc: x@example.com"),
    ("customer.email", "x" * 250 + "@example.com"),
    ("customer.document", ""),
    ("customer.document", "1" * 10),  # [spec 8 customer.document]
    ("customer.document", "1" * 19),
    ("customer.document", " " * 12),
    ("customer.document", "529.982.247-26"),  # [D-251]
    ("customer.document", "12.345.678/0001-96"),
    ("customer.document", "12.ABC.345/01DE-36"),
    ("customer.document", 52998224725),
    ("externalRef", ""),  # [D-17]
    ("externalRef", " "),
    ("externalRef", "x" * 121),
    ("externalRef", 7),
    ("externalRef", "a\0b"),
    ("customer.phone", "11 99999-9999"),
    ("paymentMethod", "cash"),
    ("paymentMethod", "PIX"),
    ("paymentMethod", ""),
    ("paymentMethod", 1),
    ("chargeDay", 0),  # [spec 8 chargeDay]
    ("chargeDay", 29),
    ("chargeDay", -1),
    ("chargeDay", 10.0),
    ("chargeDay", "10"),
    ("chargeDay", True),
    ("firstChargeDate", "2035-01-04"),  # yesterday
    ("firstChargeDate", "2040-01-06"),  # [D-4] more than five years ahead
    ("firstChargeDate", "2035-02-30"),
    ("firstChargeDate", "2027-1-5"),
    ("firstChargeDate", "05/01/2027"),
    ("firstChargeDate", "2035-01-10T00:00:00Z"),
    ("firstChargeDate", "20270110"),
    ("firstChargeDate", 20270110),
    ("firstChargeDate", "9999-12-31"),
    ("startCycle", 0),  # [D-58]
    ("startCycle", 1201),
    ("startCycle", -1),
    ("startCycle", 7.0),
    ("startCycle", "7"),
    ("startCycle", True),
    ("startCycle", None),
    ("gatewayConnectionId", "first"),
    ("gatewayConnectionId", 1),
    ("status", "active"),
    ("cycleCount", 3),
]


def changed(body: Json, path: str, value: Json) -> Json:
    """Return a copy of the body with another value at `path`, or without this field if `value` is LEFT_OUT."""
    first, *rest = path.split(".", 1)
    if rest:
        return body | {first: changed(body[first], rest[0], value)}
    if value is LEFT_OUT:
        return {name: each for name, each in body.items() if name != first}
    return body | {first: value}


async def test_each_invalid_field_is_named_alone(world: World):
    """[spec 4.4 POST /v1/subscriptions 400, spec 4.4 customer.email, spec 4.4 firstChargeDate, spec 4.4 chargeDay]
    [D-8, D-11]
    """
    await world.advance("2035-01-05")
    good = {"planId": (await world.plan())["id"], "customer": CUSTOMER}
    before = await everything(world)
    for path, value in BAD:
        refused = invalid(await world.post("/v1/subscriptions", changed(good, path, value)))
        assert (path, value, list(refused)) == (path, value, [path])
    assert await everything(world) == before


async def test_one_answer_lists_all_invalid_fields(world: World):
    """[D-11]"""
    body = {"customer": {"externalRef": "", "name": "", "email": "x"}, "chargeDay": 40, "extra": 1}
    paths = set(invalid(await world.post("/v1/subscriptions", body)))
    assert paths == {
        "planId",
        "customer.externalRef",
        "customer.name",
        "customer.email",
        "chargeDay",
        "extra",
    }


GOOD: list[tuple[str, Json]] = [
    ("customer.externalRef", "x"),  # [spec 8 customer.externalRef]
    ("customer.externalRef", "ç" * 120),
    ("customer.name", "A"),  # [spec 8 customer.name]
    ("customer.name", " 😀" * 100),
    ("customer.email", "ana+gym@mail.example.com.br"),  # [spec 4.4 customer.email]
    ("customer.document", None),
    ("customer.document", "52998224725"),  # [spec 8 customer.document]
    ("customer.document", "12.345.678/0001-95"),
    ("customer.document", "12.ABC.345/01DE-35"),  # [D-251]
    ("customer.document", "AR 20-12345678-9"),
    ("customer.document", "1" * 18),
    ("chargeDay", 1),  # [spec 8 chargeDay]
    ("chargeDay", 28),
    ("chargeDay", None),
    ("startCycle", 1),  # [D-58]
    ("startCycle", 1200),
    ("paymentMethod", None),
    ("firstChargeDate", "2035-01-05"),  # today
    ("firstChargeDate", "2040-01-05"),
    ("firstChargeDate", None),
    ("gatewayConnectionId", None),
]


async def test_values_at_their_limits_are_kept_as_sent(world: World):
    """[D-11]"""
    await world.advance("2035-01-05")
    plan = await world.plan()
    for place, (path, value) in enumerate(GOOD):
        customer = CUSTOMER | {"externalRef": f"c-{place}"}
        body = changed({"planId": plan["id"], "customer": customer}, path, value)
        answer = await world.post("/v1/subscriptions", body)
        assert (path, value, answer.status) == (path, value, 201)
        for field in ("externalRef", "name", "email"):
            assert answer.json["customer"][field] == body["customer"][field]


async def test_a_repeat_is_replayed_after_its_first_charge_date(world: World):
    """[D-14, D-10]"""
    await world.advance("2035-01-05")
    body = subscription_body(await world.plan(), firstChargeDate="2035-01-06")
    first = await world.post("/v1/subscriptions", body, key="k")
    await world.post(f"/v1/subscriptions/{first.json['id']}/cancel")
    await world.advance("2035-03-01")
    again = await world.post("/v1/subscriptions", body, key="k")
    assert (again.status, again.body) == (201, first.body)
    assert len(await world.all("/v1/subscriptions")) == 1


async def test_unknown_and_foreign_plans_are_not_found(world: World):
    """[spec 4.4 POST /v1/subscriptions 404, D-10]"""
    other = await world.another()
    theirs = await other.plan()
    await world.connect()
    before = await everything(world)
    for plan_id in (UNKNOWN_ID, theirs["id"]):
        refused = await world.post("/v1/subscriptions", subscription_body({"id": plan_id}))
        assert problem(refused) == (404, "engine.not_found", None)
    assert await everything(world) == before


async def test_an_archived_plan_takes_no_subscription(world: World):
    """[spec 4.4 POST /v1/subscriptions 409, spec 3.2 plan active to archived, D-10]"""
    plan = await world.plan()
    await world.post(f"/v1/plans/{plan['id']}/archive")
    # With two connections, a request that names none gets 422. The API checks the plan first, so it answers
    # with 409 here.
    await world.connect()
    before = await everything(world)
    refused = await world.post("/v1/subscriptions", subscription_body(plan))
    assert problem(refused) == (409, "engine.plan_archived", None)
    assert await everything(world) == before
