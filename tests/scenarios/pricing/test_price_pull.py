"""Price calls that price an item, skip it, fail, or are given up (spec 4.7, D-29 to D-32)."""

from datetime import datetime, timedelta

import pytest

from tests.support.price_server import PriceServer, Reply
from tests.support.price_steps import only_invoice, usage
from tests.support.world import World, columns, rows


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


async def test_a_variable_item_is_priced_by_the_endpoint_and_billed(
    world: World, prices: PriceServer
) -> None:
    """[spec 4.7 request, spec 4.7 headers, spec 4.7 response, spec 4.7 rule 1, spec 9.3, D-31]
    [spec 2.5 pricing attempt, spec 2.5 pricingSource endpoint]
    """
    prices.answers({"amount": 4200, "description": "42 calls", "trace": 7})
    product = await usage(world, prices, externalRef="calls")
    plan = await world.plan(product, await world.product(9990))
    subscription = await world.enroll(plan)
    await world.run()

    invoice = await only_invoice(world)
    assert (invoice["status"], invoice["totalCents"]) == ("issued", 14190)
    assert columns(invoice["items"], "pricingSource", "pricingStatus", "amountCents", "description") == rows("""
        source   | status | amount | description
        endpoint | priced | 4200   | 42 calls
        table    | priced | 9990   | None
    """)
    (call,) = prices.calls
    assert call.json == {
        "version": 1,
        "mode": "live",
        "pricingRequestId": invoice["items"][0]["id"],
        "product": {"externalRef": "calls"},
        "subscription": {"externalRef": subscription["id"]},
        "customer": {"externalRef": subscription["customer"]["externalRef"]},
        "period": {"start": "2033-11-20", "end": "2033-12-19"},
        "cycle": 1,
        "currency": "BRL",
    }
    (attempt,) = invoice["pricingAttempts"]
    assert attempt | {"latencyMs": 0, "createdAt": ""} == {
        "itemId": invoice["items"][0]["id"],
        "attempt": 1,
        "url": prices.url(),
        "outcome": "ok",
        "responseStatus": 200,
        "latencyMs": 0,
        "responseBody": '{"amount": 4200, "description": "42 calls", "trace": 7}',
        "responseBodyCut": False,
        "createdAt": "",
    }
    types = [event["type"] for event in await world.events() if event["data"].get("invoice")]
    assert types == ["invoice.created", "invoice.ready", "invoice.issued"]
    await world.run()
    assert len(prices.calls) == 1
    assert await world.broken() == []


async def test_a_failing_endpoint_holds_the_invoice_until_it_answers(
    world: World, prices: PriceServer
) -> None:
    """[spec 3.3 draft to awaiting_value, spec 3.3 awaiting_value to ready, spec 4.7 rule 3, spec 4.7 rule 4]
    [spec 2.5 pricingStatus pending, spec 6.2]
    """
    prices.answers(Reply("busy", status=503), Reply("busy", status=503), {"amount": 100})
    await world.enroll(await world.plan(await usage(world, prices)))
    await world.run()
    held = await only_invoice(world)
    assert (held["status"], held["totalCents"], held["items"][0]["pricingStatus"]) == (
        "awaiting_value",
        None,
        "pending",
    )
    assert [event["type"] for event in await world.events("invoice.held")] == ["invoice.held"]

    await world.advance(days=4)

    invoice = await only_invoice(world)
    assert (invoice["status"], invoice["totalCents"]) == ("paid", 100)
    assert columns(invoice["pricingAttempts"], "attempt", "outcome", "responseStatus") == rows("""
        attempt | outcome    | status
        1       | http_error | 503
        2       | http_error | 503
        3       | ok         | 200
    """)
    assert [event["type"] for event in await world.events() if event["type"].startswith("invoice.")] == [
        "invoice.created",
        "invoice.held",
        "invoice.ready",
        "invoice.issued",
        "invoice.paid",
    ]
    assert await world.broken() == []


OFFSETS = (0, 30, 90, 210, 450, 930, 1830, 3630, 7230, 14430, 28830, 45030)


async def test_after_twelve_failed_calls_the_invoice_stays_held(world: World, prices: PriceServer) -> None:
    """The delays between calls grow and include jitter. One `pricing_warning` and one `pricing_exhausted` are emitted.
    [D-29, spec 6.4, spec 8 price retry window]
    """
    prices.answers(Reply(b"out of order", status=500))
    await world.enroll(await world.plan(await usage(world, prices)))
    await world.advance(days=10)

    invoice = await only_invoice(world)
    assert invoice["status"] == "awaiting_value"
    first = at(invoice["pricingAttempts"][0]["createdAt"])
    after = [(at(each["createdAt"]) - first).total_seconds() for each in invoice["pricingAttempts"]]
    assert len(after) == 12
    for place, (seconds, offset) in enumerate(zip(after, OFFSETS, strict=True)):
        interval = offset - OFFSETS[max(place - 1, 0)]
        assert offset <= seconds <= offset + interval * 0.1 + 2, (place, seconds, offset)

    (warning,) = await world.events("invoice.pricing_warning")
    (exhausted,) = await world.events("invoice.pricing_exhausted")
    warned_after = at(warning["createdAt"]) - first
    assert timedelta(minutes=15) <= warned_after <= timedelta(minutes=15, seconds=10)
    for event, code in ((warning, "pricing_failing"), (exhausted, "pricing_exhausted")):
        error = event["data"]["error"]
        assert (error["code"], error["outcome"], error["responseStatus"], error["responseBody"]) == (
            code,
            "http_error",
            500,
            "out of order",
        )
        assert error["itemId"] == invoice["items"][0]["id"]
    assert at(exhausted["createdAt"]) - first >= timedelta(hours=12, minutes=30)
    assert len(await world.events("invoice.held")) == 1
    assert await world.broken() == []


@pytest.mark.parametrize(
    ("reply", "outcome", "status"),
    [
        (Reply({"amount": 0}), "ok", 200),  # a free item
        (Reply({"amount": 5000}, status=201), "ok", 201),  # every 2xx is accepted
        (Reply({"amount": 5001}), "over_cap", 200),
        (Reply({"skip": True, "amount": "x"}), "skip", 200),
        (Reply({"amount": 10.0}), "invalid_response", 200),
        (Reply({"amount": True}), "invalid_response", 200),
        (Reply({"amount": -1}), "invalid_response", 200),
        (Reply({"amount": 1, "skip": "no"}), "invalid_response", 200),
        (Reply({"amount": 1, "description": 5}), "invalid_response", 200),
        (Reply({}), "invalid_response", 200),
        (Reply([1]), "invalid_response", 200),
        (Reply(b""), "invalid_response", 200),
        (Reply(b'{"amount": 1, "amount": 2}'), "invalid_response", 200),
        (Reply(b'{"amount": NaN}'), "invalid_response", 200),
        (Reply({"amount": 1}, status=404), "http_error", 404),
        (Reply({"amount": 1}, status=302, headers={"Location": "/other"}), "http_error", 302),
    ],
)
async def test_an_answer_has_the_same_outcome_live_and_in_a_test_call(
    world: World, prices: PriceServer, reply: Reply, outcome: str, status: int
) -> None:
    """[D-30, spec 4.2 outcome ok, spec 4.2 outcome skip, spec 4.2 outcome http_error]
    [spec 4.2 outcome invalid_response, spec 4.2 outcome over_cap, spec 4.7 rule 2, spec 4.7 skip]
    [spec 2.5 pricingStatus skipped, spec 4.2 POST /v1/products/{productId}/pricing-test 200]
    """
    prices.answers(reply)
    product = await usage(world, prices, cap=5000)
    tried = (await world.post(f"/v1/products/{product['id']}/pricing-test")).json
    assert (tried["outcome"], tried["responseStatus"]) == (outcome, status)
    assert prices.calls[0].json["mode"] == "test"
    assert tried["amountCents"] == (reply.body["amount"] if outcome == "ok" else None)

    await world.enroll(await world.plan(product, await world.product(100)))
    await world.run("generation", "pricing")
    invoice = await only_invoice(world)
    (attempt,) = invoice["pricingAttempts"]
    assert (attempt["outcome"], attempt["responseStatus"]) == (outcome, status)
    assert attempt["responseBody"] == reply.raw().decode()
    total = {"ok": 100 + (tried["amountCents"] or 0), "skip": 100}.get(outcome)
    assert (invoice["totalCents"], invoice["status"]) == (
        total,
        "awaiting_value" if total is None else "ready",
    )
    assert [call.path for call in prices.calls] == ["/price", "/price"]
    assert await world.broken() == []


async def test_an_invoice_with_all_items_skipped_is_paid_without_a_charge(
    world: World, prices: PriceServer
) -> None:
    """[D-9]"""
    prices.answers({"skip": True, "description": "nothing used"})
    await world.enroll(await world.plan(await usage(world, prices)))
    await world.run()
    invoice = await only_invoice(world)
    assert (invoice["status"], invoice["totalCents"], invoice["issuedAt"]) == ("paid", 0, None)
    assert (invoice["items"][0]["pricingStatus"], invoice["items"][0]["amountCents"]) == ("skipped", None)
    assert await world.broken() == []
