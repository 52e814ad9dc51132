"""The flows: operations that trials interrupt by a kill, such as creating a plan or issuing invoices."""

from tests.faults.crashes import fixtures
from tests.faults.crashes.acts import Flow, OpenAccount, Request, Wait, run
from tests.faults.crashes.place import Shop
from tests.faults.gateway.faults import GatewayFaults
from tests.support.world import Json, plan_body

MAIL = {"externalRef": "new", "name": "Ana", "email": "ana@example.com", "document": "12345678909"}


def _product(shop: Shop) -> Json:
    url = shop.external(f"price/{shop.account_id}/700")
    return {"name": "Calls", "pricing": {"mode": "endpoint", "url": url, "capCents": 5000}}


def _plan(shop: Shop) -> Json:
    products = [{"productId": shop.ids[name]} for name in ("fixed", "variable", "fixed")]
    products[0] |= {"discounts": [{"percent": 10, "fromCycle": 1, "toCycle": 2}]}
    return plan_body(*products)


def _subscription(shop: Shop) -> Json:
    return {"planId": shop.ids["plan"], "customer": MAIL, "chargeDay": 10}


def _other_url(shop: Shop) -> Json:
    return {"url": shop.external(f"elsewhere/{shop.account_id}")}


def _tomorrow(shop: Shop) -> Json:
    return {"to": shop.ids["tomorrow"]}


FAILING = GatewayFaults(price_fails=1000)
UNPAID = GatewayFaults(never_paid=1000)

FLOWS: tuple[Flow, ...] = (
    Flow("account", fixtures.account, (OpenAccount(),)),
    Flow(
        "api-key",
        fixtures.account,
        (Request("POST", "/v1/integration/api-keys", lambda _: {"name": "till"}),),
    ),
    Flow(
        "connect",
        fixtures.catalog,
        (
            Request(
                "POST",
                "/v1/integration/gateways",
                lambda _: {"provider": "outside", "credentials": {}, "settings": {"productCatalog": True}},
            ),
        ),
    ),
    Flow("product", fixtures.catalog, (Request("POST", "/v1/products", _product),)),
    Flow("plan", fixtures.catalog, (Request("POST", "/v1/plans", _plan),)),
    Flow("archive", fixtures.catalog, (Request("POST", "/v1/plans/{plan}/archive"),)),
    Flow("subscribe", fixtures.catalog, (Request("POST", "/v1/subscriptions", _subscription), run("push"))),
    Flow("generate", fixtures.due_subscribers, (run("generation"),)),
    Flow("generate-next", fixtures.second_cycle, (run("generation"),)),
    Flow("price", fixtures.unpriced, (run("pricing"),)),
    Flow("price-failing", fixtures.unpriced, (run("pricing"),), GatewayFaults(price_fails=300, seed=18)),
    Flow(
        "close-by-hand",
        fixtures.held,
        (
            Request("POST", "/v1/invoices/{invoice}/items/{item}/value", lambda _: {"amount": 700}),
            Request("POST", "/v1/invoices/{invoice}/items/{other_item}/value", lambda _: {"amount": 900}),
        ),
        faults=FAILING,
        before=FAILING,
    ),
    Flow(
        "retry-pricing",
        fixtures.held,
        (Request("POST", "/v1/invoices/{invoice}/retry-pricing", replays=False),),
        before=FAILING,
    ),
    Flow("issue", fixtures.two_ready, (run("issuance"),)),
    Flow(
        "issue-lost",
        fixtures.ready,
        (run("issuance"), Wait(6), run("issuance")),
        GatewayFaults(lost=1000),
    ),
    Flow(
        "issue-cut",
        fixtures.ready,
        (run("issuance"), Wait(6), run("issuance"), Wait(80), run("issuance"), Wait(61), run("issuance")),
        GatewayFaults(refused_before=500, seed=19),
    ),
    Flow("poll-disputes", fixtures.disputed, (run("reconciliation"), run("push"))),
    Flow(
        "sweep",
        fixtures.unswept,
        (run("sweep"), run("reconciliation"), Wait(61), run("reconciliation", "push")),
        faults=UNPAID,
        before=UNPAID,
        days=2,  # the next sweep cancels a second charge that the killed process recorded but did not cancel
    ),
    Flow(
        "refund",
        fixtures.paid,
        (
            Request("POST", "/v1/invoices/{invoice}/refunds", lambda _: {"amountCents": 600}, pending=202),
            run("push"),
        ),
    ),
    Flow(
        "refund-lost",
        fixtures.paid,
        (
            Request("POST", "/v1/invoices/{invoice}/refunds", lambda _: {"amountCents": 600}, replays=False),
            Wait(6),
            run("reconciliation"),
        ),
        GatewayFaults(lost=1000),
    ),
    Flow("pay", fixtures.two_due, (run("reconciliation"),)),
    Flow("overdue", fixtures.past_due, (run("reconciliation"),), faults=UNPAID, before=UNPAID),
    Flow("deliver", fixtures.undelivered, (run("push"),)),
    Flow(
        "deliver-failing",
        fixtures.undelivered,
        (run("push", "probe"), Wait(6), run("push", "probe"), Wait(31), run("push", "probe")),
        GatewayFaults(push_fails=300, seed=118),
    ),
    Flow(
        "redeliver",
        fixtures.delivered,
        (Request("POST", "/v1/events/{event}/redeliver", replays=False), run("push")),
    ),
    Flow("webhook", fixtures.undelivered, (Request("PUT", "/v1/integration/webhook", _other_url),)),
    Flow("rotate", fixtures.issued, (Request("POST", "/v1/integration/secret/rotate"),)),
    Flow("mirror", fixtures.unmirrored, (run("mirroring"),)),
    Flow(
        "customize",
        fixtures.subscriber,
        (Request("POST", "/v1/subscriptions/{subscription}/customize", fixtures.terms),),
    ),
    Flow("propagate", fixtures.new_version, (Request("POST", "/v1/plans/{plan}/propagate", lambda _: {}),)),
    Flow(
        "move-connection",
        fixtures.two_connections,
        (
            Request(
                "POST",
                "/v1/integration/gateways/{connection}/move",
                lambda shop: {"toConnectionId": shop.ids["other_connection"]},
                replays=False,
            ),
            run("propagation", "push"),
        ),
    ),
    Flow(
        "cancel", fixtures.issued, (Request("POST", "/v1/subscriptions/{subscription}/cancel"), run("push"))
    ),
    Flow("cancel-ready", fixtures.ready, (Request("POST", "/v1/invoices/{invoice}/cancel"),)),
    Flow("cancel-issued", fixtures.issued, (Request("POST", "/v1/invoices/{invoice}/cancel"),)),
    Flow(
        "reissue",
        fixtures.issued,
        (Request("POST", "/v1/invoices/{invoice}/reissue", lambda _: {}, replays=False), run("issuance")),
        faults=UNPAID,
        before=UNPAID,
    ),
    Flow(
        "reissue-overdue",
        fixtures.overdue,
        (Request("POST", "/v1/invoices/{invoice}/reissue", lambda _: {}, replays=False), run("issuance")),
        faults=UNPAID,
        before=UNPAID,
    ),
    Flow(
        "manual-rest",
        fixtures.partly_paid,
        (Request("POST", "/v1/invoices/{invoice}/payments", lambda _: {"method": "cash"}),),
        faults=UNPAID,
        before=UNPAID,
    ),
    Flow(
        "manual-payment",
        fixtures.issued,
        (Request("POST", "/v1/invoices/{invoice}/payments", lambda _: {"method": "cash"}),),
        faults=UNPAID,
        before=UNPAID,
    ),
    Flow(
        "missing-charge",
        fixtures.forgotten,
        (run("reconciliation"), Wait(3700), run("reconciliation")),
    ),
    Flow("retention", fixtures.old_keys, (run("retention"),)),
    Flow("billing-day", fixtures.due_subscribers, (run(),)),
    Flow(
        "test-clock",
        fixtures.a_day_before,
        (
            Request("POST", "/v1/test-clock/advance", _tomorrow, replays=False, done_by=409),
            run("test_clock"),
        ),
    ),
)
