"""After a restore, a customer with open invoices is erased again. No personal data is stored later (D-229, D-230)."""

from uuid import UUID

import pytest

from fatura.domain.audit import Actor, ActorKind
from fatura.usecases.subscriptions import erased_list
from tests.support.dump import dump
from tests.support.erasure_steps import CUSTOMER
from tests.support.price_server import PriceServer, Reply
from tests.support.price_steps import only_invoice, usage
from tests.support.restore_steps import compare, create_unmatched_charge, issued_by
from tests.support.sandbox_steps import queue_fault, read
from tests.support.world import Json, World

NAMED = "paid for Ana Souza"


async def erase_again(world: World) -> None:
    """Erase the account's only customer, as `fatura erased apply` does."""
    [customer] = await world.all("/v1/customers")
    applied = await erased_list.apply(
        world.deps, world.account_id, UUID(customer["id"]), asked_by=Actor(ActorKind.OPERATOR, "root")
    )
    assert applied.open_invoice_ids


async def left(world: World) -> list[str]:
    """Return the rows that name the customer, and the broken invariants."""
    rows = await dump(world.database_url, world.deps.vault)
    named = [f"{table}: {text}" for (table, _), text in rows.items() if "ana souza" in text.lower()]
    return [*named, *await world.broken()]


async def restored_with_charge(world: World, *, more_cents: int = 0) -> tuple[Json, str]:
    """Return an open invoice of an erased customer, and the gateway's id of its charge, which a restore has found."""
    await world.set_up_gateway(behaviour="never_pay")
    subscription = await world.enroll(await world.plan(), customer=CUSTOMER)
    await world.run("generation")
    [invoice] = await world.invoices(subscription)
    charge = await create_unmatched_charge(world, UUID(invoice["id"]), invoice["totalCents"] + more_cents)
    await erase_again(world)
    await compare(world)
    return invoice, charge.charge_id


async def test_a_found_charge_stores_no_pay_data(world: World):
    """[D-229, D-230, D-123]"""
    invoice, charge_id = await restored_with_charge(world)
    assert await issued_by(world, invoice) == charge_id

    [stored] = await world.sql("SELECT erased, pay_url, pix_code, boleto_line, pay_expires_at FROM charge")
    assert tuple(stored) == (True, None, None, None, None)
    assert not any((await read(world, invoice))["payment"].values())
    await world.made(f"/v1/sandbox/charges/{charge_id}/pay")
    await world.run()
    assert (await read(world, invoice))["status"] == "paid"
    assert await left(world) == []


async def test_an_issue_error_keeps_only_its_code(world: World):
    """[D-228, D-229, D-123]"""
    invoice, _ = await restored_with_charge(world, more_cents=1)
    assert await issued_by(world, invoice) is None

    error = (await read(world, invoice))["issueError"]
    assert (error["code"], error["detail"]) == ("amount_differs", "[erased]")
    [failed] = await world.events("invoice.issue_failed")
    assert failed["data"]["error"]["code"] == "amount_differs"
    assert await left(world) == ["one_sandbox_charge_per_invoice"]


async def test_a_reissued_charge_is_refused_and_keeps_nothing(world: World):
    """[D-227, D-229]"""
    invoice, charge_id = await restored_with_charge(world)
    assert await issued_by(world, invoice) == charge_id
    await world.made(f"/v1/invoices/{invoice['id']}/reissue", {})
    await world.run()

    shown = await read(world, invoice)
    assert shown["issueError"]["code"] == "customer_erased"
    assert "cancel it, or record its payment" in shown["issueError"]["detail"]
    assert [row["erased"] for row in await world.sql("SELECT erased FROM charge ORDER BY number")] == [
        True
    ] * 2
    assert await left(world) == []


async def test_prices_that_arrive_later_keep_only_the_amount(world: World, prices: PriceServer):
    """The first answer is a failure with the customer's name, and events report the failure. [D-228, D-229]"""
    await world.set_up_gateway(behaviour="never_pay")
    await world.enroll(await world.plan(await usage(world, prices)), customer=CUSTOMER)
    await world.run("generation")
    await erase_again(world)
    prices.answers(Reply({"error": NAMED}, status=500))
    await world.advance(days=1)
    assert await world.events("invoice.pricing_warning")
    assert await world.events("invoice.pricing_exhausted")
    prices.answers({"amount": 1250, "description": NAMED})
    await world.post(f"/v1/invoices/{(await only_invoice(world))['id']}/retry-pricing")
    await world.run()

    [item] = (await only_invoice(world))["items"]
    assert (item["amountCents"], item["description"]) == (1250, "[erased]")
    assert {row["response_body"] for row in await world.sql("SELECT response_body FROM pricing_attempt")} == {
        "[erased]"
    }
    assert await left(world) == []


async def test_a_value_by_hand_keeps_only_the_amount(world: World, prices: PriceServer):
    """[D-228, D-229, D-32]"""
    prices.answers(Reply(status=500))
    await world.enroll(await world.plan(await usage(world, prices)), customer=CUSTOMER)
    await world.run("generation", "pricing")
    await erase_again(world)
    held = await only_invoice(world)
    path = f"/v1/invoices/{held['id']}/items/{held['items'][0]['id']}/value"
    shown = await world.made(path, {"amount": 777, "description": NAMED})

    assert (shown["items"][0]["amountCents"], shown["items"][0]["description"]) == (777, "[erased]")
    assert await left(world) == []


@pytest.mark.parametrize("cents", [100, None])
async def test_a_payment_by_hand_keeps_only_the_amount(world: World, cents: int | None):
    """[D-228, D-229, D-52]"""
    invoice, charge_id = await restored_with_charge(world)
    assert await issued_by(world, invoice) == charge_id
    payment = {"method": "cash", "note": NAMED, "reference": NAMED, "amountCents": cents}
    paid = {name: value for name, value in payment.items() if value is not None}
    shown = await world.made(f"/v1/invoices/{invoice['id']}/payments", paid)

    assert shown["paidCents"] == (cents or invoice["totalCents"])
    [entry] = await world.sql("SELECT note, reference FROM payment_entry")
    assert tuple(entry) == ("[erased]", "[erased]")
    assert await left(world) == []


async def test_a_waiting_payment_by_hand_keeps_only_the_amount(world: World):
    """The gateway does not answer the cancellation of the charge, so the payment is stored first. [D-229, D-52]"""
    invoice, charge_id = await restored_with_charge(world)
    assert await issued_by(world, invoice) == charge_id
    await queue_fault(world, "cancel_charge", "timeout_after")
    await queue_fault(world, "get_charge", "server_error", times=3)
    payment = {"method": "cash", "note": NAMED, "reference": NAMED}
    assert (await world.post(f"/v1/invoices/{invoice['id']}/payments", payment)).status == 409

    [waiting] = await world.sql("SELECT note, reference FROM merchant_request")
    assert tuple(waiting) == ("[erased]", "[erased]")
    await world.advance(days=1)
    assert (await read(world, invoice))["status"] == "paid"
    assert await left(world) == []
