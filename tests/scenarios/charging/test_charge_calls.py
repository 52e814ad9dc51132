"""The merchant reads the calls to the provider about a charge, without credentials (D-267)."""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from fatura.usecases.connections import charge_calls
from tests.doubles.asaas.book import Account
from tests.doubles.server import Loss
from tests.support.asaas_shop import hook, open_asaas_shop
from tests.support.erasure_steps import erase
from tests.support.expect import UNKNOWN_ID
from tests.support.provider_shop import Shop, after
from tests.support.retention_steps import CALL_DAYS, age, count
from tests.support.sandbox_steps import issued_invoice, read
from tests.support.world import Json, World

CPF = "52998224725"


@pytest.fixture
async def shop(world: World) -> AsyncGenerator[tuple[Shop, Account]]:
    async with open_asaas_shop(world) as opened:
        yield opened


async def billed(shop: Shop) -> Json:
    world = shop.world
    await shop.bill(1, await world.plan(await world.product(9990)))
    await world.run()
    [invoice] = await world.invoices()
    return await read(world, invoice)


async def paid(shop: Shop, account: Account, invoice: Json) -> None:
    account.pay(invoice["gatewayInvoiceId"])
    assert await hook(shop, account.payments[invoice["gatewayInvoiceId"]]) == 200
    await shop.world.run()


def path_of(invoice: Json) -> str:
    return f"/v1/invoices/{invoice['id']}/charges/{invoice['charges'][0]['id']}/calls"


async def calls_of(world: World, invoice: Json) -> list[Json]:
    """Return all calls about the invoice's first charge, oldest first."""
    return await world.all(path_of(await read(world, invoice)))


def kinds(calls: list[Json]) -> list[tuple[str, str]]:
    return [(each["operation"], each["method"]) for each in calls]


async def test_the_calls_of_a_charges_life_are_shown(shop: tuple[Shop, Account]) -> None:
    """The poll that shows the payment is stored, and a poll that shows nothing new is not. [D-267, D-267 calls]"""
    opened, account = shop
    world = opened.world
    invoice = await billed(opened)

    made = await calls_of(world, invoice)
    assert {each["operation"] for each in made} == {"create"}
    created = next(each for each in made if (each["method"], each["path"]) == ("POST", "/payments"))
    assert created["responseStatus"] == 200
    assert json.loads(created["requestBody"])["value"] == 99.9
    assert json.loads(created["responseBody"])["id"] == invoice["gatewayInvoiceId"]
    assert (created["failure"], created["latencyMs"] >= 0) == (None, True)

    assert await hook(opened, account.payments[invoice["gatewayInvoiceId"]]) == 200
    assert await world.run("reconciliation") == 1
    assert await calls_of(world, invoice) == made, "the poll changed nothing"

    await paid(opened, account, invoice)
    assert (await read(world, invoice))["status"] == "paid"
    after_payment = (await calls_of(world, invoice))[len(made) :]
    assert set(kinds(after_payment)) == {("read", "GET")}
    assert json.loads(after_payment[0]["responseBody"])["status"] == "RECEIVED"

    await world.made(f"/v1/invoices/{invoice['id']}/refunds", {"amountCents": 100})
    await world.run()
    [refund] = [each for each in await calls_of(world, invoice) if each["operation"] == "refund"][-1:]
    assert refund["method"] == "POST"
    assert refund["path"].endswith("/refund")
    assert await world.broken() == []


async def test_a_cancellation_is_shown(shop: tuple[Shop, Account]) -> None:
    """[D-267]"""
    opened, _ = shop
    invoice = await billed(opened)
    await opened.world.made(f"/v1/invoices/{invoice['id']}/cancel")
    calls = [each for each in await calls_of(opened.world, invoice) if each["operation"] == "cancel"]
    assert "DELETE" in {each["method"] for each in calls}


async def test_a_lost_answer_is_shown_with_its_failure(shop: tuple[Shop, Account]) -> None:
    """[D-267, D-33]"""
    opened, _ = shop
    opened.double.fail_next("POST", "/payments", Loss.ANSWER)
    invoice = await billed(opened)
    [lost] = [each for each in await calls_of(opened.world, invoice) if each["failure"]]
    assert (lost["operation"], lost["failure"]) == ("create", "the connection broke")
    assert (lost["responseStatus"], lost["responseBody"]) == (None, None)
    assert json.loads(lost["requestBody"])["value"] == 99.9

    await opened.world.advance(after(minutes=10))
    assert (await read(opened.world, invoice))["status"] == "issued"
    assert ("find", "GET") in kinds(await calls_of(opened.world, invoice))


@pytest.mark.parametrize(("loss", "status"), [(Loss.RATE, 429), (Loss.ERROR_BEFORE, 503)])
async def test_a_refusal_is_shown(shop: tuple[Shop, Account], loss: Loss, status: int) -> None:
    """[D-267, D-34]"""
    opened, _ = shop
    opened.double.fail_next("POST", "/payments", loss)
    invoice = await billed(opened)
    answers = [each["responseStatus"] for each in await calls_of(opened.world, invoice)]
    assert answers[-1] == status


async def test_credentials_are_not_shown_even_if_the_provider_repeats_them(
    shop: tuple[Shop, Account],
) -> None:
    """[D-267 credentials]"""
    opened, _ = shop

    def sent_token() -> str:
        assert opened.double.last is not None
        return opened.double.last.headers["access_token"]

    def repeat(answer: Any) -> None:
        if isinstance(answer, dict):
            answer["echo"] = [sent_token(), f"Bearer {sent_token()}", json.dumps(sent_token())]

    opened.double.edit = repeat
    invoice = await billed(opened)
    token = sent_token()
    text = (await opened.world.get(path_of(invoice))).body.decode()
    assert "***" in text
    assert token not in text
    assert token[1:] not in text


async def test_tax_documents_are_not_shown(shop: tuple[Shop, Account]) -> None:
    """The adapter searches for the customer by the CPF, and creates the customer with it. [D-267, spec 2.4 document]"""
    opened, _ = shop
    invoice = await billed(opened)
    text = (await opened.world.get(path_of(invoice))).body.decode()
    assert "/customers" in text
    assert CPF not in text
    assert "529.982.247-25" not in text
    stored = await opened.world.sql("SELECT string_agg(k::text, ' ') AS rows FROM provider_call k")
    assert CPF not in stored[0]["rows"]


async def test_a_long_answer_is_cut(shop: tuple[Shop, Account]) -> None:
    """[D-267 limits]"""
    opened, _ = shop

    def lengthen(answer: Any) -> None:
        if isinstance(answer, dict):
            answer["filler"] = "é" * 100_000

    opened.double.edit = lengthen
    invoice = await billed(opened)
    for each in await calls_of(opened.world, invoice):
        assert 64 * 1024 - 4 < len(each["responseBody"].encode()) <= 64 * 1024


async def test_the_newest_calls_are_kept(shop: tuple[Shop, Account], monkeypatch: pytest.MonkeyPatch) -> None:
    """[D-267 limits]"""
    opened, account = shop
    world = opened.world
    invoice = await billed(opened)
    monkeypatch.setattr(charge_calls, "KEPT", 2)
    await paid(opened, account, invoice)
    calls = await calls_of(world, invoice)
    assert len(calls) == 2
    assert {each["operation"] for each in calls} == {"read"} or calls[-1]["operation"] == "read"


async def test_pages_and_unknown_ids(shop: tuple[Shop, Account]) -> None:
    """[D-267, D-267 404, D-11]"""
    opened, _ = shop
    world = opened.world
    invoice = await billed(opened)
    path = path_of(invoice)
    first = (await world.get(f"{path}?pageSize=1")).json
    assert (len(first["data"]), first["pagination"]["totalRecords"]) == (1, len(await world.all(path)))
    whole = (await world.get(path)).json["data"]
    assert [each["at"] for each in whole] == sorted((each["at"] for each in whole), reverse=True)
    charge_id = invoice["charges"][0]["id"]
    other = await world.another()
    for unknown in (
        f"/v1/invoices/{UNKNOWN_ID}/charges/{charge_id}/calls",
        f"/v1/invoices/{invoice['id']}/charges/{UNKNOWN_ID}/calls",
        f"/v1/invoices/{invoice['id']}/charges/{invoice['gatewayInvoiceId']}/calls",
    ):
        assert (await world.get(unknown)).status == 404
    assert (await other.get(path)).status == 404
    assert (await world.get(f"{path}?pageSize=0")).status == 400


async def test_a_provider_that_is_not_called_has_no_calls(world: World) -> None:
    """[D-267]"""
    invoice = await read(world, await issued_invoice(world))
    assert (await world.get(path_of(invoice))).json["data"] == []


async def test_an_erasure_deletes_the_calls(shop: tuple[Shop, Account]) -> None:
    """A refund after the erasure adds no call. [D-267 erased, D-228]"""
    opened, account = shop
    world = opened.world
    invoice = await billed(opened)
    await paid(opened, account, invoice)
    await world.made(f"/v1/subscriptions/{invoice['subscriptionId']}/cancel")
    assert await count(world, "provider_call") > 0

    assert (await erase(world, invoice["customer"]["id"])).status == 200

    assert await calls_of(world, invoice) == []
    await world.made(f"/v1/invoices/{invoice['id']}/refunds", {"amountCents": 100})
    await world.run()
    assert await count(world, "provider_call") == 0
    assert await world.broken() == []


async def test_an_erasure_during_a_recording_leaves_no_call(shop: tuple[Shop, Account]) -> None:
    """The transaction that stores a call waits for the erasure, and then stores nothing. [D-267 erased]"""
    opened, account = shop
    world = opened.world
    invoice = await billed(opened)
    await paid(opened, account, invoice)
    await world.made(f"/v1/subscriptions/{invoice['subscriptionId']}/cancel")
    refunding = world.post(f"/v1/invoices/{invoice['id']}/refunds", {"amountCents": 100}, key="refund")
    await asyncio.gather(refunding, erase(world, invoice["customer"]["id"]))
    await erase(world, invoice["customer"]["id"], key="again")
    await world.run()
    if (await world.get(f"/v1/customers/{invoice['customer']['id']}")).json["erasedAt"]:
        assert await count(world, "provider_call") == 0
    assert await world.broken() == []


async def test_old_calls_are_deleted(shop: tuple[Shop, Account]) -> None:
    """[D-246]"""
    opened, _ = shop
    world = opened.world
    await billed(opened)
    await age(world, days=CALL_DAYS - 1)
    await world.run("retention")
    assert await count(world, "provider_call") > 0
    await age(world, days=1)
    await world.run("retention")
    assert await count(world, "provider_call") == 0
