"""A preview (dry run of the next invoice) equals the invoice that the billing run generates (spec 4.4 preview)."""

from datetime import date, timedelta

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from fatura.domain.money import MAX_CENTS
from tests.support.expect import everything, problem
from tests.support.world import Json, Merchant, World, item

SHARED_FIELDS = (
    "productId",
    "productName",
    "pricingSource",
    "pricingStatus",
    "monthlyPriceCents",
    "months",
    "discountPercent",
    "amountCents",
)


async def preview(merchant: Merchant, subscription: Json) -> Json:
    answer = await merchant.get(f"/v1/subscriptions/{subscription['id']}/preview")
    assert answer.status == 200, answer.body
    return answer.json


async def test_a_preview_shows_every_field_of_fixed_and_variable_items(world: World):
    """[spec 4.4 GET /v1/subscriptions/{subscriptionId}/preview 200, spec 4.4 preview variable items, D-25]"""
    gym, usage = await world.product(1001), await world.variable_product()
    plan = await world.plan(
        item(gym, (50, 1, 1)),
        item(usage),
        item(gym),
        periodMonths=3,
        defaultPaymentMethod="card",
        maxInstallments=2,
    )
    subscription = await world.enroll(plan, firstChargeDate=str(date(2035, 1, 10)))
    shown = await preview(world, subscription)
    note = shown["items"][1]["note"]
    assert "price endpoint" in note
    line = {"productId": gym["id"], "productName": "Gym", "pricingSource": "table", "pricingStatus": "priced"}
    assert shown == {
        "subscriptionId": subscription["id"],
        "cycle": 1,
        "dueDate": "2035-01-10",
        "paymentMethod": "card",
        "installments": 2,
        "fixedTotalCents": 1502 + 3003,
        "hasPendingItems": True,
        "items": [
            line
            | {
                "monthlyPriceCents": 1001,
                "months": 3,
                "discountPercent": 50,
                "amountCents": 1502,
                "note": None,
            },
            {
                "productId": usage["id"],
                "productName": "Usage",
                "pricingSource": "endpoint",
                "pricingStatus": "pending",
                "monthlyPriceCents": None,
                "months": 3,
                "discountPercent": None,
                "amountCents": None,
                "note": note,
            },
            line
            | {
                "monthlyPriceCents": 1001,
                "months": 3,
                "discountPercent": None,
                "amountCents": 3003,
                "note": None,
            },
        ],
    }


async def test_a_preview_changes_nothing(world: World):
    """[spec 4.4 preview without effect]"""
    subscription = await world.enroll(await world.plan())
    before = await everything(world)
    shown = [await preview(world, subscription) for _ in range(3)]
    assert shown[0] == shown[1] == shown[2]
    assert await everything(world) == before
    await world.run("generation")
    assert [each["cycle"] for each in await world.invoices()] == [1]


async def test_a_preview_shows_the_current_price(world: World):
    """[spec 4.2 new price]"""
    product = await world.product(1000)
    subscription = await world.enroll(await world.plan(product))
    assert (await preview(world, subscription))["fixedTotalCents"] == 1000
    await world.patch(f"/v1/products/{product['id']}", {"monthlyPriceCents": 1200, "name": "Gym plus"})
    shown = await preview(world, subscription)
    assert (shown["fixedTotalCents"], shown["items"][0]["productName"]) == (1200, "Gym plus")


async def test_a_preview_shows_private_terms_at_once(world: World):
    """[D-6, spec 4.4 customize from the next cycle]"""
    product = await world.product(1000)
    subscription = await world.enroll(await world.plan(product), chargeDay=10)
    terms = {"periodMonths": 6, "defaultPaymentMethod": "boleto", "items": [item(product, (25, 1, None))]}
    await world.made(f"/v1/subscriptions/{subscription['id']}/customize", terms)
    shown = await preview(world, subscription)
    assert (shown["dueDate"], shown["paymentMethod"]) == (subscription["nextDueDate"], "boleto")
    assert (shown["fixedTotalCents"], shown["items"][0]["months"]) == (4500, 6)


async def test_a_canceled_subscription_has_no_preview(world: World):
    """[spec 4.4 GET /v1/subscriptions/{subscriptionId}/preview 409]"""
    subscription = await world.enroll(await world.plan())
    path = f"/v1/subscriptions/{subscription['id']}"
    await world.made(f"{path}/cancel")
    assert problem(await world.get(f"{path}/preview")) == (409, "engine.subscription_canceled", None)


@st.composite
def discounts(draw: st.DrawFn) -> tuple[int, int, int | None]:
    first = draw(st.integers(1, 4))
    return draw(st.integers(1, 100)), first, draw(st.none() | st.integers(first, 5))


LINES = st.lists(
    st.tuples(
        st.none() | st.sampled_from([0, 1, 99, 9990, MAX_CENTS]) | st.integers(0, MAX_CENTS),
        st.lists(discounts(), max_size=3),
    ),
    min_size=1,
    max_size=4,
)


async def offer(
    merchant: Merchant, lines: list[tuple[int | None, list[tuple[int, int, int | None]]]]
) -> list[Json]:
    """Create a product for each line, and return a plan's items for these products.

    A line is a monthly price in cents and a list of discounts. If the price is None, the product is variable.
    """
    return [
        item(await merchant.variable_product())
        if cents is None
        else item(await merchant.product(cents), *rules)
        for cents, rules in lines
    ]


def as_previewed(invoice: Json) -> Json:
    """Return an invoice with only the fields of a preview."""
    return {
        "subscriptionId": invoice["subscriptionId"],
        "cycle": invoice["cycle"],
        "dueDate": invoice["dueDate"],
        "paymentMethod": invoice["paymentMethod"],
        "installments": invoice["installments"],
        "fixedTotalCents": sum(each["amountCents"] or 0 for each in invoice["items"]),
        "hasPendingItems": invoice["totalCents"] is None,
        "items": [{name: each[name] for name in SHARED_FIELDS} for each in invoice["items"]],
    }


@pytest.mark.faults
@settings(
    max_examples=20,
    deadline=None,
    # The phase `shrink` is left out, because each of its steps would bill three more cycles.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    lines=LINES,
    months=st.sampled_from([1, 3, 6, 12]),
    method=st.sampled_from(["card", "pix", "boleto"]),
    installments=st.integers(1, 12),
    charge_day=st.none() | st.integers(1, 28),
)
async def test_the_billing_run_generates_what_the_preview_showed(
    world: World, *, lines, months: int, method: str, installments: int, charge_day: int | None
):
    """[spec 4.4 preview as generated]"""
    merchant = await world.another()  # one test clock would end before all examples are done
    plan = await merchant.plan(
        *await offer(merchant, lines),
        periodMonths=months,
        defaultPaymentMethod=method,
        maxInstallments=installments if method == "card" else 1,
    )
    subscription = await merchant.enroll(plan, chargeDay=charge_day)
    path = f"/v1/subscriptions/{subscription['id']}"
    for cycle in (1, 2, 3):
        shown = await preview(merchant, subscription)
        assert shown["cycle"] == cycle
        due = date.fromisoformat(shown["dueDate"])
        await merchant.advance(str(due - timedelta(days=2)))
        newest = (await merchant.get("/v1/invoices?pageSize=1")).json["data"][0]
        invoice = (await merchant.get(f"/v1/invoices/{newest['id']}")).json
        notes = [each.pop("note") for each in shown["items"]]
        assert as_previewed(invoice) == shown
        assert [note is not None for note in notes] == [cents is None for cents, _ in lines]
        # The price calls and polls of an unpaid invoice would slow down the next cycles.
        if invoice["status"] != "paid":
            await merchant.made(f"/v1/invoices/{invoice['id']}/cancel")
    await merchant.made(f"{path}/cancel")
