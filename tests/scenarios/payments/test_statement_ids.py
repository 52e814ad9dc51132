"""The bank's ids of credits: their upper and lower case, and ids of several credits (D-257)."""

from typing import Any

import pytest

from tests.support.pix_shop import CPF, Shop, connect, txid
from tests.support.world import World

END_TO_END = "E18236120202611281530sAbCdEfGhIj"


@pytest.fixture
async def shop(world: World) -> Shop:
    return await Shop.opened(world)


async def _results(shop: Shop, *rows: str, **fields: Any) -> list[str]:
    return [result for result, _ in await shop.imported(*rows, **fields)]


@pytest.mark.parametrize(
    ("first", "second"), [(END_TO_END, END_TO_END.upper()), (END_TO_END.lower(), END_TO_END)]
)
async def test_an_end_to_end_id_in_another_case_is_the_same_payment(
    shop: Shop, first: str, second: str
) -> None:
    """Each answer shows the id as the file has it. [D-257]"""
    invoice = await shop.bill(document=CPF)
    assert await _results(shop, f"99.90,{first},Pix {CPF}") == ["new"]
    assert (await shop.read(invoice))["payments"][0]["reference"] == first

    await shop.bill(document=CPF)
    assert await _results(shop, f"99.90,1,Pix {CPF} {second}") == ["duplicate"]
    assert await _results(shop, f"99.90,1,Pix {CPF} {second}", confirmed=[first]) == ["duplicate"]


async def test_a_manual_reference_in_another_case_is_the_same_payment(shop: Shop) -> None:
    """The payment still shows the reference as the merchant wrote it. [D-257, D-52]"""
    invoice = await shop.bill()
    manual = {"method": "pix", "reference": END_TO_END}
    await shop.merchant.made(f"/v1/invoices/{invoice['id']}/payments", manual)
    await shop.world.run()

    assert await _results(shop, f"99.90,{END_TO_END.upper()},Pix {txid(invoice)}") == ["duplicate"]
    assert (await shop.read(invoice))["payments"][0]["reference"] == END_TO_END


async def test_other_ids_that_differ_in_case_are_two_ids(shop: Shop) -> None:
    """[D-257]"""
    first, second = await shop.bill(externalRef="a"), await shop.bill(externalRef="b")
    rows = f"99.90,a1,Pix {txid(first)}", f"99.90,A1,Pix {txid(second)}"

    assert await _results(shop, *rows) == ["new", "new"]


async def test_two_connections_import_an_end_to_end_id_once(shop: Shop) -> None:
    """[D-257]"""
    other = await connect(shop.merchant)
    first, second = await shop.bill(), await shop.bill(connection_id=other)

    assert await _results(shop, f"99.90,{END_TO_END},Pix {txid(first)}") == ["new"]
    row = f"99.90,{END_TO_END.upper()},Pix {txid(second)}"
    assert await _results(shop, row, connection_id=other) == ["id_reused"]


async def test_an_id_of_several_credits_cannot_be_confirmed(shop: Shop) -> None:
    """A person may mean only one of the credits. A dry run refuses the id too. [D-257]"""
    first, second = await shop.bill(externalRef="a"), await shop.bill(externalRef="b")
    for each in first, second:
        await shop.merchant.made(
            f"/v1/invoices/{each['id']}/payments", {"method": "cash", "amountCents": 5000}
        )
    await shop.world.run()
    rows = f"49.90,000000,Pix {txid(first)}", f"49.90,000000,Pix {txid(second)}"
    assert await _results(shop, *rows) == ["similar", "similar"]

    for is_dry_run in (True, False):
        refused = await shop.send(*rows, confirmed=["000000"], dryRun=is_dry_run)
        [field] = refused.json["meta"]["fields"]
        assert (refused.status, field["path"], "000000" in field["message"]) == (400, "confirmed", True)
    assert (await shop.read(first))["paidCents"] == (await shop.read(second))["paidCents"] == 5000
    assert await _results(shop, rows[0], confirmed=["000000"]) == ["new"]


async def test_only_a_similar_credit_can_be_confirmed(shop: Shop) -> None:
    """The file has an ambiguous credit, one that pays nothing, and no credit 3. A dry run refuses too. [D-257]"""
    for _ in range(2):
        await shop.bill(document=CPF)
    rows = f"99.90,1,Pix {CPF}", "99.90,2,Pix"

    for confirmed in ("1", "2", "3"):
        for is_dry_run in (True, False):
            refused = await shop.send(*rows, confirmed=[confirmed], dryRun=is_dry_run)
            [field] = refused.json["meta"]["fields"]
            assert (refused.status, field["path"], confirmed in field["message"]) == (400, "confirmed", True)


async def test_an_import_decides_like_its_dry_run(shop: Shop) -> None:
    """The first credit names the payer, and the second one names the charge. [D-257]"""
    invoice = await shop.bill(document=CPF)
    rows = f"99.90,1,Pix {CPF}", f"40.00,2,Pix {txid(invoice)}"
    shown = (await shop.send(*rows, dryRun=True, confirmed=["1"])).json

    imported = (await shop.send(*rows, confirmed=["1"])).json
    assert [each["result"] for each in imported["data"]] == ["new", "new"]
    assert imported["data"] == shown["data"]
