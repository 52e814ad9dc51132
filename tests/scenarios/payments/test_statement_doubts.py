"""When it is not certain whether a credit of a bank statement is stored already, a person decides (D-257)."""

import asyncio
from typing import Any

import pytest

from fatura.gateways.adapters.pix_key.adapter import PixKeyGateway
from fatura.store.db import NoFreeConnectionError
from fatura.usecases.reconciliation import bank_statements
from tests.support.pix_shop import BANK_ID, CPF, Shop, connect, txid
from tests.support.world import World

OTHER_CPF = "11144477735"
OTHER_BANK_ID = "E18236120202611281531s9876543210"


@pytest.fixture
async def shop(world: World) -> Shop:
    return await Shop.opened(world)


async def _record(shop: Shop, invoice: Any, **fields: Any) -> None:
    await shop.merchant.made(f"/v1/invoices/{invoice['id']}/payments", {"method": "pix", **fields})
    await shop.world.run()


async def _paid(shop: Shop, *invoices: Any) -> list[int]:
    return [(await shop.read(each))["paidCents"] for each in invoices]


async def _results(shop: Shop, *rows: str, **fields: Any) -> list[str]:
    return [result for result, _ in await shop.imported(*rows, **fields)]


async def test_another_payer_with_a_used_id_needs_a_person(shop: Shop) -> None:
    """The bank gives the same id to equal payments of two payers, in two files. [D-257]"""
    first = await shop.bill(externalRef="a", document=CPF)
    second = await shop.bill(externalRef="b", document=OTHER_CPF)

    assert await _results(shop, f"99.90,000000,Pix {CPF}") == ["new"]
    assert await _results(shop, f"99.90,000000,Pix {OTHER_CPF}") == ["id_reused"]
    assert await _paid(shop, first, second) == [9990, 0]


async def test_another_bank_with_a_used_id_needs_a_person(shop: Shop) -> None:
    """Both banks use row numbers as ids. Each of the two connections belongs to one of the banks. [D-257]"""
    other = await connect(shop.merchant)
    first = await shop.bill(externalRef="a", document=CPF)
    second = await shop.bill(externalRef="b", document=OTHER_CPF, connection_id=other)

    assert await _results(shop, f"99.90,1,Pix {CPF}") == ["new"]
    assert await _results(shop, f"99.90,1,Pix {OTHER_CPF}", connection_id=other) == ["id_reused"]
    assert await _results(shop, "99.90,1,Pix", connection_id=other) == ["id_reused"]
    assert await _paid(shop, first, second) == [9990, 0]


async def test_a_foreign_end_to_end_id_in_a_message_hides_no_payer(shop: Shop) -> None:
    """The second payer writes the end-to-end id of the first payment into the message. [D-257]"""
    await shop.bill(externalRef="a", document=CPF)
    await shop.bill(externalRef="b", document=OTHER_CPF)
    rows = f"99.90,1,Pix {CPF} {BANK_ID}", f"99.90,2,Pix {OTHER_CPF} {BANK_ID}"

    assert await _results(shop, *rows) == ["new", "id_reused"]


async def test_an_end_to_end_id_alone_is_a_duplicate(shop: Shop) -> None:
    """Two other files give the same end-to-end id, but no txid. One has the document of an unknown payer. [D-257]"""
    invoice = await shop.bill()
    await shop.imported(f"99.90,{BANK_ID},Pix {txid(invoice)}")

    assert await _results(shop, f"99.90,{BANK_ID},Pix") == ["duplicate"]
    assert await _results(shop, f"99.90,{BANK_ID},Pix {OTHER_CPF}") == ["duplicate"]


async def test_a_repeat_shows_the_reused_id_again(shop: Shop) -> None:
    """The process dies before it answers, so the merchant sees only the answer of the repeat. [D-257]"""
    invoice = await shop.bill(externalRef="a", document=CPF)
    await shop.bill(externalRef="b", document=OTHER_CPF)
    named = f"10.00,1,Pix {txid(invoice)}", f"10.00,1,Pix {txid(invoice)}"
    assert await _results(shop, *named) == ["new", "id_reused"]
    assert await _results(shop, *named) == ["duplicate", "id_reused"]

    guessed = f"99.90,2,Pix {OTHER_CPF}", f"99.90,2,Pix {CPF}"
    assert await _results(shop, *guessed) == ["new", "id_reused"]
    assert await _results(shop, *guessed) == ["duplicate", "id_reused"]
    assert await _results(shop, *reversed(guessed)) == ["id_reused", "duplicate"]


async def test_a_manual_reference_hides_no_payment_of_another_invoice(shop: Shop) -> None:
    """The ids are row numbers. The merchant recorded credit 1 of an older file by hand. Credit 1 of this file is new.
    [D-257, D-52]
    """
    first, second = await shop.bill(externalRef="a"), await shop.bill(externalRef="b")
    await _record(shop, first, reference="1")

    row = f"99.90,1,Pix {txid(second)}"
    assert await _results(shop, row) == ["similar"]
    assert await _results(shop, row, confirmed=["1"]) == ["new"]
    assert await _paid(shop, first, second) == [9990, 9990]


async def test_a_manual_payment_is_only_one_credit_of_a_file(shop: Shop) -> None:
    """The bank gives both credits the same id. [D-257, D-52]"""
    first, second = await shop.bill(externalRef="a"), await shop.bill(externalRef="b")
    await _record(shop, first, reference="000000")
    rows = f"99.90,000000,Pix {txid(first)}", f"99.90,000000,Pix {txid(second)}"

    assert await _results(shop, *rows) == ["duplicate", "similar"]
    assert await _results(shop, rows[0], rows[0]) == ["duplicate", "similar"]


async def test_a_manual_payment_of_another_day_with_a_weak_id_needs_a_person(shop: Shop) -> None:
    """Ids such as row numbers return each month. End-to-end ids do not. [D-257, D-52]"""
    first, second = await shop.bill(externalRef="a"), await shop.bill(externalRef="b")
    await _record(shop, first, reference="1")
    await _record(shop, second, reference=BANK_ID)
    day = shop.day(days_ago=1)

    assert await _results(shop, f"{day},99.90,1,Pix {txid(first)}") == ["similar"]
    assert await _results(shop, f"{day},99.90,{BANK_ID},Pix {txid(second)}") == ["duplicate"]


async def test_any_manual_payment_of_the_invoice_needs_a_person(shop: Shop) -> None:
    """The merchant split one credit into two manual payments without references. [D-257, D-52]"""
    invoice = await shop.bill()
    await _record(shop, invoice, amountCents=5000)
    await _record(shop, invoice)

    assert await _results(shop, f"99.90,1,Pix {txid(invoice)}") == ["similar"]
    assert await _paid(shop, invoice) == [9990]


async def test_another_export_does_not_pay_the_next_invoice(shop: Shop) -> None:
    """The bank's OFX and CSV files give one credit two ids, and name only the payer. [D-257]"""
    first = await shop.bill(document=CPF)
    assert await _results(shop, f"99.90,OFX1,Pix {CPF}") == ["new"]
    second = await shop.bill(document=CPF)

    assert await _results(shop, f"99.90,CSV1,Pix {CPF}") == ["similar"]
    assert await _paid(shop, first, second) == [9990, 0]
    assert await _results(shop, f"99.90,CSV1,Pix {CPF}", confirmed=["CSV1"]) == ["new"]
    assert await _paid(shop, first, second) == [9990, 9990]


async def test_another_export_does_not_pay_a_reissued_invoice_again(shop: Shop) -> None:
    """The first file names the canceled code, and no poll has recorded its payment yet. [D-257, D-51]"""
    invoice = await shop.bill(document=CPF)
    canceled = txid(invoice)
    await shop.merchant.made(f"/v1/invoices/{invoice['id']}/reissue", {})
    await shop.world.run()
    await shop.send(f"99.90,1,Pix {canceled}")

    assert await _results(shop, f"99.90,N1,Pix {CPF}") == ["similar"]
    assert await _paid(shop, invoice) == [9990]


async def test_a_guess_that_was_recorded_by_hand_pays_no_other_invoice(shop: Shop) -> None:
    """The merchant recorded the credit for one of two invoices. Another file gives the credit another id.
    [D-257, D-52]
    """
    first, second = await shop.bill(document=CPF), await shop.bill(document=CPF)
    day = shop.day(days_ago=0)
    assert await _results(shop, f"{day},99.90,OFX1,Pix {CPF}") == ["ambiguous"]
    await _record(shop, first, reference="OFX1")

    assert await _results(shop, f"99.90,CSV1,Pix {CPF}") == ["similar"]
    assert await _paid(shop, first, second) == [9990, 0]


async def test_two_end_to_end_ids_are_two_payments(shop: Shop) -> None:
    """A payer pays two invoices of the same amount on one day. [D-257]"""
    first = await shop.bill(document=CPF)
    assert await _results(shop, f"99.90,{BANK_ID},Pix {CPF}") == ["new"]
    second = await shop.bill(document=CPF)

    assert await _results(shop, f"99.90,{OTHER_BANK_ID},Pix {CPF}") == ["new"]
    assert await _paid(shop, first, second) == [9990, 9990]


async def test_credits_of_one_file_that_name_their_charges_are_new(shop: Shop) -> None:
    """One payer pays equal invoices on one day. A person must confirm the credit of a later file. [D-257]"""
    invoices = [await shop.bill(document=CPF) for _ in range(3)]
    rows = [f"99.90,{number},Pix {txid(each)}" for number, each in enumerate(invoices)]

    assert await _results(shop, *rows[:2]) == ["new", "new"]
    assert await _results(shop, *rows) == ["duplicate", "duplicate", "similar"]


async def test_a_second_payment_by_document_needs_a_person(shop: Shop) -> None:
    """A repeat of the file still asks about the second payment, although no charge is open any more. [D-257]"""
    invoice = await shop.bill(document=CPF)
    rows = f"99.90,1,Pix {CPF}", f"99.90,2,Pix {CPF}"

    assert await _results(shop, *rows) == ["new", "similar"]
    assert await _results(shop, *rows) == ["duplicate", "similar"]
    assert await _results(shop, *rows, confirmed=["2"]) == ["duplicate", "new"]
    assert await _paid(shop, invoice) == [19980]


async def test_the_rest_of_a_charge_by_document_needs_a_person(shop: Shop) -> None:
    """The first part names the charge, and the second part names only the payer. [D-257]"""
    invoice = await shop.bill(document=CPF)
    await shop.imported(f"40.00,1,Pix {txid(invoice)}")

    row = f"59.90,2,Pix {CPF}"
    assert await _results(shop, row) == ["similar"]
    assert await _results(shop, row, confirmed=["2"]) == ["new"]
    assert (await shop.read(invoice))["status"] == "paid"


async def test_the_payer_of_two_connections_is_ambiguous(shop: Shop) -> None:
    """Both Pix keys belong to one bank account, so its statement has the payments of both connections. [D-257]"""
    other = await connect(shop.merchant)
    await shop.bill(document=CPF)
    await shop.bill(document=CPF, connection_id=other)

    assert await _results(shop, f"99.90,{BANK_ID},Pix {CPF}") == ["ambiguous"]


def _decide_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each of two imports read the stored payments before the other one adds its own."""
    known, both = bank_statements._known, asyncio.Barrier(2)
    calls = 0

    async def slow(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        is_first = calls <= both.parties
        found = await known(*args)
        if is_first:
            await both.wait()
        return found

    monkeypatch.setattr(bank_statements, "_known", slow)


async def test_two_imports_at_once_show_the_reused_id(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two files have credits with the same id, which name different charges. [D-257]"""
    invoices = await shop.bill(externalRef="a"), await shop.bill(externalRef="b")
    _decide_at_once(monkeypatch)
    answers = await asyncio.gather(*(shop.send(f"99.90,000000,Pix {txid(each)}") for each in invoices))
    await shop.world.run()

    assert sorted(each.json["data"][0]["result"] for each in answers) == ["id_reused", "new"]
    assert sorted(await _paid(shop, *invoices)) == [0, 9990]


async def test_two_exports_at_once_pay_a_reissued_invoice_once(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The OFX file names the canceled code. The CSV file gives the credit another id, and names the payer. [D-257]"""
    invoice = await shop.bill(document=CPF)
    canceled = txid(invoice)
    await shop.merchant.made(f"/v1/invoices/{invoice['id']}/reissue", {})
    await shop.world.run()
    _decide_at_once(monkeypatch)
    answers = await asyncio.gather(shop.send(f"99.90,1,Pix {canceled}"), shop.send(f"99.90,N1,Pix {CPF}"))
    await shop.world.run()

    assert sorted(each.json["data"][0]["result"] for each in answers) == ["new", "similar"]
    assert await _paid(shop, invoice) == [9990]


async def test_a_guess_pays_no_charge_that_was_canceled_meanwhile(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The invoice is canceled after the import has found it, and before the import stores the payment. [D-257]"""
    invoice = await shop.bill(document=CPF)
    import_payments = PixKeyGateway.import_payments

    async def late(self: Any, payments: Any, **options: Any) -> Any:
        await shop.merchant.made(f"/v1/invoices/{invoice['id']}/cancel")
        return await import_payments(self, payments, **options)

    monkeypatch.setattr(PixKeyGateway, "import_payments", late)
    assert await _results(shop, f"99.90,1,Pix {CPF}") == ["similar"]
    assert await _paid(shop, invoice) == [0]


async def test_the_audit_shows_a_payment_whose_import_had_no_answer(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database fails after the import has stored the payment. The repeat adds the audit entry. [D-257, D-63]"""
    invoice = await shop.bill()
    row = f"99.90,{BANK_ID},Pix {txid(invoice)}"

    async def dead(*_: Any, **__: Any) -> Any:
        raise NoFreeConnectionError("down")

    with monkeypatch.context() as patched:
        patched.setattr(bank_statements, "finish", dead)
        assert (await shop.send(row)).status == 503
    assert await _results(shop, row) == ["duplicate"]

    [entry] = await shop.merchant.audit("gateway_connection.import_statement")
    assert entry["after"] == {"payments": 0, "duplicates": 1}
    assert await _paid(shop, invoice) == [9990]


@pytest.mark.parametrize("cents", [None, 4000])
async def test_a_payment_recorded_by_hand_during_an_import_counts_once(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, cents: int | None
) -> None:
    """The merchant records the payment, or a part payment, after the import has decided. [D-257]"""
    invoice = await shop.bill()
    fields = {} if cents is None else {"amountCents": cents}
    amount = "99.90" if cents is None else "40.00"
    import_payments = PixKeyGateway.import_payments

    async def late(self: Any, payments: Any, **options: Any) -> Any:
        await shop.merchant.made(f"/v1/invoices/{invoice['id']}/payments", {"method": "pix", **fields})
        return await import_payments(self, payments, **options)

    monkeypatch.setattr(PixKeyGateway, "import_payments", late)
    assert await _results(shop, f"{amount},1,Pix {txid(invoice)}") == ["similar"]
    assert await _paid(shop, invoice) == [cents or 9990]


async def test_a_payment_of_another_invoice_recorded_by_hand_during_an_import_counts_once(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reference of this payment is the bank's id of the credit. [D-257]"""
    invoice = await shop.bill()
    other = await shop.bill(externalRef="bia", name="Bia", email="bia@example.com")
    import_payments = PixKeyGateway.import_payments

    async def late(self: Any, payments: Any, **options: Any) -> Any:
        body = {"method": "pix", "reference": "1"}
        await shop.merchant.made(f"/v1/invoices/{other['id']}/payments", body)
        return await import_payments(self, payments, **options)

    monkeypatch.setattr(PixKeyGateway, "import_payments", late)
    assert await _results(shop, f"99.90,1,Pix {txid(invoice)}") == ["similar"]
    assert (await _paid(shop, invoice), await _paid(shop, other)) == ([0], [9990])


async def test_an_import_during_the_cancellation_for_a_manual_payment_adds_no_payment(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The payment is stored as a request, and its charge is canceled already. [D-257, D-171]"""
    invoice = await shop.bill()
    cancel_charge = PixKeyGateway.cancel_charge
    results = list[str]()

    async def slow(self: Any, charge_id: str) -> Any:
        canceled = await cancel_charge(self, charge_id)
        answer = await shop.send(f"99.90,1,Pix {txid(invoice)}")
        results.extend(each["result"] for each in answer.json["data"])
        return canceled

    monkeypatch.setattr(PixKeyGateway, "cancel_charge", slow)
    await _record(shop, invoice)
    assert results == ["similar"]
    assert await _paid(shop, invoice) == [9990]


async def test_a_payment_recorded_by_hand_after_an_import_is_refused(shop: Shop) -> None:
    """The import has stored the payment, but no poll has recorded it yet. [D-257, D-52]"""
    invoice = await shop.bill()
    assert (await shop.send(f"99.90,1,Pix {txid(invoice)}")).status == 200
    refused = await shop.merchant.post(f"/v1/invoices/{invoice['id']}/payments", {"method": "pix"})
    assert (refused.status, refused.type) == (409, "engine.invoice_not_payable")
    await shop.world.run()
    assert await _paid(shop, invoice) == [9990]
