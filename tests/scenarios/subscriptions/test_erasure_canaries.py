"""One of two customers is erased: none of its data is left, and the other customer's data stays the same (D-62)."""

import io
import json
import random
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

import pytest

from tests.support.canary_customer import CanaryCustomer, EchoingGateway, Story, echo_events
from tests.support.captured_logs import captured_logs
from tests.support.dump import dump
from tests.support.erasure_steps import erase, former_customer
from tests.support.price_server import PriceServer
from tests.support.push_steps import register
from tests.support.receiver import Received, Receiver, Reply, always, open_receiver
from tests.support.world import Json, World, scrape

pytestmark = pytest.mark.faults

Dump = dict[tuple[str, str], str]
CHANGED_BY_ANY_REQUEST = {"account_counter", "api_key", "webhook"}
"""Tables whose rows change with each event or request of the account."""


@dataclass(slots=True)
class Two:
    """Two customers of one account, the servers that the account calls, and all log lines."""

    world: World
    erased: CanaryCustomer
    kept: CanaryCustomer
    gateway: EchoingGateway
    receiver: Receiver
    logs: io.StringIO

    async def dumped(self) -> Dump:
        return await dump(self.world.database_url, self.world.deps.vault)


@pytest.fixture
async def two(world: World, prices: PriceServer, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Two]:
    chance = random.Random(62)  # noqa: S311 - the same canaries each time
    gateway = EchoingGateway()
    gateway.install(monkeypatch)
    gone, kept = CanaryCustomer(world, "gone", chance), CanaryCustomer(world, "kept", chance)
    async with open_receiver() as receiver:
        with captured_logs() as stream:
            await world.set_up_gateway(behaviour="never_pay")
            await register(world, receiver)
            echo_events(receiver)
            fixed = await world.plan()
            variable = await world.plan(
                await world.made(
                    "/v1/products",
                    {
                        "name": "Usage",
                        "pricing": {"mode": "endpoint", "url": prices.url(), "capCents": 100_000},
                    },
                )
            )
            for each in (gone, kept):
                await Story(each, gateway, prices).run(fixed, variable)
            yield Two(world, gone, kept, gateway, receiver, stream)


def containing(rows: Dump, canaries: Sequence[str]) -> Dump:
    return {key: text for key, text in rows.items() if any(each in text for each in canaries)}


async def answers(world: World, customer: CanaryCustomer) -> list[str]:
    """Return all answers of the API about a customer: subscriptions, invoices, payments, events and deliveries."""
    subscriptions = await world.all(f"/v1/subscriptions?customerId={customer.id}")
    paths = [f"/v1/customers/{customer.id}", *(f"/v1/subscriptions/{each['id']}" for each in subscriptions)]
    invoices = await world.all(f"/v1/invoices?customerId={customer.id}")
    for invoice in invoices:
        paths += [f"/v1/invoices/{invoice['id']}", f"/v1/invoices/{invoice['id']}/payments"]
    shown = [(await world.get(path)).body.decode() for path in paths]
    for event in await world.events():
        if customer.id in json.dumps(event):
            deliveries = await world.get(f"/v1/events/{event['id']}/deliveries")
            shown += [json.dumps(event), deliveries.body.decode()]
    return shown


async def test_nothing_is_left_of_an_erased_customer(two: Two):
    """The test searches rows (also decrypted), answers, events, metrics and logs for fifty canaries.

    A canary is a text that occurs only in this customer's data. [D-62, D-226, D-228, D-231]
    """
    world, gone, kept = two.world, two.erased, two.kept
    assert len({*gone.stored, *gone.keys}) >= 50
    before, kept_answers = await two.dumped(), await answers(world, kept)
    unstored = [each for each in gone.stored if not containing(before, [each])]
    assert unstored == [], "each canary was stored somewhere before the erasure"
    paid = [
        each for each in await world.invoices() if each["customer"]["id"] == gone.id and each["paidCents"]
    ]

    answer = await erase(world, gone.id)
    assert answer.status == 200, answer.body
    after = await two.dumped()

    canaries = [*gone.stored, *gone.keys]
    assert containing(after, canaries) == {}
    for shown in await answers(world, gone):
        assert not [each for each in canaries if each in shown], shown
    await _replayed(world, gone, canaries)
    assert not [each for each in canaries if each in await scrape(world.deps)]
    assert _lines_with(two.logs, canaries) == []

    # the other customer, and all rows that did not name the erased one, are untouched
    assert containing(after, kept.stored) == containing(before, kept.stored)
    assert await answers(world, kept) == kept_answers
    others = {
        key: text
        for key, text in before.items()
        if gone.id not in text
        and key[0] not in CHANGED_BY_ANY_REQUEST
        and not containing({key: text}, canaries)
    }
    changed = {key for key, text in others.items() if after.get(key) != text}
    assert {table for table, _ in changed} <= {
        "charge",
        "refund_request",
        "pricing_attempt",
        "merchant_request",
    }
    assert sorted(before) == sorted(key for key in after if key in before), "no row disappears"
    now_paid = [
        each for each in await world.invoices() if each["customer"]["id"] == gone.id and each["paidCents"]
    ]
    fields = ("id", "totalCents", "paidCents", "refundedCents", "paidAt", "status")
    assert [[each[name] for name in fields] for each in now_paid] == [
        [each[name] for name in fields] for each in paid
    ]
    assert await world.broken() == []


def _lines_with(logs: io.StringIO, canaries: Sequence[str]) -> list[str]:
    """Return the log lines with a canary, including those that were logged before the erasure."""
    lines = logs.getvalue().splitlines()
    assert any("/erase" in line for line in lines), "the erasure itself is logged"
    return [line for line in lines if any(each in line for each in canaries)]


async def _replayed(world: World, customer: CanaryCustomer, canaries: Sequence[str]) -> None:
    """Repeat all requests with their Idempotency-Keys. Check that the answers do not have the customer's data."""
    before = await world.events()
    for path, body, key, first in customer.sent:
        repeated = await world.post(path, body, key=key)
        assert repeated.headers.get("Idempotent-Replayed") == "true", (path, repeated.body)
        assert {*repeated.json} == {*first.json}
        assert not [each for each in canaries if each in repeated.body.decode()], path
    assert await world.events() == before


async def test_what_arrives_later_brings_nothing_back(two: Two):
    """Gateways and receivers still have the data, and repeat it in later answers. [D-229]"""
    world, gone = two.world, two.erased
    assert (await erase(world, gone.id)).status == 200
    canaries = [*gone.stored, *gone.keys]
    [invoice] = [
        each
        for each in await world.all(f"/v1/invoices?customerId={gone.id}")
        if each["paidCents"] and each["gatewayInvoiceId"]
    ][:1]
    await world.made(f"/v1/sandbox/charges/{invoice['gatewayInvoiceId']}/dispute-close", {"won": True})
    await world.run()
    two.gateway.refuses_refunds = True
    refunds = f"/v1/invoices/{invoice['id']}/refunds"
    refused = await world.post(refunds, {"amountCents": 1, "reason": "moved away"})
    two.gateway.refuses_refunds = False
    assert refused.status == 422
    assert not [each for each in canaries if each in refused.body.decode()]
    await world.made(f"/v1/sandbox/charges/{invoice['gatewayInvoiceId']}/refund", {"amountCents": 5})
    await register(world, two.receiver)
    for event in await world.events():
        if gone.id in json.dumps(event):
            assert (await world.post(f"/v1/events/{event['id']}/redeliver")).status == 202
    two.receiver.forget()
    await world.advance(days=8)

    assert containing(await two.dumped(), canaries) == {}
    for shown in [*await answers(world, gone), *(each.body.decode() for each in two.receiver.received)]:
        assert not [each for each in canaries if each in shown], shown
    failed = [each["data"] for each in await world.events("invoice.refund_failed")][-1]
    assert (failed["refund"]["reason"], failed["refund"]["error"]["detail"]) == ("[erased]", "[erased]")
    assert failed["refund"]["error"]["code"] == "rejected"
    assert _lines_with(two.logs, canaries) == []


async def test_a_push_in_flight_stores_no_answer_with_erased_data(two: Two):
    """A worker reads the event before the erasure, and records the receiver's answer after the erasure. [D-229]"""
    world, gone = two.world, two.erased
    await register(world, two.receiver)
    answers_of_erasure: list[Json] = []

    async def erase_first(received: Received) -> Reply:
        if not answers_of_erasure:
            answers_of_erasure.append((await erase(world, gone.id)).json)
        return Reply(500, received.body)

    [event] = [each for each in await world.events("invoice.created") if gone.id in json.dumps(each)][:1]
    assert (await world.post(f"/v1/events/{event['id']}/redeliver")).status == 202
    two.receiver.answer = erase_first
    await world.run("push")

    assert answers_of_erasure[0]["erasedAt"] is not None
    attempts = (await world.get(f"/v1/events/{event['id']}/deliveries")).json["data"]
    assert attempts[-1]["responseBody"] == "[erased]"
    assert containing(await two.dumped(), gone.stored) == {}


async def test_answers_to_events_after_the_erasure_are_not_stored(world: World, receiver: Receiver):
    """The receiver still has the data, and names the customer in its answers to an old event and `customer.erased`.
    The answers about another customer are kept. [D-229]
    """
    gone = await former_customer(world)
    await world.enroll(
        await world.plan(), customer={"externalRef": "bia", "name": "Bia", "email": "bia@example.com"}
    )
    assert (await erase(world, gone["id"])).status == 200
    receiver.answer = always(500, b"customer Ana Souza")
    await register(world, receiver)
    first, *_, other, told = await world.events()
    assert (first["type"], other["type"], told["type"]) == (
        "subscription.created",
        "subscription.created",
        "customer.erased",
    )
    for event in (first, other, told):
        assert (await world.post(f"/v1/events/{event['id']}/redeliver")).status == 202
        await world.run("push")

    bodies: list[str] = []
    for event in (first, other, told):
        shown = (await world.get(f"/v1/events/{event['id']}/deliveries")).json["data"]
        bodies.append(shown[-1]["responseBody"])
    assert bodies == ["[erased]", "customer Ana Souza", "[erased]"]
