"""The engine checks a merchant's URL against the operator's settings before it stores the URL, and before each call."""

import pytest

from fatura.domain.credentials import Mode
from tests.support.price_server import PriceServer
from tests.support.price_steps import usage
from tests.support.unlimited import LOOPBACK
from tests.support.world import Merchant, open_world


async def _outcome(merchant: Merchant, product_id: str, database_url: str, **settings: str) -> str:
    """Return the outcome of a price call that an engine with these settings makes."""
    async with open_world(database_url, **settings) as restarted:
        path, key = f"/v1/products/{product_id}/pricing-test", {"Authorization": f"Bearer {merchant.api_key}"}
        return (await restarted.post(path, headers=key)).json["outcome"]


@pytest.mark.parametrize("mode", Mode)
async def test_a_stored_url_is_called_only_if_the_settings_allow_it(
    database_url: str, prices: PriceServer, mode: Mode
) -> None:
    """[D-215, D-47 outbound]"""
    prices.answers({"amount": 100})
    allowed = {"FATURA_OUTBOUND_ALLOW_LIVE": LOOPBACK}
    async with open_world(database_url, **allowed) as world:
        merchant = await world.another(mode)
        product = await usage(merchant, prices)

    made = [
        await _outcome(merchant, product["id"], database_url, **settings)
        for settings in (allowed, {}, {**allowed, "FATURA_OUTBOUND_DENY": "127.0.0.0/8"})
    ]
    called = "ok" if mode is Mode.SANDBOX else "http_error"
    assert made == ["ok", called, "http_error"]
    assert len(prices.calls) == made.count("ok")


async def test_a_route_refuses_servers_of_sandbox_accounts_to_live_ones(
    database_url: str, prices: PriceServer
) -> None:
    """[D-215, D-252]"""
    async with open_world(database_url) as world:
        live = await world.another(Mode.LIVE)
        pricing = {"mode": "endpoint", "url": prices.url(), "capCents": 1}
        made = [await each.post("/v1/products", {"name": "x", "pricing": pricing}) for each in (world, live)]
    assert [each.status for each in made] == [201, 400]
    assert "FATURA_OUTBOUND_ALLOW_LIVE" in made[1].json["meta"]["fields"][0]["message"]
