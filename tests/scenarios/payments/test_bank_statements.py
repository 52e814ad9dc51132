"""A merchant with a Pix key imports bank statements. Fatura records the payments of the merchant's charges (D-257)."""

import asyncio
from typing import Any

import pytest

from fatura.domain.credentials import Mode
from tests.support.pix_shop import BANK_ID, CPF, Shop, txid
from tests.support.world import World


@pytest.fixture
async def shop(world: World) -> Shop:
    return await Shop.opened(world)


async def test_a_credit_with_the_txid_pays_the_invoice(shop: Shop) -> None:
    """A dry run shows the same result, and changes nothing. [D-257]"""
    invoice = await shop.bill()
    row = f"99.90,{BANK_ID},Pix {txid(invoice)}"
    shown = (await shop.send(row, dryRun=True)).json
    assert (shown["dryRun"], shown["new"], shown["data"][0]["invoiceId"]) == (True, 1, invoice["id"])
    await shop.world.run()
    assert (await shop.read(invoice))["status"] == "issued"

    assert await shop.imported(row) == [("new", "txid")]

    paid = await shop.read(invoice)
    [payment] = paid["payments"]
    assert (paid["status"], paid["paidCents"]) == ("paid", 9990)
    assert (payment["source"], payment["reference"], payment["amountCents"]) == ("gateway", BANK_ID, 9990)
    assert await shop.merchant.events("invoice.paid") != []


async def test_a_repeated_import_records_nothing_twice(shop: Shop) -> None:
    """[D-257]"""
    invoice = await shop.bill()
    row = f"99.90,{BANK_ID},Pix {txid(invoice)}"
    await shop.imported(row)

    assert await shop.imported(row) == [("duplicate", "None")]
    assert await shop.imported(row, confirmed=[BANK_ID]) == [("duplicate", "None")]
    assert (await shop.read(invoice))["paidCents"] == 9990


async def test_simultaneous_imports_record_a_payment_once(shop: Shop) -> None:
    """[D-257]"""
    invoice = await shop.bill()
    row = f"99.90,{BANK_ID},Pix {txid(invoice)}"
    answers = await asyncio.gather(*(shop.send(row) for _ in range(5)))
    await shop.world.run()

    assert sorted(each.json["new"] for each in answers) == [0, 0, 0, 0, 1]
    assert (await shop.read(invoice))["paidCents"] == 9990


async def test_a_credit_without_a_txid_is_matched_by_amount_and_document(shop: Shop) -> None:
    """A credit with another amount or a masked CPF matches nothing. Another customer owes the same amount. [D-257]"""
    await shop.bill(externalRef="bob", document="11144477735")
    invoice = await shop.bill(document=CPF)

    assert await shop.imported(
        "99.91,1,Pix 529.982.247-25", "99.90,2,Pix ***.982.247-**", "99.90,3,Pix 529.982.247-25"
    ) == [("unmatched", "None"), ("unmatched", "None"), ("new", "document")]
    assert (await shop.read(invoice))["status"] == "paid"


async def test_a_credit_that_may_pay_two_invoices_pays_none(shop: Shop) -> None:
    """[D-257]"""
    invoices = [await shop.bill(document=CPF), await shop.bill(document=CPF)]

    assert await shop.imported(f"99.90,1,Pix {CPF}") == [("ambiguous", "None")]
    both = " ".join(map(txid, invoices))
    assert await shop.imported(f"99.90,1,Pix {both}") == [("ambiguous", "None")]
    assert [(await shop.read(each))["status"] for each in invoices] == ["issued", "issued"]


async def test_a_part_and_the_rest_pay_the_invoice(shop: Shop) -> None:
    """[D-257, D-50]"""
    invoice = await shop.bill()
    await shop.imported(f"40.00,1,Pix {txid(invoice)}")
    assert (await shop.read(invoice))["paidCents"] == 4000

    await shop.imported(f"59.90,2,Pix {txid(invoice)}")
    assert (await shop.read(invoice))["status"] == "paid"


async def test_the_payment_of_a_canceled_code_is_recorded_and_reported(shop: Shop) -> None:
    """[D-257, D-50]"""
    invoice = await shop.bill()
    await shop.merchant.made(f"/v1/invoices/{invoice['id']}/cancel")

    assert await shop.imported(f"99.90,1,Pix {txid(invoice)}") == [("new", "txid")]
    canceled = await shop.read(invoice)
    assert (canceled["status"], canceled["paidCents"]) == ("canceled", 9990)
    assert await shop.merchant.events("invoice.payment_unexpected") != []


async def test_the_payment_of_a_replaced_code_pays_the_reissued_invoice(shop: Shop) -> None:
    """[D-257, D-51]"""
    invoice = await shop.bill()
    await shop.merchant.made(f"/v1/invoices/{invoice['id']}/reissue", {})
    await shop.world.run()

    await shop.imported(f"99.90,1,Pix {txid(invoice)}")
    paid = await shop.read(invoice)
    assert (paid["status"], paid["paidCents"]) == ("paid", 9990)
    assert [each["status"] for each in paid["charges"]] == ["canceled", "canceled"]


async def test_a_payment_that_was_recorded_by_hand_is_not_recorded_again(shop: Shop) -> None:
    """The manual payment has the bank's id as its reference. [D-257, D-52]"""
    invoice = await shop.bill()
    await shop.merchant.made(
        f"/v1/invoices/{invoice['id']}/payments", {"method": "pix", "reference": BANK_ID}
    )

    assert await shop.imported(f"99.90,{BANK_ID},Pix {txid(invoice)}") == [("duplicate", "None")]
    assert (await shop.read(invoice))["paidCents"] == 9990


async def test_a_payment_like_one_recorded_by_hand_waits_for_a_person(shop: Shop) -> None:
    """The manual payment has no reference. If a person confirms the credit, Fatura records a second payment.
    [D-257, D-52]
    """
    invoice = await shop.bill()
    await shop.merchant.made(f"/v1/invoices/{invoice['id']}/payments", {"method": "pix"})
    row = f"99.90,{BANK_ID},Pix {txid(invoice)}"

    answer = (await shop.send(row)).json
    assert (answer["new"], answer["needsYou"]) == (0, 1)
    assert await shop.imported(row) == [("similar", "txid")]
    assert (await shop.read(invoice))["paidCents"] == 9990
    assert await shop.imported(row, confirmed=[BANK_ID]) == [("new", "txid")]
    assert (await shop.read(invoice))["paidCents"] == 19980


async def test_a_payment_of_the_same_day_under_another_id_waits_for_a_person(shop: Shop) -> None:
    """The bank's OFX and CSV files may give one payment two ids. [D-257]"""
    invoice = await shop.bill()
    text = f"Pix {txid(invoice)}"

    assert await shop.imported(f"99.90,1,{text}", f"99.90,2,{text}") == [("new", "txid"), ("similar", "txid")]
    assert await shop.imported(f"99.90,3,{text}") == [("similar", "txid")]
    assert (await shop.read(invoice))["paidCents"] == 9990
    assert await shop.imported(f"99.90,3,{text}", confirmed=["3"]) == [("new", "txid")]


async def test_an_id_that_the_bank_used_twice_needs_a_person(shop: Shop) -> None:
    """[D-257]"""
    invoice = await shop.bill()

    assert await shop.imported(f"40.00,1,Pix {txid(invoice)}", f"59.90,1,Pix {txid(invoice)}") == [
        ("new", "txid"),
        ("id_reused", "None"),
    ]
    assert await shop.imported(f"59.90,1,Pix {txid(invoice)}") == [("id_reused", "None")]


async def test_an_import_that_ended_before_its_polls_is_completed_by_a_repeat(shop: Shop) -> None:
    """The process died after it had stored the payment, and before it made the invoice's poll due. [D-257]"""
    invoice = await shop.bill()
    row = f"99.90,{BANK_ID},Pix {txid(invoice)}"
    await shop.send(row)
    async with shop.merchant.deps.db.transaction(shop.merchant.account_id) as tx:
        await tx.execute(
            "UPDATE invoice SET next_attempt_at = next_attempt_at + interval '30 days' WHERE account_id = $1"
        )
    await shop.world.run("reconciliation")
    assert (await shop.read(invoice))["status"] == "issued"

    await shop.send(row)
    await shop.world.run("reconciliation")
    assert (await shop.read(invoice))["status"] == "paid"


async def test_a_refund_of_an_imported_payment_is_recorded(shop: Shop) -> None:
    """The merchant returns the money in the bank's app. [D-257, D-53]"""
    invoice = await shop.bill()
    await shop.imported(f"99.90,1,Pix {txid(invoice)}")
    await shop.merchant.made(f"/v1/invoices/{invoice['id']}/refunds", {"amountCents": 990})
    await shop.world.run()

    refunded = await shop.read(invoice)
    assert (refunded["status"], refunded["refundedCents"]) == ("paid", 990)
    assert await shop.world.broken() == []


async def test_an_import_is_audited_without_its_text(shop: Shop) -> None:
    """A dry run has no audit entry. [D-257, D-63]"""
    invoice = await shop.bill()
    await shop.send(f"99.90,1,Pix {txid(invoice)}", dryRun=True)
    await shop.imported(f"99.90,1,Pix {txid(invoice)}", "-5.00,2,fee")

    [entry] = await shop.merchant.audit("gateway_connection.import_statement")
    assert (entry["resource"]["id"], entry["after"]) == (
        shop.connection_id,
        {"payments": 1, "duplicates": 0},
    )


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"format": "pdf", "statement": "x"}, "format"),
        ({"format": "csv"}, "statement"),
        ({"format": "csv", "statement": ""}, "statement"),
        ({"format": "csv", "statement": "x"}, "statement"),
        ({"format": "ofx", "statement": "<OFX><STMTTRN><TRNAMT>1"}, "statement"),
        ({"format": "csv", "statement": 200_001 * "x"}, "statement"),
        ({"format": "csv", "statement": "date,amount,id\n", "confirmed": ["\x00"]}, "confirmed[0]"),
    ],
)
async def test_an_invalid_statement_is_refused(shop: Shop, body: dict[str, Any], path: str) -> None:
    """[D-257, D-11]"""
    refused = await shop.merchant.post(f"/v1/integration/gateways/{shop.connection_id}/statement", body)

    assert (refused.status, refused.type) == (400, "engine.invalid_request")
    assert [each["path"] for each in refused.json["meta"]["fields"]] == [path]


async def test_only_the_accounts_own_pix_key_takes_statements(shop: Shop) -> None:
    """Another account's connection is unknown, and a sandbox connection reports its payments itself. [D-257]"""
    body = {"format": "csv", "statement": "date,amount,id\n"}
    other = await shop.world.another(Mode.LIVE)
    unknown = await other.post(f"/v1/integration/gateways/{shop.connection_id}/statement", body)
    sandbox = (await shop.world.get("/v1/integration/gateways")).json["data"][0]["connectionId"]
    unsupported = await shop.world.post(f"/v1/integration/gateways/{sandbox}/statement", body)

    assert (unknown.status, unknown.type) == (404, "engine.not_found")
    assert (unsupported.status, unsupported.type) == (422, "engine.statement_unsupported")
