"""Two exports of a bank may give one credit two ids and two days (D-257)."""

from typing import Any

import pytest

from tests.support.pix_shop import BANK_ID, CPF, Shop, txid
from tests.support.world import World

OTHER_BANK_ID = "E18236120202611281531s9876543210"


@pytest.fixture
async def shop(world: World) -> Shop:
    return await Shop.opened(world)


async def _bill(shop: Shop) -> Any:
    """Return an issued invoice whose charge is ten days old, so that older credits may pay it."""
    invoice = await shop.bill(document=CPF)
    async with shop.merchant.deps.db.transaction(shop.merchant.account_id) as tx:
        await tx.execute(
            "UPDATE pix_key_charge SET created_at = now() - interval '10 days' WHERE account_id = $1"
        )
    return invoice


async def _results(shop: Shop, *rows: str, **fields: Any) -> list[str]:
    return [result for result, _ in await shop.imported(*rows, **fields)]


@pytest.mark.parametrize(("days_ago", "result"), [(3, "similar"), (4, "new")])
async def test_a_guess_near_a_stored_payment_needs_a_person(shop: Shop, days_ago: int, result: str) -> None:
    """The first export has the day of the payment, and the second one the day of the posting. [D-257]"""
    await _bill(shop)
    assert await _results(shop, f"{shop.day(days_ago=days_ago)},99.90,OFX1,Pix {CPF}") == ["new"]
    second = await _bill(shop)

    row = f"99.90,CSV1,Pix {CPF}"
    assert await _results(shop, row, dryRun=True) == [result]
    assert await _results(shop, row, confirmed=["CSV1"]) == ["new"]
    assert (await shop.read(second))["status"] == "paid"


async def test_a_guess_near_a_payment_that_named_its_charge_needs_a_person(shop: Shop) -> None:
    """Only the first export has the txid. [D-257]"""
    first, _ = await _bill(shop), await _bill(shop)

    assert await _results(shop, f"{shop.day(days_ago=2)},99.90,OFX1,Pix {txid(first)}") == ["new"]
    assert await _results(shop, f"99.90,CSV1,Pix {CPF}") == ["similar"]


async def test_equal_parts_of_two_exports_need_a_person(shop: Shop) -> None:
    """Both exports name the charge. In one export, equal parts of two days are two payments. [D-257]"""
    invoice = await _bill(shop)
    day, name = shop.day(days_ago=1), f"Pix {txid(invoice)}"

    assert await _results(shop, f"{day},10.00,OFX1,{name}", f"10.00,OFX2,{name}") == ["new", "new"]
    assert await _results(shop, f"{day},10.00,CSV1,{name}") == ["similar"]
    assert await _results(shop, f"{shop.day(days_ago=4)},10.00,CSV1,{name}") == ["similar"]
    assert await _results(shop, f"{shop.day(days_ago=5)},10.00,CSV1,{name}") == ["new"]


async def test_payments_with_end_to_end_ids_are_told_apart(shop: Shop) -> None:
    """[D-257]"""
    await _bill(shop)
    assert await _results(shop, f"{shop.day(days_ago=1)},99.90,{BANK_ID},Pix {CPF}") == ["new"]
    await _bill(shop)
    assert await _results(shop, f"99.90,{OTHER_BANK_ID},Pix {CPF}") == ["new"]


async def test_a_payment_of_the_same_file_is_another_payment(shop: Shop) -> None:
    """The second file contains the first payment again. [D-257]"""
    await _bill(shop)
    first = f"{shop.day(days_ago=1)},99.90,a,Pix {CPF}"
    assert await _results(shop, first) == ["new"]
    await _bill(shop)
    assert await _results(shop, first, f"99.90,b,Pix {CPF}") == ["duplicate", "new"]
