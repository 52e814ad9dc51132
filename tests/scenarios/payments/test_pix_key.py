"""A live account bills with nothing but a Pix key: each charge is a Pix code, and the merchant records payments."""

from typing import Any

import pytest

from fatura.domain.credentials import Mode
from tests.support.world import Merchant, World, plan_body

SETTINGS = {"pixKey": "pix@example.com", "merchantName": "Academia Sol", "merchantCity": "Sao Paulo"}


async def _issued(world: World) -> tuple[Merchant, Any]:
    """Return a live account with a Pix key, and its issued invoice."""
    live = await world.another(Mode.LIVE)
    body = {"provider": "pix_key", "credentials": {}, "settings": SETTINGS}
    await live.made("/v1/integration/gateways", body)
    await live.enroll(await live.plan())
    await world.run()
    [invoice] = await live.invoices()
    return live, await _read(live, invoice)


async def _read(live: Merchant, invoice: Any) -> Any:
    return (await live.get(f"/v1/invoices/{invoice['id']}")).json


async def test_a_live_account_issues_a_pix_code(world: World) -> None:
    """[D-256, D-49]"""
    live, invoice = await _issued(world)
    [charge] = invoice["charges"]

    assert (invoice["status"], charge["provider"], charge["status"]) == ("issued", "pix_key", "open")
    assert "pix@example.com" in invoice["payment"]["pixCode"]
    assert charge["gatewayInvoiceId"] in invoice["payment"]["pixCode"]
    assert (await live.get("/v1/integration")).json["gateways"][0]["settings"] == SETTINGS
    assert await world.broken() == []


async def test_a_payment_by_hand_pays_the_invoice(world: World) -> None:
    """The engine cancels the charge first, and no longer shows its code. A refund is recorded too. [D-256, D-52]"""
    live, invoice = await _issued(world)
    await live.made(f"/v1/invoices/{invoice['id']}/payments", {"method": "pix", "reference": "E123"})

    paid = await _read(live, invoice)
    assert (paid["status"], paid["paidCents"], paid["payment"]) == ("paid", 9990, None)
    assert [each["status"] for each in paid["charges"]] == ["canceled"]
    await live.made(f"/v1/invoices/{invoice['id']}/refunds", {"amountCents": 990})
    assert (await _read(live, invoice))["refundedCents"] == 990
    assert await world.broken() == []


async def test_a_reissue_makes_another_code(world: World) -> None:
    """[D-256, D-27]"""
    live, invoice = await _issued(world)
    await live.made(f"/v1/invoices/{invoice['id']}/reissue", {})
    await world.run()

    again = await _read(live, invoice)
    assert [each["status"] for each in again["charges"]] == ["canceled", "open"]
    assert again["payment"]["pixCode"] != invoice["payment"]["pixCode"]
    assert await world.broken() == []


@pytest.mark.parametrize("method", ["card", "boleto"])
async def test_a_plan_with_another_method_is_refused(world: World, method: str) -> None:
    """[D-256, D-43]"""
    live = await world.another(Mode.LIVE)
    body = {"provider": "pix_key", "credentials": {}, "settings": SETTINGS}
    await live.made("/v1/integration/gateways", body)
    refused = await live.post("/v1/plans", plan_body(await live.product(), defaultPaymentMethod=method))

    assert (refused.status, refused.type) == (422, "engine.payment_method_unsupported")


async def test_an_invalid_key_is_refused(world: World) -> None:
    """[D-256, D-43]"""
    live = await world.another(Mode.LIVE)
    body = {"provider": "pix_key", "credentials": {}, "settings": {**SETTINGS, "pixKey": "11987654321"}}
    refused = await live.post("/v1/integration/gateways", body)

    assert (refused.status, refused.type) == (400, "engine.invalid_request")
    assert [each["path"] for each in refused.json["meta"]["fields"]] == ["settings.pixKey"]


async def test_a_sandbox_account_has_no_pix_key(world: World) -> None:
    """A sandbox account must not show codes that move real money. [D-256, D-44]"""
    body = {"provider": "pix_key", "credentials": {}, "settings": SETTINGS}
    refused = await world.post("/v1/integration/gateways", body)

    assert (refused.status, refused.type) == (400, "engine.invalid_request")
