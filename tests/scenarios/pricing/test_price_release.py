"""A manual value or retry releases a held invoice. Lost calls are repeated (spec 4.5, 4.7, D-29, D-32)."""

import asyncio
import time

import pytest
import stripe

from fatura.signature import SignatureError, verify
from fatura.usecases.pricing import price_pull
from fatura.usecases.transaction import in_transaction, load_account
from tests.support.price_server import PriceServer, Reply
from tests.support.price_steps import only_invoice, usage
from tests.support.world import World, columns, item


async def test_a_released_item_is_manual_and_final(world: World, prices: PriceServer) -> None:
    """[spec 4.5 POST /v1/invoices/{invoiceId}/items/{itemId}/value 200, spec 2.5 pricingSource manual]
    [spec 4.5 POST /v1/invoices/{invoiceId}/items/{itemId}/value 409, spec 7 409 item]
    [spec 4.5 POST /v1/invoices/{invoiceId}/retry-pricing 200]
    """
    prices.answers(Reply(status=500))
    await world.enroll(await world.plan(await usage(world, prices), await world.product(100)))
    await world.run()
    held = await only_invoice(world)
    usage_item, fixed_item = held["items"]
    path = f"/v1/invoices/{held['id']}/items/{usage_item['id']}/value"

    answer = await world.post(path, {"amount": 777, "description": "agreed by phone"})
    assert answer.status == 200
    assert (answer.json["status"], answer.json["totalCents"]) == ("ready", 877)
    assert columns(answer.json["items"], "pricingSource", "amountCents", "description")[0] == (
        "manual",
        "777",
        "agreed by phone",
    )
    for each in (usage_item, fixed_item):
        again = await world.post(f"/v1/invoices/{held['id']}/items/{each['id']}/value", {"amount": 1})
        assert (again.status, again.type) == (409, "engine.item_not_pending")
    assert (await world.post(f"/v1/invoices/{held['id']}/retry-pricing")).json == {"retried": 0}
    await world.advance(days=4)
    assert (await only_invoice(world))["status"] == "paid"
    assert len(prices.calls) == 1
    assert await world.broken() == []


async def test_a_manual_retry_does_not_change_the_schedule(world: World, prices: PriceServer) -> None:
    """[D-32]"""
    prices.answers(Reply(status=500))
    await world.enroll(
        await world.plan(await usage(world, prices), await usage(world, prices, path="/other"))
    )
    prices.answers(Reply(status=500), path="/other")
    await world.run()
    held = await only_invoice(world)
    before = await world.sql("SELECT next_attempt_at, failures FROM price_pull ORDER BY position")
    assert (await world.post(f"/v1/invoices/{held['id']}/retry-pricing")).json == {"retried": 2}
    assert await world.sql("SELECT next_attempt_at, failures FROM price_pull ORDER BY position") == before
    prices.answers({"amount": 1})
    assert (await world.post(f"/v1/invoices/{held['id']}/retry-pricing")).json == {"retried": 2}
    assert (await only_invoice(world))["status"] == "awaiting_value"
    prices.answers({"amount": 2}, path="/other")
    assert (await world.post(f"/v1/invoices/{held['id']}/retry-pricing")).json == {"retried": 1}
    invoice = await only_invoice(world)
    assert (invoice["status"], invoice["totalCents"]) == ("ready", 3)
    assert await world.broken() == []


async def test_a_retry_releases_an_exhausted_invoice(world: World, prices: PriceServer) -> None:
    """[spec 4.7 rule 3]"""
    prices.answers(Reply(status=500))
    await world.enroll(await world.plan(await usage(world, prices)))
    await world.advance(days=1)
    assert await world.events("invoice.pricing_exhausted")
    prices.answers({"amount": 5})
    held = await only_invoice(world)
    assert (await world.post(f"/v1/invoices/{held['id']}/retry-pricing")).json == {"retried": 1}
    await world.run()
    assert (await only_invoice(world))["status"] == "issued"
    assert await world.broken() == []


async def test_calls_are_signed_with_the_accounts_secret(world: World, prices: PriceServer) -> None:
    """For a day after a rotation, price calls are signed with the old and the new secret.
    [spec 5.5, spec 5.6, spec 5.7, spec 4.7 headers, D-40, D-42 keys]
    """
    old, new = [(await world.post("/v1/integration/secret/rotate")).json["secret"] for _ in range(2)]
    product = await usage(world, prices)
    await world.post(f"/v1/products/{product['id']}/pricing-test")
    await world.enroll(await world.plan(product))
    await world.run()
    assert len(prices.calls) == 2
    for call in prices.calls:
        assert call.headers["Content-Type"] == "application/json"
        header, body = call.headers["X-Service-Signature"], call.raw.decode()
        for secret in (old, new):
            verify(call.raw, header, secret=secret)
            stripe.WebhookSignature.verify_header(body, header, secret, 300)
            with pytest.raises(stripe.SignatureVerificationError):
                stripe.WebhookSignature.verify_header(
                    body.replace('"cycle":1', '"cycle":2'), header, secret, 300
                )
            with pytest.raises(SignatureError):
                verify(call.raw, header, secret=secret, now=time.time() + 302)
        with pytest.raises(stripe.SignatureVerificationError):
            stripe.WebhookSignature.verify_header(body, header, "whsec_another", 300)


async def test_a_lost_call_counts_as_a_timeout_and_is_repeated(world: World, prices: PriceServer) -> None:
    """The worker died after it reserved the call and before it recorded a result. [D-105]"""
    await world.enroll(await world.plan(await usage(world, prices)))
    await world.run("generation")
    account = await load_account(world.deps, world.account_id)
    items = [(row["invoice_id"], row["position"]) for row in await world.sql("SELECT * FROM price_pull")]
    await in_transaction(world.deps, account, price_pull.reserve, items, by_hand=False)
    await world.sql("UPDATE pricing_attempt SET open_until = now() - interval '1 second'")
    await world.sql("UPDATE price_pull SET lease_until = now() - interval '1 second'")
    await world.run("pricing")
    assert (await only_invoice(world))["status"] == "awaiting_value"
    await world.advance(days=4)
    invoice = await only_invoice(world)
    assert columns(invoice["pricingAttempts"], "attempt", "outcome", "latencyMs")[0] == (
        "1",
        "timeout",
        "None",
    )
    assert [each["outcome"] for each in invoice["pricingAttempts"]] == ["timeout", "ok"]
    assert invoice["status"] == "paid"
    assert await world.broken() == []


async def test_a_changed_url_and_cap_count_from_the_next_call(world: World, prices: PriceServer) -> None:
    """[D-29, spec 2.5 snapshot]"""
    prices.answers({"amount": 1000})
    product = await usage(world, prices)
    plan = await world.plan(item(await world.product(1000), (50, 1, None)), product)
    await world.enroll(plan)
    await world.run("generation")
    await world.patch(f"/v1/products/{product['id']}", {"endpointUrl": prices.url("/new"), "capCents": 10})
    prices.answers({"amount": 11}, path="/new")
    await world.run("pricing")
    invoice = await only_invoice(world)
    assert invoice["pricingAttempts"][0]["outcome"] == "over_cap"
    assert invoice["pricingAttempts"][0]["url"] == prices.url("/new")


async def test_concurrent_retries_call_once(world: World, prices: PriceServer) -> None:
    """[D-32, D-105]"""
    await world.enroll(await world.plan(await usage(world, prices)))
    await world.run("generation")
    (invoice,) = await world.invoices()
    prices.withholds = True
    path = f"/v1/invoices/{invoice['id']}/retry-pricing"
    first = asyncio.create_task(world.post(path))
    await prices.wait_for_calls(1)
    assert (await world.post(path)).json == {"retried": 0}
    prices.withheld[0].set()
    assert (await first).json == {"retried": 1}
    assert len(prices.calls) == 1


async def test_manual_retries_are_limited(world: World, prices: PriceServer) -> None:
    """At most ten manual retries per item and minute are allowed. [D-105]"""
    prices.answers(Reply("no", status=500))
    await world.enroll(await world.plan(await usage(world, prices)))
    await world.run("generation")
    (invoice,) = await world.invoices()
    path = f"/v1/invoices/{invoice['id']}"
    answers = [await world.post(f"{path}/retry-pricing") for _ in range(11)]
    assert [answer.status for answer in answers] == [200] * 10 + [429]
    assert (answers[-1].type, answers[-1].headers["Retry-After"]) == ("engine.rate_limited", "60")
    assert len(prices.calls) == 10


async def test_the_attempt_that_set_a_value_is_always_shown(world: World, prices: PriceServer) -> None:
    """The detail shows the newest 20 attempts of each item, and the attempt that priced or skipped the item.

    The newest bodies are shown whole, up to 256 KiB together. Of every other body, the first 2,000 characters are
    shown. [D-105, spec 4.5 GET /v1/invoices/{invoiceId} 200]
    """
    prices.answers({"amount": 100}, {"skip": True}, Reply("no", status=500))
    products = [await usage(world, prices) for _ in range(3)]
    await world.enroll(await world.plan(*products))
    await world.run()
    invoice = await only_invoice(world)
    items = {each["pricingStatus"]: each["id"] for each in invoice["items"]}
    assert items.keys() == {"priced", "skipped", "pending"}
    first = {each["itemId"]: each for each in invoice["pricingAttempts"]}
    await world.sql(
        """
        INSERT INTO pricing_attempt (account_id, invoice_id, position, attempt, by_hand, url, cap_cents, request_body,
            created_at, open_until, outcome, response_body)
        SELECT p.account_id, p.invoice_id, p.position, n, true, 'x', 1, '', '2090-01-01T00:00:00Z', now(), 'timeout',
            CASE n WHEN 197 THEN repeat('é', 2000) WHEN 198 THEN NULL ELSE repeat('é', 32768) END
        FROM price_pull p, generate_series(11, 200) n
        """
    )

    shown = (await world.get(f"/v1/invoices/{invoice['id']}")).json["pricingAttempts"]
    numbers = {id_: [each["attempt"] for each in shown if each["itemId"] == id_] for id_ in items.values()}
    newest = list(range(181, 201))
    assert numbers[items["priced"]] == numbers[items["skipped"]] == [1, *newest]
    assert numbers[items["pending"]] == newest
    decisive = {each["itemId"]: each for each in shown if each["outcome"] in {"ok", "skip"}}
    assert decisive == {items[status]: first[items[status]] for status in ("priced", "skipped")}
    assert [each["createdAt"] for each in shown] == sorted(each["createdAt"] for each in shown)
    bodies = [
        (each["attempt"], len(each["responseBody"] or ""), each["responseBodyCut"])
        for each in shown
        if each["attempt"] >= 197
    ]
    whole, cut = [(197, 2000, False), (198, 0, False)], (199, 2000, True)
    newest_call = (200, 32_768, False)
    assert bodies == [*whole, (199, 32_768, False), newest_call, *[*whole, cut, newest_call] * 2]


async def test_concurrent_calls_of_an_account_do_not_exceed_its_limit(
    world: World, prices: PriceServer
) -> None:
    """[D-105]"""
    world.deps.open_calls.most = 1
    prices.answers(Reply(status=500, delay=0.5))
    path = f"/v1/products/{(await usage(world, prices))['id']}/pricing-test"
    answers = await asyncio.gather(*(world.post(path) for _ in range(5)))
    assert sorted(each.status for each in answers) == [200, 429, 429, 429, 429]
