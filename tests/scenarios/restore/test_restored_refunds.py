"""A restored database lacks what happened to refunds after the backup. Each refund is still made once."""

from dataclasses import replace
from uuid import UUID

import pytest

from fatura.domain.sandbox import SandboxCharge
from fatura.gateways.adapters.sandbox import adapter
from fatura.gateways.adapters.sandbox.adapter import SandboxGateway
from fatura.gateways.port import Capabilities, RefundRequest
from fatura.usecases.transaction import load_account
from tests.support.refund_steps import paid_invoice, refund, refunded_at_gateway, store
from tests.support.restore_steps import compare, gateway_of
from tests.support.sandbox_steps import pass_time, queue_fault, read
from tests.support.world import Json, World

CENTS = 4000


@pytest.fixture(autouse=True)
def gateway_that_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the gateway send money for every request, even a repeated one, and show refunds with their ids."""
    capabilities, refunded = SandboxGateway.capabilities, adapter.refunded

    def only_looks_up(gateway: SandboxGateway) -> Capabilities:
        return replace(capabilities(gateway), refunds="lookup")

    def made_again(charge: SandboxCharge, request: RefundRequest, **how: Json) -> SandboxCharge:
        forgotten = replace(charge, entries=tuple(replace(each, refund_id=None) for each in charge.entries))
        return refunded(forgotten, request, **how)

    monkeypatch.setattr(SandboxGateway, "capabilities", only_looks_up)
    monkeypatch.setattr(adapter, "refunded", made_again)


@pytest.fixture
async def paid(world: World) -> Json:
    return await paid_invoice(world)


async def make_after_backup(world: World, invoice: Json) -> None:
    """Make the refund with the Idempotency-Key `once` only at the gateway, as if the restored database had lost it."""
    gateway, invoice_id = await gateway_of(world), UUID(invoice["id"])
    request = RefundRequest(
        refund_id=world.deps.tagger.request_id("refund", invoice_id, key="once"),
        charge_id=invoice["gatewayInvoiceId"],
        amount_cents=CENTS,
        currency="BRL",
        reason=None,
    )
    await gateway.refund_charge(request)


async def check_made_once(world: World, invoice: Json) -> None:
    shown = await read(world, invoice)
    assert ([each["status"] for each in shown["refunds"]], shown["refundedCents"]) == (["done"], CENTS)
    assert await refunded_at_gateway(world) == [CENTS]
    assert await world.broken() == []


async def test_a_refund_that_was_sent_after_the_backup_is_not_sent_again(world: World, paid: Json) -> None:
    """In the backup, the refund is stored, but not sent. [D-123, D-53 lookup]"""
    account = await load_account(world.deps, world.account_id)
    await store(world, account, paid, amount_cents=CENTS)
    await make_after_backup(world, paid)
    await compare(world)

    await pass_time(world, minutes=10)

    await check_made_once(world, paid)


async def test_a_repeated_request_is_not_sent_again(world: World, paid: Json) -> None:
    """The backup lacks the refund and its Idempotency-Key. [D-123, D-53 lookup]"""
    await make_after_backup(world, paid)
    await compare(world)

    assert (await refund(world, paid, key="once", amountCents=CENTS)).status == 200

    await check_made_once(world, paid)


async def test_a_refund_waits_until_the_gateway_answers_the_look_up(world: World, paid: Json) -> None:
    """[D-123, D-53 lookup]"""
    await make_after_backup(world, paid)
    await compare(world)
    await queue_fault(world, "get_charge", "server_error", times=2)
    assert (await refund(world, paid, key="once", amountCents=CENTS)).status == 202
    assert await refunded_at_gateway(world) == [CENTS]

    await pass_time(world, minutes=10)

    await check_made_once(world, paid)
