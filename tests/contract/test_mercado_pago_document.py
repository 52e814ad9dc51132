"""An OpenAPI document of Mercado Pago that a third party wrote, and which is not part of Fatura.

`make contracts CONTRACTS=<folder>` names the folder with the document.
"""

import json
import os
from collections.abc import Callable
from typing import Any

import pytest

from fatura.gateways.http import ProviderClient
from fatura.gateways.port import NotFoundError
from tests.contract.mercado_pago_provider import MercadoPagoProvider
from tests.contract.provider import NOW, charge_request, refund_request
from tests.doubles.contract import FOLDER, Exchange
from tests.doubles.mercado_pago.contract import given_contract
from tests.doubles.mercado_pago.server import open_double

pytestmark = pytest.mark.skipif(
    not os.environ.get(FOLDER),
    reason=f"{FOLDER} names no folder with the document of Mercado Pago; see `make contracts`",
)
USED = {
    ("POST", "/checkout/preferences"),
    ("GET", "/checkout/preferences/search"),
    ("GET", "/checkout/preferences/{id}"),
    ("PUT", "/checkout/preferences/{id}"),
    ("GET", "/v1/payments/search"),
    ("PUT", "/v1/payments/{id}"),
    ("POST", "/v1/payments/{id}/refunds"),
    ("GET", "/v1/payments/{id}/refunds"),
}


async def test_every_operation_matches_the_document() -> None:
    """[D-265]"""
    contract = given_contract()
    assert contract is not None
    async with open_double(lambda: NOW, contract) as double:
        client = ProviderClient(is_exempt=True)
        provider = MercadoPagoProvider(double, client)
        gateway = await provider.connect()
        await gateway.check_credentials()
        paid, canceled = [await gateway.create_charge(charge_request()) for _ in range(2)]
        account = provider.account(gateway)
        account.attempt(paid.charge_id)
        account.attempt(canceled.charge_id, "pending")
        await gateway.refund_charge(refund_request(paid, 4000))
        for charge in (canceled, canceled, paid):
            await gateway.cancel_charge(charge.charge_id)
        await gateway.find_charges(paid.invoice_id, 1)
        with pytest.raises(NotFoundError):
            await gateway.get_charge("1-2")
        await client.close()
    assert double.violations == []
    assert contract.used == USED


Change = Callable[[Any], None]
ITEM = {"title": "Gold", "quantity": 1, "unit_price": 99.9, "currency_id": "BRL"}


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body.pop("items"),
        lambda body: body["items"][0].pop("unit_price"),
        lambda body: body["items"][0].update(unit_price="99.90"),
        lambda body: body["items"][0].update(quantity=0),
        lambda body: body.update(external_reference=7),
        lambda body: body.update(expires="true"),
        lambda body: body.update(date_of_expiration="2026-03-15"),
        lambda body: body["payment_methods"].update(installments=0),
        lambda body: body["payment_methods"].update(excluded_payment_types=["ticket"]),
        lambda body: body["payer"].update(email=7),
    ],
)
def test_the_document_refuses_wrong_preferences(change: Change) -> None:
    """Otherwise a check that checks nothing would pass. [D-265]"""
    contract = given_contract()
    assert contract is not None
    body: Any = {
        "items": [dict(ITEM)],
        "payer": {"name": "Ana", "email": "ana@example.com"},
        "external_reference": "a:1",
        "expires": True,
        "expiration_date_to": "2026-03-15T23:59:59.000-03:00",
        "payment_methods": {"excluded_payment_types": [{"id": "ticket"}], "installments": 1},
    }
    assert contract.violations(_exchange("POST", "/checkout/preferences", body, 201)) == []
    change(body)
    assert contract.violations(_exchange("POST", "/checkout/preferences", body, 201)) != []


@pytest.mark.parametrize(
    ("method", "path", "sent", "answer"),
    [
        ("PUT", "/v1/payments/1", {"status": "approved"}, {}),
        ("PUT", "/v1/payments/1", {"status": "cancelled"}, {"status": "gone"}),
        ("PUT", "/checkout/preferences/1-2", {"expires": True}, {}),
        ("GET", "/v1/payments/search", None, {"results": [{"id": "1"}]}),
        ("GET", "/v1/payments/search", None, {"paging": {"total": "1"}}),
        ("GET", "/v1/payments/1/refunds", None, {}),
        ("GET", "/v1/payments/1/refunds", None, [{"status": "done"}]),
        ("GET", "/v1/nothing", None, {}),
    ],
)
def test_the_check_finds_what_contradicts_the_document(
    method: str, path: str, sent: Any, answer: Any
) -> None:
    """[D-265]"""
    contract = given_contract()
    assert contract is not None
    body = b"" if sent is None else json.dumps(sent).encode()
    assert contract.violations(Exchange(method, path, {}, body, 200, json.dumps(answer).encode()))


def _exchange(method: str, path: str, sent: Any, status: int) -> Exchange:
    return Exchange(method, path, {}, json.dumps(sent).encode(), status, b"{}")
