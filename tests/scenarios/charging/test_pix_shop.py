"""The engine bills with a bank's Pix API over HTTPS, while requests and answers are lost (D-33, D-262)."""

from collections.abc import AsyncGenerator

import pytest

from fatura.gateways import port
from fatura.gateways.http import ProviderClient
from fatura.usecases.connections import observed_gateway
from fatura.usecases.reconciliation import sweep
from tests.doubles.pix.book import Account
from tests.doubles.pix.server import open_double
from tests.support.bank_shop import connection, provider
from tests.support.provider_shop import (
    Losses,
    Shop,
    after,
    assert_all_paid,
    bill_once,
    bill_through_losses,
    opened_shop,
)
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


async def test_a_sweep_reads_many_empty_lists_of_a_slow_bank(
    shop: tuple[Shop, Account], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lists of 130 days take longer in all than a call or a run of the sweep may take. [D-161, D-262]"""
    opened, account = shop
    world = opened.world
    invoice = await bill_once(opened, secret="no secret")
    account.pay(invoice["gatewayInvoiceId"])
    await world.sql("UPDATE connection_sweep SET next_sweep_at = '2000-01-01'")
    monkeypatch.setattr(port, "CALL_TIMEOUT_SECONDS", 2)
    monkeypatch.setattr(observed_gateway, "PAGE_SECONDS", 0.2)
    monkeypatch.setattr(sweep, "RUN_SECONDS", 0.5)
    opened.double.pause_seconds = lambda: 0.05
    opened.double.requests.clear()
    await world.run("sweep")
    lists = [request for request in opened.double.requests if request == ("GET", "/cobv")]
    assert 30 < len(lists) < 60, "each run continues where the previous run ended"
    rows = await world.sql("SELECT started_at FROM connection_sweep")
    assert {each["started_at"] for each in rows} == {None}, "the sweep is complete"
    await world.run("reconciliation")
    assert {each["status"] for each in await world.invoices()} == {"paid"}
