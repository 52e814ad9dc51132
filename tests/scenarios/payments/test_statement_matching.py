"""Which charge a credit of a bank statement pays, and when a person must decide (D-257)."""

import asyncio
from typing import Any

import pytest

from tests.support.pix_shop import BANK_ID, CPF, Shop, connect, txid
from tests.support.world import World


@pytest.fixture
async def shop(world: World) -> Shop:
    return await Shop.opened(world)


async def _record(shop: Shop, invoice: Any, **fields: Any) -> None:
    await shop.merchant.made(f"/v1/invoices/{invoice['id']}/payments", {"method": "pix", **fields})
    await shop.world.run()


async def test_a_reused_id_is_no_duplicate_of_another_charge(shop: Shop) -> None:
    """The bank gives equal payments of two customers the same id, in one file or in two. [D-257]"""
    first, second = await shop.bill(externalRef="a"), await shop.bill(externalRef="b")
    row = f"99.90,000000,Pix {txid(second)}"

    assert await shop.imported(f"99.90,000000,Pix {txid(first)}", row) == [
        ("new", "txid"),
        ("id_reused", "None"),
    ]
    assert await shop.imported(row) == [("id_reused", "None")]
    assert (await shop.read(second))["status"] == "issued"


async def test_another_payments_id_in_the_text_hides_no_payment(shop: Shop) -> None:
    """The second payer writes the end-to-end id of the first payment into the message. [D-257]"""
    first, second = await shop.bill(externalRef="a"), await shop.bill(externalRef="b")

    assert await shop.imported(
        f"99.90,1,Pix {txid(first)} {BANK_ID}", f"99.90,2,Pix {txid(second)} {BANK_ID}"
    ) == [("new", "txid"), ("id_reused", "None")]


async def test_a_credit_recorded_by_hand_pays_no_other_invoice(shop: Shop) -> None:
    """The payer has two invoices of the same amount. The merchant records the credit for one of them. [D-257, D-52]"""
    first, second = await shop.bill(document=CPF), await shop.bill(document=CPF)
    row = f"99.90,{BANK_ID},Pix {CPF}"
    assert await shop.imported(row) == [("ambiguous", "None")]
    await _record(shop, first, reference=BANK_ID)

    assert await shop.imported(row) == [("duplicate", "None")]
    assert (await shop.read(second))["paidCents"] == 0


async def test_a_credit_that_was_split_by_hand_is_a_duplicate(shop: Shop) -> None:
    """Two manual payments with the bank's id as their reference share one credit. [D-257, D-52]"""
    first, second = await shop.bill(document=CPF), await shop.bill(document=CPF)
    await _record(shop, first, reference=BANK_ID)
    await _record(shop, second, reference=BANK_ID)

    assert await shop.imported(f"199.80,{BANK_ID},Pix") == [("duplicate", "None")]


async def test_another_amount_by_hand_needs_a_person(shop: Shop) -> None:
    """The merchant recorded 9.99 in place of 99.90. [D-257, D-52]"""
    invoice = await shop.bill()
    await _record(shop, invoice, reference=BANK_ID, amountCents=999)

    assert await shop.imported(f"99.90,{BANK_ID},Pix {txid(invoice)}") == [("similar", "None")]


async def test_a_credit_that_is_older_than_the_charge_does_not_pay_it(shop: Shop) -> None:
    """The credit names only the payer. It may be the payment of the previous cycle. [D-257]"""
    invoice = await shop.bill(document=CPF)
    row = f"{shop.day(days_ago=1)},99.90,{BANK_ID},Pix"

    assert await shop.imported(f"{row} {CPF}") == [("unmatched", "None")]
    assert await shop.imported(f"{row} {txid(invoice)}") == [("new", "txid")]


async def test_one_credit_pays_no_charges_of_two_connections(shop: Shop) -> None:
    """The credit names a charge of the first connection, and the payer of a charge of the second. [D-257]"""
    second = await connect(shop.merchant)
    first_invoice = await shop.bill(document=CPF)
    second_invoice = await shop.bill(document=CPF, connection_id=second)
    row = f"99.90,{BANK_ID},Pix {txid(first_invoice)} {CPF}"

    assert await shop.imported(row, connection_id=second) == [("unmatched", "None")]
    assert await shop.imported(row) == [("new", "txid")]
    assert await shop.imported(f"99.90,{BANK_ID},Pix {CPF}", connection_id=second) == [("duplicate", "None")]
    assert (await shop.read(second_invoice))["paidCents"] == 0


async def test_credits_that_name_a_charge_are_decided_first(shop: Shop) -> None:
    """The newer credit of the file names only the payer. The older one names the charge. [D-257]"""
    invoice = await shop.bill(document=CPF)
    named = f"{shop.day(days_ago=1)},99.90,2,Pix {txid(invoice)}"

    assert await shop.imported(f"99.90,1,Pix {CPF}", named) == [("similar", "document"), ("new", "txid")]
    assert (await shop.read(invoice))["paidCents"] == 9990


async def test_a_second_payment_of_a_paid_charge_needs_a_person(shop: Shop) -> None:
    """The second credit has another day and id, but it may be the same payment. [D-257]"""
    invoice = await shop.bill()
    await shop.imported(f"{shop.day(days_ago=1)},99.90,1,Pix {txid(invoice)}")

    assert await shop.imported(f"99.90,2,Pix {txid(invoice)}") == [("similar", "txid")]
    assert await shop.imported(f"99.90,2,Pix {txid(invoice)}", confirmed=["2"]) == [("new", "txid")]
    assert (await shop.read(invoice))["paidCents"] == 19980


async def test_two_imports_at_once_guess_only_one_payment(shop: Shop) -> None:
    """Both files have a credit that names only the payer. [D-257]"""
    invoice = await shop.bill(document=CPF)
    answers = await asyncio.gather(*(shop.send(f"99.90,{number},Pix {CPF}") for number in range(4)))
    await shop.world.run()

    assert sorted(each.json["new"] for each in answers) == [0, 0, 0, 1]
    assert (await shop.read(invoice))["paidCents"] == 9990


async def test_one_key_imports_one_statement(shop: Shop) -> None:
    """Three requests at once have the same Idempotency-Key and different bodies. [D-257, D-14]"""
    invoice = await shop.bill()
    answers = await asyncio.gather(
        *(shop.send(f"{number}.00,{number},Pix {txid(invoice)}", key="one") for number in (1, 2, 3))
    )
    await shop.world.run()

    assert sorted(each.status for each in answers) == [200, 422, 422]
    assert (await shop.read(invoice))["paymentCount"] == 1


async def test_a_charge_takes_at_most_100_payments(shop: Shop) -> None:
    """[D-257, D-249]"""
    invoice = await shop.bill()
    rows = [f"0.{number:02},{number},Pix {txid(invoice)}" for number in range(1, 100)]
    await shop.imported(*rows)
    rest = [f"1.00,100,Pix {txid(invoice)}", f"1.01,101,Pix {txid(invoice)}"]

    assert await shop.imported(*rest, confirmed=["100", "101"]) == [("new", "txid"), ("similar", "txid")]


async def test_unreadable_credentials_are_named(shop: Shop) -> None:
    """[D-257, D-34]"""
    async with shop.merchant.deps.db.transaction(shop.merchant.account_id) as tx:
        await tx.execute("UPDATE gateway_connection SET credentials_sealed = '\\x00' WHERE account_id = $1")

    refused = await shop.send()
    assert (refused.status, refused.type) == (422, "engine.statement_unsupported")
    assert "cannot be decrypted" in refused.json["detail"]
