"""Asaas' own documents: its OpenAPI description, and answers that were captured from its sandbox.

The documents are not part of Fatura. `make contracts CONTRACTS=<folder>` names the folder with them.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from fatura.domain.offer import PaymentMethod
from fatura.domain.payments import EntryKind
from fatura.gateways.adapters.asaas.charges import charge_of
from fatura.gateways.adapters.asaas.objects import Customer, Payment, read_as, refusal
from fatura.gateways.adapters.asaas.webhook import TOKEN_HEADER, hint
from fatura.gateways.http import ProviderClient
from fatura.gateways.port import ChargeState, Webhook
from fatura.gateways.reais import cents
from tests.contract.asaas_provider import TODAY, AsaasProvider
from tests.contract.provider import NOW, charge_request, refund_request
from tests.doubles.asaas.contract import given_contract
from tests.doubles.asaas.server import open_double
from tests.doubles.contract import FOLDER, Exchange

pytestmark = pytest.mark.skipif(
    not os.environ.get(FOLDER),
    reason=f"{FOLDER} names no folder with the provider's documents; see `make contracts`",
)
REFERENCE = f"{uuid4()}:1"


def _document(name: str) -> Any:
    return json.loads((Path(os.environ[FOLDER]) / name).read_text(), parse_float=Decimal)


def _encoded(value: Any) -> bytes:
    return msgspec.json.Encoder(decimal_format="number").encode(value)


async def test_every_operation_matches_the_vendors_document() -> None:
    """[D-261]"""
    contract, client = given_contract(), ProviderClient(is_exempt=True)
    assert contract is not None
    async with open_double(TODAY, contract) as double:
        provider = AsaasProvider(double, client)
        gateway = await provider.connect()
        await gateway.check_credentials()
        pix = await gateway.create_charge(charge_request())
        boleto = await gateway.create_charge(charge_request(PaymentMethod.BOLETO))
        first = replace(charge_request(PaymentMethod.CARD), installments=3)
        card = await gateway.create_charge(first)
        renamed = replace(first.payer, name="Ana Lima")
        await gateway.create_charge(replace(charge_request(), payer=renamed))
        await gateway.find_charges(pix.invoice_id, 1)
        await gateway.cancel_charge(boleto.charge_id)
        await gateway.cancel_charge(card.charge_id)
        await provider.pay(gateway, pix)
        await gateway.refund_charge(refund_request(pix, 9990))
        double.edit = lambda answer: answer.update(refunds=None) if "value" in answer else None
        await gateway.get_charge(pix.charge_id)
        await client.close()

    assert double.violations == []
    assert contract.used == {
        ("GET", "/v3/customers"),
        ("POST", "/v3/customers"),
        ("PUT", "/v3/customers/{id}"),
        ("GET", "/v3/payments"),
        ("POST", "/v3/payments"),
        ("GET", "/v3/payments/{id}"),
        ("DELETE", "/v3/payments/{id}"),
        ("POST", "/v3/payments/{id}/refund"),
        ("GET", "/v3/payments/{id}/refunds"),
        ("GET", "/v3/payments/{id}/pixQrCode"),
        ("GET", "/v3/payments/{id}/identificationField"),
        ("DELETE", "/v3/installments/{id}"),
    }


@pytest.mark.parametrize(
    ("method", "path", "query", "sent", "answer"),
    [
        (
            "POST",
            "/v3/payments",
            {},
            {"customer": "c", "billingType": "CASH", "value": 1, "dueDate": "d"},
            {},
        ),
        (
            "POST",
            "/v3/payments",
            {},
            {"customer": "c", "billingType": "PIX", "value": "1", "dueDate": "d"},
            {},
        ),
        ("POST", "/v3/payments", {}, {"customer": "c", "billingType": "PIX", "dueDate": "d"}, {}),
        ("POST", "/v3/payments", {}, None, {}),
        ("POST", "/v3/customers", {}, {"name": "Ana"}, {}),
        ("PUT", "/v3/customers/cus_1", {}, {"cpf": "1"}, {}),
        ("POST", "/v3/payments/pay_1/refund", {}, {"value": "1"}, {}),
        ("GET", "/v3/payments", {"invoice": "1"}, None, {}),
        ("GET", "/v3/payments", {"limit": "101"}, None, {}),
        ("GET", "/v3/payments/pay_1", {}, None, {"status": "GONE"}),
        ("GET", "/v3/payments/pay_1", {}, None, {"value": "1"}),
        ("DELETE", "/v3/payments/pay_1", {}, None, {"deleted": "yes"}),
        ("GET", "/v3/nothing", {}, None, {}),
    ],
)
def test_the_check_finds_what_contradicts_the_document(
    method: str, path: str, query: dict[str, str], sent: Any, answer: Any
) -> None:
    """Otherwise a check that checks nothing would pass. [D-261]"""
    contract = given_contract()
    assert contract is not None
    body = b"" if sent is None else _encoded(sent)
    assert contract.violations(Exchange(method, path, query, body, 200, _encoded(answer)))


def _captured(name: str) -> Any:
    """Return a captured answer, with a reference of the engine in each payment."""
    (found,) = [each for each in _document("asaas-sandbox-golden.json")["exchanges"] if each["name"] == name]
    return found["response"]


def _payments(body: Any) -> Sequence[Payment]:
    found = body.get("data", [body])
    return [read_as(_encoded({**each, "externalReference": REFERENCE}), Payment) for each in found]


@pytest.mark.parametrize(
    ("name", "state", "amounts", "fee"),
    [
        ("create pix", ChargeState.OPEN, [], 0),
        ("create boleto with fine, interest, discount", ChargeState.OPEN, [], 0),
        ("create card charge, approved (paid at once)", ChargeState.PAID, [10_000], 348),
        ("list the parcels, newest first", ChargeState.PAID, [10_000] * 3, 3 * 365),
    ],
)
def test_captured_payments_are_read(name: str, state: ChargeState, amounts: list[int], fee: int) -> None:
    """[D-261]"""
    parts = _payments(_captured(name)["body"])
    charge = charge_of(parts, now=NOW.replace(month=7, day=20))

    assert (charge.state, charge.pay.url is not None) == (state, True)
    assert charge.amount_cents == sum(cents(each.value) for each in parts)
    assert [entry.amount_cents for entry in charge.entries if entry.kind is EntryKind.PAYMENT] == amounts
    assert sum(entry.fee_cents for entry in charge.entries) == fee


def test_captured_customers_and_errors_are_read() -> None:
    """[D-261]"""
    customer = read_as(_encoded(_captured("create customer")["body"]), Customer)
    assert (customer.id, customer.deleted) == ("cus_000008392496", False)
    for name, code in (
        ("customer with an invalid CPF", "invalid_object"),
        ("payment with an empty body (one error only)", "invalid_customer"),
        ("create card charge, refused (nothing is created)", "invalid_action"),
    ):
        found = refusal(_encoded(_captured(name)["body"]))
        assert found is not None
        assert found[0] == code


def test_a_published_webhook_is_read() -> None:
    """The sample has the reference of another program, so it names no charge of the engine. [D-35 webhook, D-261]"""
    body = _document("asaas-webhook-payment-received.sample.json")["body"]
    for reference, named in (("056984", ()), (REFERENCE, ("2765d086-c7c5-5cca-898a-4262d212587c",))):
        body["payment"]["externalReference"] = reference
        found = hint(Webhook({TOKEN_HEADER: 32 * "t"}, "", _encoded(body)), token=32 * "t")
        assert found.charge_ids == named
