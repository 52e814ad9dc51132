"""Stripe's own documents: its API as the official SDK describes it, and the objects that Stripe publishes.

The documents are not part of Fatura. `make contracts CONTRACTS=<folder>` names the folder with them.
"""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import stripe
from stripe.params import DisputeListParams, InvoiceSearchParams, RefundListParams

from fatura.domain.offer import PaymentMethod
from fatura.gateways.adapters.stripe.adapter import VERSION
from fatura.gateways.adapters.stripe.charges import charge_of
from fatura.gateways.adapters.stripe.objects import (
    Customer,
    Dispute,
    Event,
    Invoice,
    Named,
    Refund,
    read_as,
)
from fatura.gateways.http import ProviderClient
from fatura.gateways.port import NotFoundError, PermanentError, ProductMirror
from fatura.ids import new_id
from tests.contract.provider import NOW, charge_request, charges_listed, refund_request
from tests.contract.stripe_provider import StripeProvider
from tests.doubles.contract import FOLDER, Contract, Exchange
from tests.doubles.stripe.contract import given_contract
from tests.doubles.stripe.server import open_double

pytestmark = pytest.mark.skipif(
    not os.environ.get(FOLDER),
    reason=f"{FOLDER} names no folder with the provider's documents; see `make contracts`",
)
SENT: dict[str, dict[str, str]] = {
    "/v1/customers": {"name": "Ana", "email": "ana@example.com", "preferred_locales[0]": "pt-BR"},
    "/v1/invoices": {"customer": "cus_1", "due_date": "1773629999", "auto_advance": "false"},
    "/v1/invoiceitems": {"customer": "cus_1", "invoice": "in_1", "amount": "1", "currency": "brl"},
    "/v1/invoices/search": {"query": "metadata['name']:'value'"},
    "/v1/refunds": {"payment_intent": "pi_1", "amount": "1"},
    "/v1/products": {"name": "Gold"},
}


async def test_every_operation_matches_the_vendors_document() -> None:
    """[D-263]"""
    contract, client = given_contract(), ProviderClient(is_exempt=True)
    assert contract is not None
    async with open_double(NOW, contract) as double:
        provider = StripeProvider(double, client)
        gateway = await provider.connect()
        await gateway.check_credentials()
        made = [await gateway.create_charge(charge_request(method)) for method in PaymentMethod]
        renamed = replace(charge_request().payer, name="Ana Lima")
        for payer in (replace(renamed, name="Ana"), renamed):
            await gateway.create_charge(replace(charge_request(), payer=payer))
        await provider.pay(gateway, made[0])
        await gateway.refund_charge(refund_request(made[0], 100))
        provider.account(gateway).dispute(made[0].charge_id, "won")
        await gateway.get_charge(made[0].charge_id)
        await gateway.cancel_charge(made[1].charge_id)
        await gateway.find_charges(made[2].invoice_id, 1)
        assert len(await charges_listed(gateway, NOW)) == 5
        product = ProductMirror(new_id(NOW), "Gold", "All of it")
        await gateway.mirror_product(product)
        await gateway.mirror_product(product)
        provider.account(gateway).tax_cents = 1
        with pytest.raises(PermanentError):
            await gateway.create_charge(charge_request())
        await client.close()

    assert double.violations == []
    assert contract.used == {
        ("GET", "/v1/account"),
        ("GET", "/v1/customers"),
        ("POST", "/v1/customers"),
        ("POST", "/v1/customers/{customer}"),
        ("GET", "/v1/invoices"),
        ("GET", "/v1/invoices/search"),
        ("POST", "/v1/invoices"),
        ("GET", "/v1/invoices/{invoice}"),
        ("DELETE", "/v1/invoices/{invoice}"),
        ("POST", "/v1/invoiceitems"),
        ("POST", "/v1/invoices/{invoice}/finalize"),
        ("POST", "/v1/invoices/{invoice}/void"),
        ("GET", "/v1/refunds"),
        ("POST", "/v1/refunds"),
        ("GET", "/v1/disputes"),
        ("POST", "/v1/products"),
        ("POST", "/v1/products/{id}"),
    }


@pytest.mark.parametrize(
    ("method", "path", "wrong", "answer"),
    [
        ("POST", "/v1/customers", {"document": "1"}, {}),
        ("POST", "/v1/customers", {"tax_id_data[0][type]": "cpf", "tax_id_data[0][value]": "1"}, {}),
        ("POST", "/v1/customers", {"tax_id_data[0][type]": "br_cpf"}, {}),
        ("POST", "/v1/customers/cus_1", {"tax_id": "1"}, {}),
        ("POST", "/v1/invoices", {"due_date": "2026-03-15"}, {}),
        ("POST", "/v1/invoices", {"auto_advance": "no"}, {}),
        ("POST", "/v1/invoices", {"collection_method": "invoice"}, {}),
        ("POST", "/v1/invoices", {"payment_settings[payment_method_types][0]": "picks"}, {}),
        ("POST", "/v1/invoices", {"pending_invoice_items_behavior": "drop"}, {}),
        ("POST", "/v1/invoices", {"automatic_tax[enabled]": ""}, {}),
        ("POST", "/v1/invoiceitems", {"amount": "1.5"}, {}),
        ("POST", "/v1/invoiceitems", {"unit_amount": "1"}, {}),
        ("POST", "/v1/invoiceitems", {"discountable": "maybe"}, {}),
        ("POST", "/v1/invoices/in_1/finalize", {"auto_advance": "1"}, {}),
        ("POST", "/v1/invoices/in_1/void", {"reason": "x"}, {}),
        ("DELETE", "/v1/invoices/in_1", {}, {"deleted": False}),
        ("POST", "/v1/refunds", {"amount": "all"}, {}),
        ("POST", "/v1/refunds", {"reason": "because"}, {}),
        ("POST", "/v1/products", {"id": "p", "price": "1"}, {}),
        ("POST", "/v1/products/p", {"active": "x"}, {}),
        ("GET", "/v1/account", {"id": "1"}, {}),
        ("GET", "/v1/customers", {"reference": "1"}, {}),
        ("GET", "/v1/customers", {"limit": "x"}, {}),
        ("GET", "/v1/invoices", {"created[from]": "1"}, {}),
        ("GET", "/v1/invoices", {"created[gte]": "x"}, {}),
        ("GET", "/v1/invoices", {"status": "gone"}, {}),
        ("GET", "/v1/invoices/search", {"reference": "1"}, {}),
        ("GET", "/v1/invoices/search", {}, {"data": [{"id": "in_1"}]}),
        ("GET", "/v1/invoices/in_1", {"expanded": "1"}, {}),
        ("GET", "/v1/invoices/in_1", {}, {"status": "gone"}),
        ("GET", "/v1/invoices/in_1", {}, {"total": "1"}),
        ("GET", "/v1/refunds", {"invoice": "1"}, {}),
        ("GET", "/v1/refunds", {}, {"data": [{"id": "re_1"}]}),
        ("GET", "/v1/disputes", {"invoice": "1"}, {}),
        ("GET", "/v1/disputes", {}, {"data": [{"id": "dp_1"}]}),
    ],
)
def test_the_check_finds_what_contradicts_the_document(
    method: str, path: str, wrong: dict[str, str], answer: Any
) -> None:
    """Each case differs in one point from a right exchange. [D-263]"""
    contract = given_contract()
    assert contract is not None
    right = SENT.get(path, {})
    found = _faults(contract, method, path, {**right, **wrong}, answer)
    assert found - _faults(contract, method, path, right, {})


def _faults(contract: Contract, method: str, path: str, sent: dict[str, str], answer: Any) -> set[str]:
    """Return the contradictions of an exchange. Each answer lacks some fields, so also a right request has some."""
    query, body = (sent, b"") if method == "GET" else ({}, urlencode(sent).encode())
    return set(contract.violations(Exchange(method, path, query, body, 200, json.dumps(answer).encode())))


def test_the_list_of_disputes_takes_what_the_list_of_refunds_takes() -> None:
    """The document lacks the list of disputes, so the official SDK says what it takes. [D-263]"""
    assert DisputeListParams.__annotations__.keys() == RefundListParams.__annotations__.keys()


def test_the_search_of_invoices_takes_what_the_double_takes() -> None:
    """The document lacks the search, so the official SDK says what it takes. [D-263]"""
    assert InvoiceSearchParams.__annotations__.keys() >= {"limit", "page", "query"}


def test_the_version_is_that_of_the_document() -> None:
    """[D-263]"""
    document = json.loads((Path(os.environ[FOLDER]) / "stripe-core-2026.openapi.json").read_text("utf-8"))
    assert VERSION == document["info"]["version"] == stripe.api_version


def _published(name: str) -> Any:
    return json.loads((Path(os.environ[FOLDER]) / "stripe-fixtures-2026.json").read_text("utf-8"))["objects"][
        name
    ]


def _read(name: str, kind: Any, **changed: Any) -> Any:
    return read_as(json.dumps({**_published(name), **changed}).encode(), kind)


def test_published_objects_are_read() -> None:
    """[D-263]"""
    reference = f"{new_id(NOW)}:3"
    ours = {"fatura_reference": reference}
    draft = _read("invoice", Invoice, metadata=ours)
    with pytest.raises(NotFoundError):
        charge_of(draft, now=NOW)
    charge = charge_of(_read("invoice", Invoice, metadata=ours, status="open", currency="brl"), now=NOW)
    assert (charge.attempt, charge.amount_cents, charge.entries) == (3, 1000, ())
    refund = _read("refund", Refund, currency="brl")
    dispute = _read("dispute", Dispute, status="lost", currency="brl")
    refunded = charge_of(
        _read("invoice", Invoice, metadata=ours, status="void", currency="brl"),
        refunds=[refund],
        disputes=[dispute],
        now=NOW,
    )
    assert [entry.amount_cents for entry in refunded.entries] == [100, 1000, 1000]
    assert _read("customer", Customer).name is None
    assert _read("account", Named).id.startswith("acct_")
    event = _read("event", Event)
    assert (event.type, event.livemode, event.data.object.object) == ("plan.created", False, "plan")
