"""The engine bills with a bank's Pix API over HTTPS, while requests and answers are lost (D-33, D-262)."""

from collections.abc import AsyncGenerator

import pytest

from fatura.gateways.http import ProviderClient
from tests.doubles.pix.book import Account
from tests.doubles.pix.server import open_double
from tests.support.bank_shop import connection, provider
from tests.support.provider_shop import Losses, Shop, after, assert_all_paid, bill_through_losses, opened_shop
from tests.support.world import NOW, World


@pytest.fixture
async def shop(world: World) -> AsyncGenerator[tuple[Shop, Account]]:
    async with open_double(lambda: NOW) as double:
        client = ProviderClient(is_exempt=True, new_ssl_context=double.client_context)
        account = double.open_account()
        pix = provider(client, double.url)
        async with opened_shop(world, double, "pix", pix, connection(double, account)) as opened:
            yield opened, account
        await client.close()


@pytest.mark.faults
async def test_lost_answers_leave_one_charge_for_each_invoice(shop: tuple[Shop, Account]) -> None:
    """Workers also die in the middle of calls. Then all payers pay, and the ledger has every cent. [D-33, D-262]"""
    opened, account = shop
    losses = Losses(262, lambda method, path: method == "PUT" and path.startswith("/cobv/"))
    invoices = await bill_through_losses(opened, losses, least_cents=1)
    assert account.charges.keys() == {each["gatewayInvoiceId"] for each in invoices}
    cents = {txid: int(each["valor"]["original"].replace(".", "")) for txid, each in account.charges.items()}
    assert cents == {each["gatewayInvoiceId"]: each["totalCents"] for each in invoices}
    for txid in account.charges:
        account.pay(txid)
    await opened.world.advance(after(days=5))
    await assert_all_paid(opened.world, sum(cents.values()))
