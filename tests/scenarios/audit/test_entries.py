"""What the audit log says of each change, and which requests add no entry (D-63, D-221, D-222)."""

import asyncio
import json
from uuid import uuid4

import pytest

from fatura.domain import audit_actions
from fatura.domain.audit import Actor, ActorKind, Origin
from fatura.usecases.audit_draft import AuditDraft, AuditError
from fatura.usecases.catalog import products
from fatura.usecases.transaction import Work, in_audited_transaction, load_account, open_work
from tests.support.audit_steps import ROUTES
from tests.support.cancellation_steps import end_requests, killed
from tests.support.captured_logs import captured_logs
from tests.support.expect import everything
from tests.support.receiver import Receiver, always
from tests.support.reissue_steps import ask, unpaid_invoice
from tests.support.sandbox_steps import issued_invoice, pass_time, queue_fault, read
from tests.support.world import Json, World, plan_body, subscription_body

ENGINE_OR_OPERATOR = {
    "account.create",
    "account.reencrypt",
    "account.restore",
    "account.resume",
    "account.suspend",
    "webhook.disable",
}


PRICING: Json = {"mode": "fixed", "monthlyPriceCents": 1}
FIXED: Json = {"pricing_mode": "fixed", "monthly_price_cents": 1}


def changes(entry: Json) -> tuple[Json, Json]:
    return entry["before"], entry["after"]


def test_each_route_that_changes_something_declares_its_own_action():
    """[D-221]"""
    declared = [route.audit for route in ROUTES.values() if route.audit is not None]
    assert len(set(declared)) == len(declared)
    assert {each.name for each in audit_actions.CATALOGUE} - {each.name for each in declared} == (
        ENGINE_OR_OPERATOR
    )
    unaudited = [key for key, route in ROUTES.items() if (key[0] == "GET") != (route.audit is None)]
    assert sorted(unaudited) == [
        ("POST", "/v1/integration/gateways/{connectionId}/check"),
        ("POST", "/v1/products/{productId}/pricing-test"),
    ]


async def test_an_entry_shows_the_changed_fields(world: World):
    """[D-63, D-222]"""
    product = await world.product(9990)
    path = f"/v1/products/{product['id']}"
    request = {"X-Request-Id": "mine-1"}
    answer = await world.patch(path, {"monthlyPriceCents": 10990, "name": "Gym"}, headers=request)
    assert answer.status == 200

    created, updated = await world.audit("product.create", "product.update")

    assert created["before"] is None
    assert created["after"]["monthlyPriceCents"] == 9990
    [own] = (await world.get("/v1/integration/api-keys")).json["data"]
    assert updated == {
        "id": updated["id"],
        "at": updated["at"],
        "actor": {"kind": "api_key", "id": own["id"], "name": "first key"},
        "action": "product.update",
        "resource": {"type": "product", "id": product["id"]},
        "requestId": "mine-1",
        "address": "127.0.0.1",
        "before": {"monthlyPriceCents": 9990},
        "after": {"monthlyPriceCents": 10990},
    }


async def test_the_entry_the_answer_and_the_log_show_one_request_id(world: World):
    """[D-13, D-63]"""
    with captured_logs() as stream:
        answer = await world.post("/v1/products", {"name": "Gym", "pricing": PRICING})
    [line] = [json.loads(each) for each in stream.getvalue().splitlines() if '"event": "request"' in each]
    [entry] = await world.audit("product.create")
    assert entry["requestId"] == answer.headers["x-request-id"] == line["request_id"]


async def test_a_request_that_changes_no_field_has_an_entry_too(world: World):
    """[D-221]"""
    product = await world.product()
    for _ in range(2):
        assert (await world.post(f"/v1/products/{product['id']}/unarchive")).status == 200
    assert [changes(each) for each in await world.audit("product.unarchive")] == [({}, {})] * 2


async def test_personal_data_and_secrets_are_named_without_value(world: World):
    """[D-63, D-222]"""
    secrets = ["Ana-Secret", "ana@secret.example", "52998224725", "ana-ref", "sub-ref", "sixteen-or-more!"]
    secrets += ["paid by Ana", "receipt-77", "Ana moved away", "token=77", "/hooks/88"]
    customer = {"name": secrets[0], "email": secrets[1], "document": secrets[2], "externalRef": secrets[3]}
    plan = await world.plan()
    body = subscription_body(plan, externalRef="sub-ref", customer=customer)
    subscription = await world.made("/v1/subscriptions", body)
    path = f"/v1/customers/{subscription['customer']['id']}"
    for change in ({"name": "Ana-Secret II", "email": "ana@secret.example.com"}, {"document": None}):
        assert (await world.patch(path, change)).status == 200
    await world.set_up_gateway(behaviour="never_pay", webhookSecret="sixteen-or-more!")
    connection_id = (await world.get("/v1/integration")).json["gateways"][0]["connectionId"]
    answer = await world.patch(f"/v1/integration/gateways/{connection_id}", {"credentials": {}})
    assert answer.status == 200, answer.body
    key = await world.made("/v1/integration/api-keys", {"name": "spare"})
    rotated = await world.made("/v1/integration/secret/rotate")
    hook = "https://merchant.example/hooks/88?token=77"
    assert (await world.put("/v1/integration/webhook", {"url": hook})).status == 200
    invoice = await issued_invoice(world)
    money = {"amountCents": 10, "method": "cash", "note": "paid by Ana", "reference": "receipt-77"}
    await world.made(f"/v1/invoices/{invoice['id']}/payments", money)
    await world.made(f"/v1/invoices/{invoice['id']}/refunds", {"amountCents": 1, "reason": "Ana moved away"})

    log = await world.audit()

    for secret in [*secrets, key["key"], rotated["secret"], world.api_key]:
        assert secret not in json.dumps(log), secret
    named = {each["action"]: each["after"] for each in reversed(log)}
    assert named["subscription.create"]["customer"] == {
        "id": subscription["customer"]["id"],
        "externalRef": "[redacted]",
        "name": "[redacted]",
        "email": "[redacted]",
    }
    assert named["subscription.create"]["externalRef"] == "[redacted]"
    renamed, without_document = [changes(each) for each in log if each["action"] == "customer.update"]
    assert renamed == ({"name": "[redacted]", "email": "[redacted]"},) * 2
    assert without_document == (
        {"hasDocument": True, "document": "[redacted]"},
        {"hasDocument": False, "document": "[redacted]"},
    )
    configured, accessed = [each["after"] for each in log if each["action"] == "gateway_connection.update"]
    assert configured == {"settings": {"behaviour": "never_pay"}, "settings.webhookSecret": "[redacted]"}
    assert accessed == {"credentials": "[redacted]"}
    assert named["api_key.create"]["key"] == "[redacted]"
    assert named["api_key.create"]["prefix"] == key["prefix"]
    assert named["integration_secret.rotate"] == {
        "secret": "[redacted]",
        "previousValidUntil": rotated["previousValidUntil"],
    }
    assert named["webhook.register"]["url"] == "https://merchant.example/..."
    paid = named["invoice.record_payment"]
    assert (paid["amountCents"], paid["note"], paid["reference"]) == (10, "[redacted]", "[redacted]")
    assert named["invoice.refund"]["reason"] == "[redacted]"


async def test_a_new_plan_version_and_own_terms_show_both_terms(world: World):
    """[D-222]"""
    cheap, dear = await world.product(1000), await world.product(2000)
    plan = await world.plan(cheap)
    subscription = await world.enroll(plan)
    new = plan_body(dear)
    assert (await world.put(f"/v1/plans/{plan['id']}", new)).status == 200
    own = {name: value for name, value in new.items() if name != "name"}
    await world.made(f"/v1/subscriptions/{subscription['id']}/customize", own)

    published, customized = await world.audit("plan.publish", "subscription.customize")

    for state, version, product in ((published["before"], 1, cheap), (published["after"], 2, dear)):
        assert state["version"] == version
        assert [each["productId"] for each in state["items"]] == [product["id"]]
    assert customized["before"]["customized"] is False
    assert customized["before"]["terms"]["items"][0]["productId"] == cheap["id"]
    assert customized["after"]["terms"]["items"][0]["productId"] == dear["id"]


async def test_a_refused_request_and_a_dry_run_add_no_entry(world: World):
    """[D-221]"""
    plan = await world.plan()
    before = await everything(world)
    assert (await world.post(f"/v1/plans/{plan['id']}/propagate", {"dryRun": True})).status == 200
    assert (await world.post(f"/v1/plans/{plan['id']}/propagate", {"fromVersion": 9})).status == 404
    assert (await world.post("/v1/products", {"name": ""})).status == 400
    assert (await world.post("/v1/products", {}, headers={"Authorization": "Bearer x"})).status == 401
    assert await everything(world) == before


async def test_two_concurrent_requests_with_one_key_add_one_entry(world: World):
    """[D-221, D-14]"""
    body = {"name": "Gym", "pricing": PRICING}
    answers = await asyncio.gather(*(world.post("/v1/products", body, key="double") for _ in range(8)))
    assert {each.status for each in answers} == {201}
    entries = await world.audit("product.create")
    [first] = [each for each in answers if "idempotent-replayed" not in each.headers]
    assert [each["requestId"] for each in entries] == [first.headers["x-request-id"]]


async def test_a_repeated_request_that_acts_only_once_adds_one_entry(world: World):
    """[D-221, D-113]"""
    invoice = await unpaid_invoice(world)
    path = f"/v1/invoices/{invoice['id']}"
    for action, body in (("payments", {"method": "cash", "amountCents": 5}), ("refunds", {"amountCents": 1})):
        for _ in range(2):
            assert (await world.post(f"{path}/{action}", body, key=action)).status == 200
    assert len(await world.audit("invoice.record_payment", "invoice.refund")) == 2


async def test_a_transaction_without_its_entry_is_rolled_back(world: World):
    """[D-221]"""
    account = await load_account(world.deps, world.account_id)
    draft = AuditDraft(Origin(Actor(ActorKind.USER, "Eva", uuid4()), "x"), audit_actions.PRODUCT_CREATE)
    before = await everything(world)

    async def forgetful(work: Work) -> None:
        async with work.savepoint():
            await products.create(work, name="Gym", description=None, external_ref=None, **FIXED)
        work.is_audited = False
        work.pending_entries.clear()

    with pytest.raises(AuditError, match=r"product\.create has no audit entry"):
        await in_audited_transaction(world.deps, account, draft, forgetful)
    assert await everything(world) == before
    assert not draft.is_settled

    async def twice(work: Work) -> None:
        for _ in range(2):
            await products.create(work, name="Gym", description=None, external_ref=None, **FIXED)

    with pytest.raises(AuditError, match="one audit entry"):
        await in_audited_transaction(world.deps, account, draft, twice)
    assert await everything(world) == before

    draft.settle()
    with pytest.raises(AuditError, match="one audit entry"):
        await in_audited_transaction(world.deps, account, draft, forgetful)
    assert await everything(world) == before


async def test_an_undone_part_of_a_transaction_leaves_no_entry(world: World):
    """[D-221]"""
    account = await load_account(world.deps, world.account_id)
    draft = AuditDraft(Origin(Actor(ActorKind.USER, "Eva", uuid4()), "x"), audit_actions.PRODUCT_CREATE)
    async with open_work(world.deps, account, draft=draft) as work:
        for name in ("undone", "kept"):
            try:
                async with work.savepoint():
                    await products.create(work, name=name, description=None, external_ref=None, **FIXED)
                    assert name == "kept"
            except AssertionError:
                continue
    [entry] = await world.audit("product.create")
    assert (entry["after"]["name"], entry["actor"]["kind"]) == ("kept", "user")


async def test_a_request_that_a_poll_completes_has_the_merchant_s_entry(world: World):
    """The process dies after the gateway has canceled the charge. A poll completes the request and adds the entry.

    The merchant's repeated request adds no second entry. [D-221, D-171]
    """
    [reissued, paid, canceled] = [await unpaid_invoice(world) for _ in range(3)]
    asked = [
        (reissued, "reissue", {"paymentMethod": "boleto"}),
        (paid, "payments", {"method": "cash", "note": "by Ana"}),
        (canceled, "cancel", None),
    ]
    for invoice, action, body in asked:
        path = f"/v1/invoices/{invoice['id']}/{action}"
        await killed(world.post(path, body, key=action, headers={"X-Request-Id": f"dead-{action}"}))
    actions = ("invoice.reissue", "invoice.record_payment", "invoice.cancel")
    assert await world.audit(*actions) == []

    await end_requests(world)
    await pass_time(world, minutes=2)

    entries = await world.audit(*actions)
    assert {(each["resource"]["id"], each["requestId"]) for each in entries} == {
        (invoice["id"], f"dead-{action}") for invoice, action, _ in asked
    }
    assert {each["actor"]["kind"] for each in entries} == {"api_key"}
    for invoice, action, body in asked:
        answer = await world.post(f"/v1/invoices/{invoice['id']}/{action}", body, key=action)
        assert answer.status == 200, answer.body
    assert await world.audit(*actions) == entries
    assert (await read(world, paid))["status"] == "paid"
    assert await world.broken() == []


async def test_a_cancellation_whose_answer_was_lost_is_audited_when_it_is_confirmed(world: World):
    """[D-221, D-27]"""
    invoice = await unpaid_invoice(world)
    await queue_fault(world, "cancel_charge", "timeout_after")
    path = f"/v1/invoices/{invoice['id']}/cancel"
    assert (await world.post(path, key="one")).status == 409
    assert await world.audit("invoice.cancel") == []
    await pass_time(world, minutes=2)
    assert (await read(world, invoice))["status"] == "canceled"
    [entry] = await world.audit("invoice.cancel")
    assert changes(entry) == ({"status": "issued"}, {"status": "canceled"})
    assert entry["actor"]["kind"] == "api_key"
    assert (await world.post(path, key="one")).status == 200
    assert (await world.post(path, key="one")).status == 200
    assert await world.audit("invoice.cancel") == [entry]


async def test_the_engine_says_that_it_disabled_the_webhook(world: World, receiver: Receiver):
    """[D-223]"""
    receiver.answer = always(410)
    assert (await world.put("/v1/integration/webhook", {"url": receiver.url})).status == 200
    await world.enroll(await world.plan())
    await world.run("push")
    [entry] = await world.audit("webhook.disable")
    assert entry["actor"] == {"kind": "engine", "id": None, "name": "Fatura"}
    assert (entry["requestId"], entry["address"]) == (None, None)
    assert entry["after"]["enabled"] is False


async def test_reissue_shows_the_terms_of_both_charges(world: World):
    """[D-222]"""
    invoice = await unpaid_invoice(world)
    assert (await ask(world, invoice, paymentMethod="boleto")).status == 200
    [entry] = await world.audit("invoice.reissue")
    before, after = changes(entry)
    assert (before["status"], before["paymentMethod"]) == ("issued", "pix")
    assert (after["status"], after["paymentMethod"]) == ("ready", "boleto")
