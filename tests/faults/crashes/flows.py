"""The table of flows that the crash matrix kills: everything that changes anything."""

from tests.faults.crashes import grounds
from tests.faults.crashes.acts import Ask, Flow, OpenAccount, Wait, run
from tests.faults.crashes.place import Shop
from tests.faults.gateway.lies import Lies
from tests.support.world import Json, plan_body

MAIL = {"externalRef": "new", "name": "Ana", "email": "ana@example.com", "document": "12345678901"}


def _product(shop: Shop) -> Json:
    url = shop.outside(f"price/{shop.account_id}/700")
    return {"name": "Calls", "pricing": {"mode": "endpoint", "url": url, "capCents": 5000}}


def _plan(shop: Shop) -> Json:
    products = [{"productId": shop.ids[name]} for name in ("fixed", "variable", "fixed")]
    products[0] |= {"discounts": [{"percent": 10, "fromCycle": 1, "toCycle": 2}]}
    return plan_body(*products)


def _subscription(shop: Shop) -> Json:
    return {"planId": shop.ids["plan"], "customer": MAIL, "chargeDay": 10}


def _elsewhere(shop: Shop) -> Json:
    return {"url": shop.outside(f"elsewhere/{shop.account_id}")}


def _tomorrow(shop: Shop) -> Json:
    return {"to": shop.ids["tomorrow"]}


FAILING = Lies(price_fails=1000)
UNPAID = Lies(never_paid=1000)

FLOWS: tuple[Flow, ...] = (
    Flow("account", grounds.account, (OpenAccount(),)),
    Flow(
        "api-key",
        grounds.account,
        (Ask("POST", "/v1/integration/api-keys", lambda _: {"name": "till"}),),
    ),
    Flow(
        "connect",
        grounds.catalog,
        (
            Ask(
                "POST",
                "/v1/integration/gateways",
                lambda _: {"provider": "outside", "credentials": {}, "settings": {"productCatalog": True}},
            ),
        ),
    ),
    Flow("product", grounds.catalog, (Ask("POST", "/v1/products", _product),)),
    Flow("plan", grounds.catalog, (Ask("POST", "/v1/plans", _plan),)),
    Flow("archive", grounds.catalog, (Ask("POST", "/v1/plans/{plan}/archive"),)),
    Flow("subscribe", grounds.catalog, (Ask("POST", "/v1/subscriptions", _subscription), run("push"))),
    Flow("generate", grounds.due_subscribers, (run("generation"),)),
    Flow("generate-next", grounds.second_cycle, (run("generation"),)),
    Flow("price", grounds.unpriced, (run("pricing"),)),
    Flow("price-failing", grounds.unpriced, (run("pricing"),), Lies(price_fails=300, seed=18)),
    Flow(
        "close-by-hand",
        grounds.held,
        (
            Ask("POST", "/v1/invoices/{invoice}/items/{item}/value", lambda _: {"amount": 700}),
            Ask("POST", "/v1/invoices/{invoice}/items/{other_item}/value", lambda _: {"amount": 900}),
        ),
        lies=FAILING,
        before=FAILING,
    ),
    Flow(
        "retry-pricing",
        grounds.held,
        (Ask("POST", "/v1/invoices/{invoice}/retry-pricing", replays=False),),
        before=FAILING,
    ),
    Flow("issue", grounds.two_ready, (run("issuance"),)),
    Flow(
        "issue-lost",
        grounds.ready,
        (run("issuance"), Wait(6), run("issuance")),
        Lies(lost=1000),
    ),
    Flow(
        "issue-cut",
        grounds.ready,
        (run("issuance"), Wait(6), run("issuance"), Wait(80), run("issuance"), Wait(61), run("issuance")),
        Lies(refused_before=500, seed=19),
    ),
    Flow("pay", grounds.two_due, (run("reconciliation"),)),
    Flow("overdue", grounds.past_due, (run("reconciliation"),), lies=UNPAID, before=UNPAID),
    Flow("deliver", grounds.untold, (run("push"),)),
    Flow(
        "deliver-failing",
        grounds.untold,
        (run("push", "probe"), Wait(6), run("push", "probe"), Wait(31), run("push", "probe")),
        Lies(push_fails=300, seed=118),
    ),
    Flow("redeliver", grounds.told, (Ask("POST", "/v1/events/{event}/redeliver"), run("push"))),
    Flow("webhook", grounds.untold, (Ask("PUT", "/v1/integration/webhook", _elsewhere),)),
    Flow("rotate", grounds.issued, (Ask("POST", "/v1/integration/secret/rotate"),)),
    Flow("mirror", grounds.unmirrored, (run("mirroring"),)),
    Flow(
        "customize",
        grounds.subscriber,
        (Ask("POST", "/v1/subscriptions/{subscription}/customize", grounds.terms),),
    ),
    Flow("propagate", grounds.new_version, (Ask("POST", "/v1/plans/{plan}/propagate", lambda _: {}),)),
    Flow("cancel", grounds.issued, (Ask("POST", "/v1/subscriptions/{subscription}/cancel"), run("push"))),
    Flow("cancel-ready", grounds.ready, (Ask("POST", "/v1/invoices/{invoice}/cancel"),)),
    Flow("cancel-issued", grounds.issued, (Ask("POST", "/v1/invoices/{invoice}/cancel"),)),
    Flow("retention", grounds.old_keys, (run("retention"),)),
    Flow("billing-day", grounds.due_subscribers, (run(),)),
    Flow(
        "test-clock",
        grounds.a_day_before,
        (
            Ask("POST", "/v1/test-clock/advance", _tomorrow, replays=False, done_by=409),
            run("test_clock"),
        ),
    ),
)
"""In the order in which they are tried."""
