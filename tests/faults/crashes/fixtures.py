"""Functions that create fixtures. A fixture is the account in which a flow starts.

Some functions leave no due work. The others leave the work that a flow starts with: after `ready`, for example, an
invoice is due to be issued.
"""

from datetime import timedelta

from fatura.domain.calendar import start_of_day
from tests.faults.crashes.place import Shop
from tests.faults.journal import JOURNAL_FILE, Journal
from tests.support.world import Json, item, plan_body, subscription_body

DUE_IN_DAYS = 5
"""Days from the subscription to its first due date. The invoice is generated three days before the due date."""


_PART = """
INSERT INTO entry (charge_id, kind, reference, amount_cents, occurred_at)
SELECT charge_id, 'payment', 'part_' || charge_id, 990, ? FROM charge
"""
_REFUND_AND_DISPUTE = """
INSERT INTO entry (charge_id, kind, reference, amount_cents, occurred_at)
SELECT charge_id, column1, column1 || '_' || charge_id, column2, ?
FROM charge, (VALUES ('refund', 990), ('dispute_opened', 500))
"""
_DOUBLE = """
INSERT INTO charge (charge_id, account_id, connection_id, invoice_id, attempt, amount_cents, due_date, state,
    created_at, visible_at)
SELECT 'out_ffffffffffffffffffffffffffffffff', account_id, connection_id, invoice_id, attempt, amount_cents, due_date,
    'open', created_at, visible_at
FROM charge WHERE invoice_id = ?
"""


async def account(shop: Shop) -> None:
    sandbox = (await shop.get("/v1/integration")).json["gateways"][0]["connectionId"]
    await _patched(shop, f"/v1/integration/gateways/{sandbox}", {"active": False})
    made = await shop.made(
        "/v1/integration/gateways",
        {"provider": "outside", "credentials": {}, "settings": {"productCatalog": True, "refunds": "key"}},
    )
    shop.ids["connection"] = made["connectionId"]
    url = shop.external(f"webhook/{shop.account_id}")
    assert (await shop.put("/v1/integration/webhook", {"url": url})).status == 200


async def catalog(shop: Shop) -> None:
    await account(shop)
    fixed = await shop.product(9990)
    url = shop.external(f"price/{shop.account_id}/1200")
    variable = await shop.made(
        "/v1/products",
        {"name": "Usage", "pricing": {"mode": "endpoint", "url": url, "capCents": 100_000}},
    )
    plan = await shop.plan(item(fixed, (20, 1, 3)))
    shop.ids |= {"fixed": fixed["id"], "variable": variable["id"], "plan": plan["id"]}
    await shop.run()


async def subscriber(shop: Shop) -> None:
    await catalog(shop)
    shop.ids["subscription"] = await _enrolled(shop, shop.ids["plan"], "fixed")
    await shop.run()


async def two_subscribers(shop: Shop) -> None:
    await subscriber(shop)
    products: list[Json] = [{"productId": shop.ids[name]} for name in ("fixed", "variable", "variable")]
    mixed = await shop.made("/v1/plans", plan_body(*products, defaultPaymentMethod="card", maxInstallments=3))
    shop.ids["mixed"] = mixed["id"]
    await _enrolled(shop, mixed["id"], "mixed")
    await shop.run()


async def due_subscribers(shop: Shop) -> None:
    await two_subscribers(shop)
    _to_the_morning(shop, days=DUE_IN_DAYS - 3)


async def unpriced(shop: Shop) -> None:
    await due_subscribers(shop)
    await shop.run("generation", "push")


async def held(shop: Shop) -> None:
    """A held invoice. Its price calls fail, because each flow with this fixture lists price faults in `Flow.before`."""
    await unpriced(shop)
    await shop.run("pricing", "push")
    invoice = (await shop.all("/v1/invoices?status=awaiting_value"))[0]
    detail = (await shop.get(f"/v1/invoices/{invoice['id']}")).json
    pending = [each["id"] for each in detail["items"] if each["pricingStatus"] == "pending"]
    shop.ids |= {"invoice": invoice["id"], "item": pending[0], "other_item": pending[-1]}


async def ready(shop: Shop) -> None:
    await subscriber(shop)
    _to_the_morning(shop, days=DUE_IN_DAYS - 3)
    await shop.run("generation", "push")
    shop.ids["invoice"] = (await shop.all("/v1/invoices"))[0]["id"]


async def two_ready(shop: Shop) -> None:
    await unpriced(shop)
    await shop.run("pricing", "push")


async def issued(shop: Shop) -> None:
    await ready(shop)
    await shop.run()


async def forgotten(shop: Shop) -> None:
    """An issued invoice whose charge the gateway does not know any more. The charge is due to be polled."""
    await issued(shop)
    _change_at_gateway(shop, "DELETE FROM charge")
    _to_the_morning(shop, days=2)


async def partly_paid(shop: Shop) -> None:
    """An issued invoice, a part of which was paid at the gateway since the last poll."""
    await issued(shop)
    _change_at_gateway(shop, _PART, shop.now().isoformat())


async def unswept(shop: Shop) -> None:
    """Changes at the gateway that no poll finds: a canceled charge was paid, and an issued invoice has a second charge.

    The nightly sweep of the connection, which finds such changes, is due.
    """
    await two_ready(shop)
    await shop.run()
    canceled, doubled = (each["id"] for each in await shop.all("/v1/invoices"))
    await shop.made(f"/v1/invoices/{canceled}/cancel")
    await shop.run()
    (row,) = await shop.sql("SELECT max(s.next_sweep_at) AS at FROM connection_sweep s")
    shop.now.move_to(row["at"])
    await shop.run("reconciliation", "push")
    _change_at_gateway(
        shop,
        "UPDATE charge SET state = 'paid', paid_at = ? WHERE invoice_id = ?",
        shop.now().isoformat(),
        canceled,
    )
    _change_at_gateway(shop, _DOUBLE, doubled)


async def two_due(shop: Shop) -> None:
    await two_ready(shop)
    await shop.run()
    _to_the_morning(shop, days=3)


async def past_due(shop: Shop) -> None:
    await two_due(shop)
    await shop.run()
    _to_the_morning(shop, days=1)


async def overdue(shop: Shop) -> None:
    await past_due(shop)
    _to_the_morning(shop, days=2)
    await shop.run()
    shop.ids["invoice"] = (await shop.all("/v1/invoices?status=overdue"))[0]["id"]


async def disputed(shop: Shop) -> None:
    """Two charges that were paid since the last poll.

    A part of each charge was refunded, and another part is disputed.
    """
    await two_due(shop)
    _change_at_gateway(shop, _REFUND_AND_DISPUTE, shop.now().isoformat())


async def paid(shop: Shop) -> None:
    await two_due(shop)
    await shop.run()
    shop.ids["invoice"] = (await shop.all("/v1/invoices?status=paid"))[0]["id"]


async def two_connections(shop: Shop) -> None:
    """Three subscriptions whose pinned connection is the first of two connections."""
    await two_subscribers(shop)
    await _enrolled(shop, shop.ids["plan"], "second")
    made = await shop.made(
        "/v1/integration/gateways", {"provider": "outside", "credentials": {}, "settings": {}}
    )
    shop.ids["other_connection"] = made["connectionId"]
    await shop.run()


async def undelivered(shop: Shop) -> None:
    await due_subscribers(shop)
    await shop.run("generation", "pricing", "issuance")


async def delivered(shop: Shop) -> None:
    await issued(shop)
    shop.ids["event"] = (await shop.events("invoice.issued"))[0]["id"]


async def unmirrored(shop: Shop) -> None:
    await account(shop)
    await shop.run()
    await shop.product(100)
    await shop.product(200)


async def new_version(shop: Shop) -> None:
    """A plan with a second version, and three subscribers.

    Two subscribers still have the first version. The third has terms of its own.
    """
    await two_subscribers(shop)
    await _enrolled(shop, shop.ids["plan"], "second")
    third = await _enrolled(shop, shop.ids["plan"], "third")
    await shop.made(f"/v1/subscriptions/{third}/customize", terms(shop))
    body = plan_body({"productId": shop.ids["fixed"]}, periodMonths=3)
    assert (await shop.put(f"/v1/plans/{shop.ids['plan']}", body)).status == 200
    await shop.run()


async def second_cycle(shop: Shop) -> None:
    """A subscriber with new terms, on the morning of the day when the invoice of cycle 2 is generated."""
    await issued(shop)
    body = plan_body({"productId": shop.ids["fixed"]}, {"productId": shop.ids["variable"]}, periodMonths=3)
    assert (await shop.put(f"/v1/plans/{shop.ids['plan']}", body)).status == 200
    await shop.made(f"/v1/plans/{shop.ids['plan']}/propagate", {})
    for _ in range(3):  # advance to the due date, and to three and six days after it
        _to_the_morning(shop, days=3)
        await shop.run()
    _to_the_morning(shop, days=21)
    await shop.run("reconciliation", "push")


async def a_day_before(shop: Shop) -> None:
    await two_subscribers(shop)
    _to_the_morning(shop, days=DUE_IN_DAYS - 4)
    await shop.run()
    day = shop.now().date() + timedelta(days=1)
    shop.ids["tomorrow"] = (start_of_day(day) + timedelta(hours=9)).strftime("%Y-%m-%dT%H:%M:%S.000Z")


async def old_keys(shop: Shop) -> None:
    """Idempotency-Keys that have expired, because they are older than 30 days."""
    await account(shop)
    await shop.product(100)
    await shop.run()
    _to_the_morning(shop, days=31)


def terms(shop: Shop) -> Json:
    return {
        "periodMonths": 1,
        "defaultPaymentMethod": "card",
        "maxInstallments": 2,
        "items": [{"productId": shop.ids["fixed"]}, {"productId": shop.ids["variable"]}],
    }


def enrollment(shop: Shop, plan_id: str, ref: str) -> Json:
    due = (shop.now() + timedelta(days=DUE_IN_DAYS)).date().isoformat()
    body = subscription_body({"id": plan_id}, firstChargeDate=due)
    body["customer"]["externalRef"] = ref
    return body


async def _enrolled(shop: Shop, plan_id: str, ref: str) -> str:
    return (await shop.made("/v1/subscriptions", enrollment(shop, plan_id, ref)))["id"]


def _to_the_morning(shop: Shop, *, days: int) -> None:
    """Set the clock to 9:00 local time, `days` days later."""
    day = shop.now().date() + timedelta(days=days)
    shop.now.move_to(start_of_day(day) + timedelta(hours=9))


def _change_at_gateway(shop: Shop, statement: str, *values: str) -> None:
    """Change charges in the gateway's journal, as if payers or the gateway had done so. The engine makes no call."""
    journal = Journal(shop.place.folder / JOURNAL_FILE)
    assert journal.change(statement, *values), statement
    journal.close()


async def _patched(shop: Shop, path: str, body: Json) -> None:
    answer = await shop.patch(path, body)
    assert answer.status == 200, answer.body
