"""The API refuses the keys of a suspended account, so an operator erases this account's customers (D-255)."""

import asyncio
from datetime import datetime
from uuid import UUID

import pytest

from fatura.domain.errors import EngineError
from fatura.store.db import Tx
from fatura.store.subscriptions import erasures
from fatura.store.subscriptions.erasures import Uses
from fatura.usecases.accounts import suspension
from fatura.usecases.subscriptions import erasure, operator_erasure
from fatura.usecases.subscriptions.operator_erasure import OperatorErasure
from fatura.usecases.transaction import Work
from tests.support.erasure_steps import CUSTOMER, erase, former_customer
from tests.support.expect import UNKNOWN_ID
from tests.support.operator import OPERATOR
from tests.support.world import Answer, World, subscription_body


async def erase_as_operator(world: World, customer_id: str) -> OperatorErasure:
    return await operator_erasure.erase(world.deps, world.account_id, UUID(customer_id), asked_by=OPERATOR)


async def test_an_operator_erases_a_customer_of_a_suspended_account(world: World):
    """The customer has two active subscriptions, which the command cancels. [D-255, D-242, D-223]"""
    customer = await former_customer(world)
    await world.enroll(await world.plan(), customer=CUSTOMER)
    again = await world.enroll(await world.plan(), customer=CUSTOMER)
    assert again["customer"]["id"] == customer["id"]
    await suspension.suspend(world.deps, world.account_id, asked_by=OPERATOR)
    refused = await erase(world, customer["id"])
    assert (refused.status, refused.type) == (403, "engine.account_suspended")
    assert "to erase a customer" in refused.json["detail"]

    assert await erase_as_operator(world, customer["id"]) == OperatorErasure(2, is_done=True)
    assert await erase_as_operator(world, customer["id"]) == OperatorErasure(0, is_done=True)

    await suspension.resume(world.deps, world.account_id, asked_by=OPERATOR)
    assert (await world.get(f"/v1/customers/{customer['id']}")).json["name"] == "[erased]"
    entries = await world.audit("subscription.cancel", "customer.erase")
    assert [(each["action"], each["actor"]["kind"]) for each in entries[1:]] == [
        ("subscription.cancel", "operator"),
        ("subscription.cancel", "operator"),
        ("customer.erase", "operator"),
        ("customer.erase", "operator"),
    ]
    assert await world.broken() == []


async def test_a_customer_with_an_open_invoice_is_not_erased(world: World):
    """[D-255, D-227]"""
    await world.set_up_gateway(behaviour="never_pay")
    subscription = await world.enroll(await world.plan(), customer=CUSTOMER)
    await world.run()
    [invoice] = await world.invoices()
    with pytest.raises(EngineError, match="open invoices") as refused:
        await erase_as_operator(world, subscription["customer"]["id"])
    assert refused.value.meta is not None
    assert refused.value.meta["invoiceIds"] == [invoice["id"]]
    assert (await world.get(f"/v1/subscriptions/{subscription['id']}")).json["status"] == "active"
    assert (await world.get(f"/v1/customers/{subscription['customer']['id']}")).json["name"] == CUSTOMER[
        "name"
    ]


async def test_an_invoice_that_is_generated_during_the_command_keeps_the_subscription(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    """The invoice is generated after the command has read the customer's subscriptions and invoices. [D-255, D-227]"""
    subscription = await world.enroll(await world.plan(), customer=CUSTOMER)
    uses, is_billed = erasures.uses, False

    async def uses_before_billing(tx: Tx, customer_id: UUID, *, real_now: datetime) -> Uses:
        nonlocal is_billed
        found = await uses(tx, customer_id, real_now=real_now)
        if not is_billed:
            is_billed = True
            assert await world.run("generation") == 1
        return found

    monkeypatch.setattr(erasures, "uses", uses_before_billing)
    with pytest.raises(EngineError, match="open invoices"):
        await erase_as_operator(world, subscription["customer"]["id"])
    assert (await world.get(f"/v1/subscriptions/{subscription['id']}")).json["status"] == "active"
    assert await world.audit("subscription.cancel", "customer.erase") == []
    assert await world.broken() == []


async def test_a_request_subscribes_the_customer_only_before_or_after_the_command(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    """The request arrives after the command has canceled the subscriptions, and creates a new customer.
    [D-255, D-227]
    """
    plan = await world.plan()
    old = await world.enroll(plan, customer=CUSTOMER)
    start, requests = erasure.start, list[asyncio.Task[Answer]]()

    async def start_after_request(
        work: Work, *, customer_id: UUID, is_forced: bool = False
    ) -> erasure._Started:
        body = subscription_body(plan, customer=CUSTOMER)
        requests.append(asyncio.create_task(world.post("/v1/subscriptions", body)))
        await asyncio.wait(requests, timeout=1)
        return await start(work, customer_id=customer_id, is_forced=is_forced)

    monkeypatch.setattr(erasure, "start", start_after_request)
    assert await erase_as_operator(world, old["customer"]["id"]) == OperatorErasure(1, is_done=True)
    [answer] = await asyncio.gather(*requests)
    assert answer.status == 201
    assert answer.json["customer"]["id"] != old["customer"]["id"]
    assert await world.broken() == []


async def test_an_unknown_customer_is_an_error(world: World):
    """[D-255]"""
    with pytest.raises(EngineError, match="customer"):
        await erase_as_operator(world, UNKNOWN_ID)
